"""Frames: they come back as they went, stay small, and nothing hostile gets past RemoteProtocolError."""

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import effort
from happened import wire
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.lanes import CLOCK_LIMIT
from happened.ordering import create
from happened.wire.primitives import Reader, unzigzag, write_number, write_set, zigzag


def messages(seed, n, sends=40, **options):
    """The messages of a busy system, so that they carry logs worth encoding."""
    dice = random.Random(seed)
    machines = [create("ks", p, n, **options) for p in range(n)]
    in_flight, made = [], []
    for _ in range(sends):
        to = dice.sample(range(n), dice.randint(1, min(n, 9)))
        effects = machines[dice.randrange(n)].multicast(to, dice.randbytes(dice.randint(0, 20))).effects
        made += [effect.message for effect in effects]
        in_flight += effects
        while in_flight and dice.random() < 0.7:
            d, message = in_flight.pop(dice.randrange(len(in_flight)))
            machines[d].receive(message)
    return made


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 5, 14, 50, 63, 64, 200, 300])
@pytest.mark.parametrize("hardware", [False, True], ids=["per destination", "hardware multicast"])
def test_a_frame_comes_back_as_it_went_and_says_where_it_ends(n, hardware, seed):
    made = messages(seed, n, hardware_multicast=hardware)
    stream = b"".join(wire.encode(message) for message in made)
    for message in made:
        decoded, used = wire.decode(stream)
        assert decoded == message
        stream = stream[used:]
    assert not stream


@given(st.integers(0, CLOCK_LIMIT * 8 - 1))
def test_numbers_round_trip(value):
    out = bytearray()
    write_number(out, value)
    assert Reader(bytes(out)).number() == value


@given(st.integers(-CLOCK_LIMIT, CLOCK_LIMIT))
def test_zigzag_round_trips(value):
    assert unzigzag(zigzag(value)) == value
    assert zigzag(value) >= 0


@given(st.data(), st.integers(1, 300))
def test_sets_round_trip_and_no_form_is_longer_than_a_bitmap(data, n):
    members = data.draw(st.integers(0, (1 << n) - 1)) if data.draw(st.booleans()) else 0
    for member in data.draw(st.sets(st.integers(0, n - 1), max_size=4)):
        members ^= 1 << member
    for candidate in (members, members ^ (1 << n) - 1):
        out = bytearray()
        write_set(out, candidate, n)
        assert Reader(bytes(out)).set(n) == candidate
        assert len(out) <= 1 + (n + 7) // 8


def test_a_set_costs_as_little_as_its_complement():
    n, few = 100, 0b111 << 40
    sizes = []
    for members in (few, few ^ (1 << n) - 1):
        out = bytearray()
        write_set(out, members, n)
        sizes.append(len(out))
    assert sizes[0] == sizes[1] < n // 8


@pytest.mark.sampled
@pytest.mark.long
@settings(max_examples=effort.samples(2000))
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_are_a_message(data):
    try:
        message, used = wire.decode(data)
    except RemoteProtocolError:
        return
    assert wire.decode(wire.encode(message))[0] == message
    assert used <= len(data)


GENUINE = [wire.encode(message) for n in (3, 10, 70) for message in messages(5, n)]


@pytest.mark.sampled
@pytest.mark.long
@settings(max_examples=effort.samples(3000))
@given(st.sampled_from(GENUINE), st.data())
def test_a_damaged_frame_is_refused_or_still_a_message_a_machine_survives(frame, data):
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for hostile in (bytes(damaged), bytes(damaged[:cut])):
        try:
            message, _ = wire.decode(hostile)
        except RemoteProtocolError:
            continue
        assert wire.decode(wire.encode(message))[0] == message
        me = message.receiver if message.receiver is not None else min(message.to)
        machine = create("ks", me, max(message.log.n, 3))
        try:
            machine.receive(message)
        except RemoteProtocolError:
            continue
        machine.pending()
        machine.log_units()
        machine.restore(machine.snapshot())


def frame(*numbers, tail=b"", length=None):
    body = bytearray()
    for number in numbers:
        write_number(body, number)
    body += tail
    head = bytearray((wire.VERSION, 1))
    write_number(head, len(body) if length is None else length)
    write_number(head, 0)
    return bytes(head + body)


@pytest.mark.parametrize(
    "data",
    [
        frame(1, length=1 << 62),
        frame(1 << 40),
        frame(1 << 62, 0, 1),
        frame(1000, 0, 1, tail=bytes([200]) + b"\xff\xff\xff\x7f"),
        frame(10, 0, 1, 2, 1, 2, tail=b"\x03" + b"\xff\xff\xff\xff\x7f"),
        frame(tail=b"\xff" * 5000),
    ],
    ids=["length", "processes", "more processes", "set members", "older entries", "endless number"],
)
def test_huge_counts_are_refused_before_anything_is_allocated(data):
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            wire.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_versions_and_protocols_we_do_not_speak_are_named():
    good = GENUINE[0]
    with pytest.raises(RemoteProtocolError, match="version 9"):
        wire.decode(b"\x09" + good[1:])
    with pytest.raises(RemoteProtocolError, match="number 77"):
        wire.decode(good[:1] + b"\x4d" + good[2:])
    with pytest.raises(RemoteProtocolError, match="ends early"):
        wire.decode(b"")
    with pytest.raises(LocalProtocolError, match="no wire format"):
        wire.encode("hello")


@pytest.mark.parametrize("n", [10, 30])
def test_control_bytes_are_at_most_two_fifths_of_the_papers_model(n, seed):
    made = messages(seed, n, sends=600)[-1000:]
    encoded = sum(map(wire.control_size, made))
    model = sum(6 * entries + 2 * units for entries, units in (message.size() for message in made))
    assert encoded < 0.4 * model


@given(st.integers(0, (1 << 200) - 1), st.integers(0, 220))
def test_a_set_written_as_a_number_comes_back_if_it_has_few_enough_bits(members, most):
    out = bytearray()
    write_number(out, members)
    reader = Reader(bytes(out))
    if members.bit_length() <= most:
        assert reader.bits(most) == members and not reader.left
    else:
        with pytest.raises(RemoteProtocolError, match=f"more than {most} bits"):
            reader.bits(most)


def test_a_number_without_an_end_is_refused_before_it_is_long():
    with pytest.raises(RemoteProtocolError, match="more than 100 bits"):
        Reader(b"\xff" * 10**6).bits(100)
    with pytest.raises(RemoteProtocolError, match="ends early"):
        Reader(b"\x80\x80").bits(100)
