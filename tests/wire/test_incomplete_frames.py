"""Frames of incomplete orders: they come back as they went, and hostile ones end in RemoteProtocolError."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import effort
from happened import wire
from happened.core.errors import RemoteProtocolError
from happened.ordering.causal.incomplete import Labelled, Priorities

N = 5


def traffic(kind, seed, sends=30, n=N):
    dice, machines = random.Random(seed), [kind(p, n) for p in range(n)]
    in_flight, made = [], []
    for _ in range(sends):
        p, to = dice.randrange(n), dice.sample(range(n), dice.randint(1, min(n, 4)))
        options = {"label": dice.choice(["", "a", "ä" * 9])} if kind is Labelled else {}
        if kind is Priorities:
            options = {"priority": dice.choice([0, 0, -3, 1 << 20])}
        sent = machines[p].multicast(to, dice.randbytes(dice.randint(0, 9)), **options).effects
        made += [send.message for send in sent]
        in_flight += sent
        while in_flight and dice.random() < 0.7:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            machines[d].receive(message)
    return made


@pytest.mark.parametrize("kind", [Labelled, Priorities])
@pytest.mark.parametrize("n", [2, 5, 70])
def test_a_frame_comes_back_as_it_went_and_says_where_it_ends(kind, n, seed):
    made = traffic(kind, seed, n=n)
    assert any(message.size()[0] for message in made)
    stream = b"".join(wire.encode(message) for message in made)
    for message in made:
        decoded, used = wire.decode(stream)
        assert decoded == message and type(decoded) is type(message)
        stream = stream[used:]
    assert not stream
    assert wire.encode_multicast(made) == [wire.encode(message) for message in made]


GENUINE = [(kind, wire.encode(message)) for kind in (Labelled, Priorities) for message in traffic(kind, 5)]


@pytest.mark.sampled
@pytest.mark.long
@settings(max_examples=effort.samples(1500), deadline=None)
@given(st.sampled_from(GENUINE), st.data())
def test_a_damaged_frame_is_refused_or_still_a_message_a_machine_survives(genuine, data):
    kind, frame = genuine
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(3, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for hostile in (bytes(damaged), bytes(damaged[: data.draw(st.integers(0, len(damaged)))])):
        try:
            message, _ = wire.decode(hostile)
        except RemoteProtocolError:
            continue
        assert wire.decode(wire.encode(message))[0] == message
        machine = kind(data.draw(st.integers(0, N - 1)), N)
        before = machine.snapshot()
        try:
            machine.receive(message)
        except RemoteProtocolError:
            assert machine.snapshot() == before
        machine.pending()
        machine.restore(machine.snapshot())


def test_an_unknown_kind_and_a_label_that_is_no_text_are_refused():
    (send,) = Labelled(0, 2).multicast([1], b"", label="ab").effects
    good = wire.encode(send.message)
    with pytest.raises(RemoteProtocolError, match="kind 7"):
        wire.decode(good[:4] + b"\x07" + good[5:])
    with pytest.raises(RemoteProtocolError, match="not text"):
        wire.decode(good.replace(b"ab", b"\xff\xff"))
