"""Messages as bytes: they come back as they went, and nothing hostile gets past RemoteProtocolError, neither
in decoding nor in the machine that receives what was decoded."""

from functools import lru_cache

import pytest

from contract.drive import Dice, busy, is_application, make, some_destinations
from happened import wire
from happened.core.effects import Send
from happened.core.errors import RemoteProtocolError
from happened.ordering import having, protocols
from happened.ordering.capabilities import TellsUnits
from happened.wire.primitives import write_number

SIZES = {1: 40, 2: 40, 5: 40, 14: 40, 63: 20, 64: 20, 70: 20}  # processes: multicasts
DAMAGED = 400


def codec_of(facts):
    return wire.named_codec(facts)


def check_codec(facts, seed):
    """The codec knows exactly the kinds of message that a busy system sends, under a number of its own."""
    dice = Dice(seed)
    known = set(codec_of(facts).MESSAGES)
    sent = {type(message) for _ in range(3) for message in busy(facts, 5, dice, sends=60).made}
    for _ in range(
        6 if facts.membership.departures else 0
    ):  # whether every kind is needed is a matter of luck
        if sent == known:
            break
        sent |= {type(message) for message in depleted(facts, dice).made}
    assert sent == known
    for other in protocols().values():
        assert (other.wire.number == facts.wire.number) == (other.wire.codec == facts.wire.codec)


def depleted(facts, dice):
    """A system that has worked for long, that two have left, and from which one was expelled before."""
    system = busy(facts, 5 if facts.membership.expulsions else 4, dice, sends=120)
    if facts.membership.expulsions:
        system.expel(dice, system.active[0])
    system.drain(dice)
    for _ in range(2):
        system.multicast(dice)
        system.leave(system.active[0])
        system.drain(dice)
    return system


def check_frames(facts, seed):
    """A stream of frames: each comes back as it went and says where it ends."""
    for n, sends in SIZES.items():
        system = busy(facts, n, Dice(f"{seed}/{n}"), sends=sends)
        made = system.made
        assert len(made) + sum(map(len, system.history.order.values())) >= sends
        stream = b"".join(map(wire.encode, made))
        for message in made:
            decoded, used = wire.decode(stream)
            assert decoded == message and type(decoded) is type(message)
            stream = stream[used:]
        assert not stream
        assert wire.encode_multicast(made) == [wire.encode(message) for message in made]
        assert wire.control_sizes(made) == [wire.control_size(message) for message in made]


def check_one_multicast(facts, seed):
    """What the copies of one multicast have in common is worked out once, and changes nothing."""
    dice = Dice(seed)
    system = busy(facts, 5, dice)
    for _ in range(3):
        effects = system.send(2, system.destinations(dice, 2))
        made = [effect.message for effect in effects if isinstance(effect, Send)]
        assert wire.encode_multicast(made) == [wire.encode(message) for message in made]
        assert wire.control_sizes(made) == [wire.control_size(message) for message in made]


def check_bounds(facts, seed):
    """The caller bounds the number of processes, and with it what a frame may allocate."""
    made = [message for message in busy(facts, 70, Dice(seed), sends=5).made if is_application(message)]
    big = wire.encode(made[-1])
    with pytest.raises(RemoteProtocolError):
        wire.decode(big, max_processes=69)
    assert wire.decode(big, max_processes=70)[0] == made[-1]


def check_hostile_frames(facts, seed):
    """Huge counts and unknown kinds are refused, whatever follows them."""
    for tail in (b"", b"\xff" * 40, b"\x7f" * 40, b"\x00" * 40):
        for kind in range(5):
            with pytest.raises(RemoteProtocolError):
                wire.decode(frame(facts.wire.number, kind, 1 << 40, tail=tail))
        with pytest.raises(RemoteProtocolError):
            wire.decode(frame(facts.wire.number, 9, tail=tail))
        with pytest.raises(RemoteProtocolError):
            wire.decode(frame(facts.wire.number, tail=tail))


def frame(protocol, *numbers, tail=b""):
    body = bytearray()
    for number in numbers:
        write_number(body, number)
    body += tail
    head = bytearray((wire.VERSION, protocol))
    write_number(head, len(body))
    write_number(head, 0)
    return bytes(head + body)


def check_damaged_frames(facts, seed):
    """A damaged frame is refused, or is still a message that a machine survives."""
    dice = Dice(seed)
    genuine = [wire.encode(m) for n in (3, 5, 10, 70) for m in busy(facts, n, Dice(seed), sends=15).made]
    for _ in range(DAMAGED):
        damaged = bytearray(dice.one(genuine))
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        for hostile in (bytes(damaged), bytes(damaged[: dice.randint(0, len(damaged))])):
            try:
                message, _ = wire.decode(hostile)
            except RemoteProtocolError:
                continue
            assert wire.decode(wire.encode(message))[0] == message
            survive(facts, message, dice)


@lru_cache
def initial(facts, me, n):
    machine = make(facts, me, n)
    return machine, machine.snapshot()


def fresh(facts, me, n):
    """A machine that has done nothing yet; making one in a wide system takes longer than this."""
    machine, snapshot = initial(facts, me, n)
    machine.restore(snapshot)
    return machine


def survive(facts, message, dice):
    """A fresh machine, and one that has sent something, as the message's first destination or as anybody."""
    n = min(getattr(message, "n", 5), 128)
    for me in {min(message.to, default=0), dice.randrange(n)}:
        if me >= n:
            continue
        machine = fresh(facts, me, n)
        if dice.flip():
            machine.multicast(some_destinations(facts, n, me), b"")
        for _ in range(2):
            before = machine.snapshot()
            try:
                machine.receive(message)
            except RemoteProtocolError:
                assert machine.snapshot() == before, (
                    f"a refused message has changed the state: {message!r:.200}"
                )
            machine.pending()
            if (told := having(machine, TellsUnits)) is not None:
                told.log_units()
            machine.restore(machine.snapshot())
