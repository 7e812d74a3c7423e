"""Fuzz the link handshake for some minutes: python scripts/fuzz_handshake.py --seconds 300.

Fuzzing is guided by coverage if atheris is installed; otherwise genuine conversations are damaged at random.
An input is the bytes that one end hears, in pieces, in one of the modes. The run ends at any error but a
HandshakeError, an unproven peer, bytes kept beyond the bound, or an opened frame that was never sealed.
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

with atheris.instrument_imports(include=["happened.net.handshake"]) if atheris else nullcontext():
    from happened.net.handshake import MAX_HELLO, PROOF_SIZE, Handshake, HandshakeError, Mode
from happened.core.errors import RemoteProtocolError

KEY = bytes(range(32))
NONCES = b"n" * 32, b"m" * 32


def ends(mode: Mode) -> tuple[Handshake, Handshake]:
    """alice calls bob; TLS has certified each to the other."""
    calling = Handshake("alice", mode, nonce=NONCES[0], wanted="bob", key=KEY, certified="bob")
    return calling, Handshake("bob", mode, nonce=NONCES[1], key=KEY, certified="alice")


def conversation(mode: Mode) -> list[bytes]:
    """The bytes that bob hears and those that alice hears, frames included, if nobody interferes."""
    calling, answering = ends(mode)
    first = calling.begin()
    second = answering.receive(first)
    third = calling.receive(second)
    answering.receive(third)
    return [first + third + calling.channel.seal(b"frame"), second + answering.channel.seal(b"frame")]


def try_one(data: bytes, genuine: dict[Mode, list[bytes]]) -> bool:
    """Whether the end that heard these bytes accepted a peer; raises if something happens that must not."""
    if len(data) < 2:
        return False
    mode, initiator, piece = Mode(data[0] % 3), data[0] & 4, 1 + data[1]
    end = ends(mode)[0 if initiator else 1]
    heard = data[2:]
    for start in range(0, len(heard), piece):
        try:
            end.receive(heard[start : start + piece])
        except HandshakeError:
            if end.peer is not None:
                raise AssertionError(f"failed, and believes in {end.peer!r}: {data.hex()}") from None
            return False
        if end.peer is not None:
            break
        if len(end._buffer) > MAX_HELLO + PROOF_SIZE + piece:
            raise AssertionError(f"keeps {len(end._buffer)} bytes: {data.hex()}")
    if end.peer is None:
        return False
    expected = genuine[mode][1 if initiator else 0]
    if mode is Mode.SHARED_KEY:
        used = len(expected) - len(b"frame") - 16
        # With these nonces only the genuine bytes prove anything.
        if heard[:used] != expected[:used]:
            raise AssertionError(f"believed other bytes than the genuine ones: {data.hex()}")
        try:
            if end.channel.open(heard[used:]) != b"frame":
                raise AssertionError(f"opened a frame that was not sealed: {data.hex()}")
        except RemoteProtocolError:
            pass
    elif mode is Mode.TLS and end.peer != ("bob" if initiator else "alice"):
        raise AssertionError(f"believed in {end.peer!r} against the certificate: {data.hex()}")
    return True


def damage(dice: random.Random, genuine: dict[Mode, list[bytes]]) -> bytes:
    mode, initiator = dice.choice(list(Mode)), dice.randrange(2)
    data = bytearray(genuine[mode][initiator])
    other = genuine[dice.choice(list(Mode))][dice.randrange(2)]
    for _ in range(dice.randrange(4)):
        place = dice.randrange(len(data) + 1)
        what = dice.randrange(4)
        if what == 0 and place < len(data):
            data[place] ^= 1 << dice.randrange(8)
        elif what == 1:
            del data[place : place + dice.randint(1, 40)]
        elif what == 2:
            data[place:place] = other[dice.randrange(len(other)) :][: dice.randint(1, 40)]
        else:
            data[place:place] = dice.randbytes(dice.randint(1, 300))
    return bytes((_with_initiator(mode) if initiator else mode, dice.randrange(256))) + bytes(data)


def _with_initiator(mode: Mode) -> int:
    """The smallest byte that selects this mode and has the initiator's bit."""
    return next(byte for byte in range(256) if byte % 3 == mode and byte & 4)


def fuzz_randomly(seconds: float, seed: int) -> None:
    dice, genuine = random.Random(seed), {mode: conversation(mode) for mode in Mode}
    tried = believed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(500):
            believed += try_one(damage(dice, genuine), genuine)
            tried += 1
    if not believed:
        raise AssertionError("no undamaged conversation succeeded: this run has shown nothing")
    print(f"random damage, seed {seed}: {tried} inputs, {believed} made a peer, 0 failures")


def fuzz_with_coverage(seconds: float, seed: int) -> None:
    genuine = {mode: conversation(mode) for mode in Mode}
    print(f"atheris, seed {seed}: fuzzing for {seconds:g} s; a failure prints its input and a traceback")
    limits = [f"-max_total_time={int(seconds)}", f"-seed={seed}", "-max_len=2048"]
    atheris.Setup([sys.argv[0], *limits], lambda data: (try_one(data, genuine), None)[1])
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    has_coverage = atheris is not None
    fuzz_randomly(arguments.seconds / (2 if has_coverage else 1), arguments.seed)
    if has_coverage:
        fuzz_with_coverage(arguments.seconds / 2, arguments.seed)
    else:
        print("atheris is not installed (pip install atheris): no coverage-guided run")


if __name__ == "__main__":
    main()
