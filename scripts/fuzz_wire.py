"""Fuzz the decoder for some minutes: `make fuzz`, or python scripts/fuzz_wire.py --seconds 300.

Fuzzing is guided by coverage if atheris is installed; otherwise genuine frames are damaged at random. The run
ends at any error but a RemoteProtocolError, or at a message that changes in a round trip.
"""

import argparse
import random
import sys
import time
from contextlib import nullcontext

try:
    import atheris
except ImportError:
    atheris = None

with atheris.instrument_imports(include=["happened.wire"]) if atheris else nullcontext():
    from happened import wire
from happened.core.errors import RemoteProtocolError
from happened.ordering import create
from happened.ordering.causal.ks import KsMessage


def try_one(data: bytes) -> bool:
    """Whether the bytes were a message; raises on anything a decoder must not do."""
    try:
        message, used = wire.decode(data)
    except RemoteProtocolError:
        return False
    if wire.decode(wire.encode(message))[0] != message or used > len(data):
        raise AssertionError(f"does not survive a round trip: {data.hex()}")
    if not isinstance(message, KsMessage):
        return True  # the damage turned it into a message of another protocol
    me = message.receiver if message.receiver is not None else min(message.to)
    machine = create("ks", me, message.log.n)
    try:
        machine.receive(message)
    except RemoteProtocolError:
        return True
    machine.restore(machine.snapshot())
    return True


def genuine_frames(seed: int) -> list[bytes]:
    dice = random.Random(seed)
    frames = []
    for n in (2, 5, 20, 70):
        machines = [create("ks", p, n) for p in range(n)]
        in_flight = []
        for _ in range(60):
            effects = (
                machines[dice.randrange(n)].multicast(dice.sample(range(n), dice.randint(1, n)), b"x").effects
            )
            frames += wire.encode_multicast([effect.message for effect in effects])
            in_flight += effects
            while in_flight and dice.random() < 0.7:
                d, message = in_flight.pop(dice.randrange(len(in_flight)))
                machines[d].receive(message)
    return frames


def damage(dice: random.Random, frames: list[bytes]) -> bytes:
    data = bytearray(dice.choice(frames))
    for _ in range(dice.randint(1, 6)):
        what = dice.randrange(4)
        place = dice.randrange(len(data)) if data else 0
        if what == 0 and data:
            data[place] = dice.randrange(256)
        elif what == 1 and data:
            data[place] ^= 1 << dice.randrange(8)
        elif what == 2:
            del data[place : place + dice.randint(1, 8)]
        else:
            other = dice.choice(frames)
            data[place:place] = other[dice.randrange(len(other)) :][: dice.randint(1, 16)]
    if dice.random() < 0.5 and len(data) > 3:  # keep the length correct, so that damage reaches the body
        length = bytearray()
        wire.write_number(length, len(data) - 3)
        data[2:3] = length
    return bytes(data)


def fuzz_randomly(seconds: float, seed: int) -> None:
    dice, frames = random.Random(seed), genuine_frames(seed)
    tried = accepted = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(500):
            accepted += try_one(damage(dice, frames))
            tried += 1
    print(f"random damage, seed {seed}: {tried} inputs, {accepted} were messages, 0 failures")


def fuzz_with_coverage(seconds: float, seed: int) -> None:
    print(f"atheris, seed {seed}: fuzzing for {seconds:g} s; a failure prints its input and a traceback")
    limits = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=4096"]
    atheris.Setup([sys.argv[0], *limits], lambda data: (try_one(data), None)[1])
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    fuzz_randomly(arguments.seconds / 2, arguments.seed)
    if atheris is None:
        print("atheris is not installed (pip install atheris): no coverage-guided run")
    else:
        fuzz_with_coverage(arguments.seconds / 2, arguments.seed)


if __name__ == "__main__":
    main()
