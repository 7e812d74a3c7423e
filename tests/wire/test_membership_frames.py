"""Changes of members as bytes: which they are, what comes back, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from happened import wire
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering.facts import MANY_PROCESSES
from happened.wire.membership import (
    HEAD,
    MARK,
    MAX_CHANGE,
    MAX_INDEX,
    MAX_NUMBER,
    MemberDeparted,
    MemberJoined,
    StateAsked,
    StateGiven,
    StateTally,
    decode,
    encode,
)

names = st.text(max_size=100)
indices = st.integers(0, MAX_INDEX - 1)
numbers = st.integers(0, MAX_NUMBER)
changes = (
    st.builds(MemberJoined, indices, names, names)
    | st.builds(MemberDeparted, indices)
    | st.builds(StateAsked, indices)
    | st.builds(StateTally, indices, numbers)
    | st.builds(StateGiven, indices, st.lists(numbers, min_size=1, max_size=9).map(tuple))
)


@pytest.mark.parametrize(
    "change, frame",
    [
        (MemberJoined(3, "dave", "127.0.0.1:7004"), b'\xff\x01[1, 3, "dave", "127.0.0.1:7004"]'),
        (MemberJoined(1023, "Zoë ☃", "[::1]:1"), b'\xff\x01[1, 1023, "Zo\\u00eb \\u2603", "[::1]:1"]'),
        (MemberDeparted(0), b'\xff\x01[2, 0, "", ""]'),
        (StateAsked(3), b'\xff\x01[7, 3, "", ""]'),
        (StateTally(3, 17), b'\xff\x01[8, 3, "17", ""]'),
        (StateGiven(3, (4, 5)), b'\xff\x01[9, 3, "", "4,5"]'),
    ],
)
def test_the_bytes_of_form_1_are_fixed(change, frame):
    """Journals and brokers keep such frames."""
    assert encode(change) == frame
    assert decode(frame) == change


@pytest.mark.long
@given(changes)
def test_a_change_comes_back_as_it_went(change):
    assert decode(encode(change)) == change


@pytest.mark.parametrize("form", [0, 2, 3, ord("["), 255])
def test_another_form_is_refused_by_its_number(form):
    with pytest.raises(RemoteProtocolError, match=rf"in form {form}, .* reads form 1; upgrade this node"):
        decode(bytes((MARK, form)) + b"whatever follows")


@pytest.mark.parametrize(
    "body, why",
    [
        (b"", "not a change of members"),
        (b"[1]", "not a change of members"),
        (b"[1, 2, 3, 4, 5]", "not a change of members"),
        (b"[" * 60_000, "not a change of members"),
        (b'[1, 3, "dave"', "not a change of members"),
        (b'[1, 3, "d\xff", ""]', "not a change of members"),
        (b'[1, 3, "dave", 7004]', "wrong types"),
        (b'[true, 3, "dave", ""]', "wrong types"),
        (b'[1, 3.0, "dave", ""]', "wrong types"),
        (b'[1, -1, "dave", ""]', "no process has index -1"),
        (b'[2, 65536, "", ""]', "no process has index 65536"),
        (b"[1, " + b"9" * 5000 + b', "dave", ""]', "not a change of members"),
        (b'[99, 1, "", ""]', "there is no kind 99"),
        (b'[8, 1, "", ""]', "'' is no number"),
        (b'[8, 1, "9223372036854775808", ""]', "is no number"),
        (b'[9, 1, "", "1,-2"]', "'-2' is no number"),
        (b'[2, 0, "' + b"x" * MAX_CHANGE + b'", ""]', "at most 65536"),
    ],
)
def test_what_is_no_change_is_refused_and_says_why(body, why):
    with pytest.raises(RemoteProtocolError, match=why):
        decode(HEAD + body)


def test_a_frame_of_a_message_is_no_change_and_the_reverse():
    with pytest.raises(RemoteProtocolError, match="begins with another byte"):
        decode(b'\x01\x01[2, 0, "", ""]')
    with pytest.raises(RemoteProtocolError, match="cut off"):
        decode(HEAD[:1])
    with pytest.raises(RemoteProtocolError):
        wire.decode(encode(MemberDeparted(0)))
    assert MARK != wire.VERSION and MAX_INDEX == MANY_PROCESSES


def test_what_is_too_long_to_be_read_is_not_written():
    address = "x" * (MAX_CHANGE - len(encode(MemberJoined(3, "dave", ""))))
    assert decode(encode(MemberJoined(3, "dave", address))).address == address
    with pytest.raises(LocalProtocolError, match="give a shorter name or address"):
        encode(MemberJoined(3, "dave", address + "x"))


@pytest.mark.long
@given(changes, st.data())
def test_a_damaged_frame_is_refused_or_a_change_within_the_bounds(change, data):
    damaged = bytearray(encode(change))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for hostile in (bytes(damaged), bytes(damaged[:cut]), bytes(damaged) + data.draw(st.binary(max_size=9))):
        try:
            read = decode(hostile)
        except RemoteProtocolError:
            continue
        assert 0 <= read.index < MAX_INDEX
        if isinstance(read, MemberJoined):
            assert all(isinstance(each, str) for each in (read.name, read.address))
        assert decode(encode(read)) == read


@given(st.binary(max_size=200), st.sampled_from([b"", b"[", b'[1, 2, "', b"[2, "]))
def test_hostile_bytes_are_refused_and_nothing_else_happens(noise, start):
    frame = HEAD + start + noise
    try:
        read = decode(frame)
    except RemoteProtocolError:
        return
    kind, index, *_ = json.loads(frame[1:])
    assert (kind, index) == (1 if isinstance(read, MemberJoined) else 2, read.index)
