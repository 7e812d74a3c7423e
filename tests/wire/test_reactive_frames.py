"""Frames of the protocols that send when they receive: they come back as they went, and nothing hostile gets
past RemoteProtocolError, neither in decoding nor in the machine that receives what was decoded."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happened import wire
from happened.core.effects import Send
from happened.core.errors import RemoteProtocolError
from happened.ordering import create, protocols
from happened.wire.primitives import write_number
from oracles.reactive import NAMES

KINDS = {
    "acknowledged": {"AcknowledgedMessage", "Acknowledgement"},
    "agreed": {"AgreedMessage", "AgreedProposal", "AgreedFinal"},
    "causal-total": {"AgreedMessage", "AgreedProposal", "AgreedFinal"},
    "cbcast": {"CbcastMessage", "CbcastAcknowledgement"},
    "flooding": {"FloodingMessage"},
    "histories": {"HistoryMessage"},
    "phased": {"PhasedMessage", "Resynchronisation"},
    "psync": {"PsyncMessage"},
    "sequencer": {"SequencerRequest", "SequencerOrder", "SequencerHandover", "SequencerAnnouncement"},
    "topological": {"HopMessage"},
    "zoned-ks": {"ZonedMessage"},
}


def traffic(name, seed, n, sends=30):
    """Everything a busy system puts on its links, control messages included."""
    dice = random.Random(seed)
    machines = [create(name, p, n) for p in range(n)]
    casts = protocols()[name].casts
    channels, made = {}, []

    def perform(process, effects):
        for effect in effects:
            if isinstance(effect, Send):
                made.append(effect.message)
                channels.setdefault((process, effect.to), []).append(effect.message)

    for _ in range(sends):
        process = dice.randrange(n)
        size = 1 if "multicast" not in casts and "unicast" in casts else dice.randint(1, min(n, 9))
        to = dice.sample(range(n), size) if "unicast" in casts else set(range(n)) - {process}
        perform(process, machines[process].multicast(to, dice.randbytes(dice.randint(0, 20))))
        while dice.random() < 0.8 and (loaded := [c for c, packets in channels.items() if packets]):
            channel = dice.choice(loaded)
            perform(channel[1], machines[channel[1]].receive(channels[channel].pop(0)))
        if name == "sequencer" and dice.random() < 0.3:
            for machine in machines:
                if machine.coordinator == machine.me:
                    perform(machine.me, machine.hand_over((machine.me + 1) % n))
                    break
    return made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 5, 20, 70])
def test_a_frame_comes_back_as_it_went_and_says_where_it_ends(name, n, seed):
    made = traffic(name, seed, n)
    assert {type(message).__name__ for message in traffic(name, 1, 5, sends=60)} == KINDS[name]
    stream = b"".join(wire.encode(message) for message in made)
    for message in made:
        decoded, used = wire.decode(stream)
        assert decoded == message and type(decoded) is type(message)
        stream = stream[used:]
    assert not stream
    assert wire.encode_multicast(made) == [wire.encode(message) for message in made]
    assert wire.control_sizes(made) == [wire.control_size(message) for message in made]


@pytest.mark.parametrize("name", NAMES)
def test_a_message_tells_its_size_and_a_control_message_is_for_nobody(name, seed):
    for message in traffic(name, seed, 5):
        entries, units = message.size()
        assert entries >= 0 and units == len(message.units()) and message.model_bytes() >= 0
        assert message.to or not message.payload


@pytest.mark.parametrize("name", ["acknowledged", "flooding", "agreed", "sequencer"])
def test_constant_control_information_stays_small_whatever_the_system(name, seed):
    made = [m for n in (3, 70) for m in traffic(name, seed, n) if type(m).__name__ != "SequencerHandover"]
    assert max(map(wire.control_size, made)) <= 6


GENUINE = [wire.encode(message) for name in NAMES for message in traffic(name, 5, 5, sends=12)]
MACHINES = {kind: [name for name in NAMES if kind in KINDS[name]] for name in NAMES for kind in KINDS[name]}


@settings(max_examples=3000)
@given(st.sampled_from(GENUINE), st.data())
def test_a_damaged_frame_is_refused_or_still_a_message_a_machine_survives(frame, data):
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        # The protocol's number stays: other protocols have their own test.
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for hostile in (bytes(damaged), bytes(damaged[:cut])):
        try:
            message, _ = wire.decode(hostile)
        except RemoteProtocolError:
            continue
        assert wire.decode(wire.encode(message))[0] == message
        for name in MACHINES[type(message).__name__]:
            machine = create(name, me := data.draw(st.integers(0, 4)), 5)
            if data.draw(st.booleans()):
                machine.multicast([1 - me % 2] if name == "acknowledged" else range(5), b"")
            survives(machine, message)


def survives(machine, message):
    before = machine.snapshot()
    try:
        machine.receive(message)
    except RemoteProtocolError:
        assert machine.snapshot() == before
    machine.pending()
    machine.restore(machine.snapshot())


def frame(protocol, *numbers, tail=b""):
    body = bytearray()
    for number in numbers:
        write_number(body, number)
    body += tail
    head = bytearray((wire.VERSION, protocol))
    write_number(head, len(body))
    return bytes(head + body)


@pytest.mark.parametrize("protocol", [*range(30, 37), 60, 61, 70])
@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("tail", [b"", b"\xff" * 40, b"\x7f" * 40, b"\x00" * 40], ids=["", "ff", "7f", "00"])
def test_huge_counts_and_unknown_kinds_are_refused(protocol, kind, tail):
    with pytest.raises(RemoteProtocolError):
        wire.decode(frame(protocol, kind, 1 << 40, tail=tail))
    with pytest.raises(RemoteProtocolError):
        wire.decode(frame(protocol, 9, tail=tail))


def test_nothing_may_follow_a_control_message():
    (send,) = create("acknowledged", 0, 2).multicast([1], b"")
    acknowledgement, _ = create("acknowledged", 1, 2).receive(send.message)
    good = wire.encode(acknowledgement.message)
    with pytest.raises(RemoteProtocolError, match="follow the end"):
        wire.decode(good[:2] + bytes([good[2] + 1]) + good[3:] + b"x")
