"""What a tracker adds to frames and payloads: the same bytes as ever, and hostile ones are refused."""

from random import Random

import pytest

from happened import wire
from happened.core.errors import RemoteProtocolError
from happened.net.engine import Engine
from happened.wire import membership
from happened.wire.piggybacks import MARK, Envelope, mark, only_for, open_sealed, seal, unmark

ENVELOPE = Envelope(300, {1: b"\x05", 299: b"abc"}, b"hello")
FRAME = "fe0701010f020200020202000002010102090a6869"
SEALED = bytes.fromhex("ac0202010105ab020361626368656c6c6f")


def test_a_sealed_payload_is_written_in_the_same_bytes():
    assert seal(ENVELOPE) == SEALED and open_sealed(SEALED) == ENVELOPE
    assert open_sealed(only_for(299, SEALED)) == Envelope(300, {299: b"abc"}, b"hello")
    assert open_sealed(only_for(7, SEALED)) == Envelope(300, {}, b"hello")


def test_a_frame_of_a_tracked_node_is_written_in_the_same_bytes():
    """The first two bytes are the mark and the number of p1."""
    engine = Engine("a", ["a", "b"], "ks", tracker="p1")
    engine.tracking.relevant("x")
    engine.multicast([1], b"hi")
    engine.release(engine.cut())
    ((_, frame),) = engine.outboxes[1].after(0, 1000)
    assert frame.hex() == FRAME
    number, inner = unmark(frame)
    assert (number, mark(number, inner)) == (7, frame)
    message, size = wire.decode(inner)
    assert size == len(inner)
    envelope = open_sealed(message.payload)
    assert (envelope.n, set(envelope.piggybacks), envelope.payload) == (2, {1}, b"hi")


def test_the_mark_is_nobody_elses():
    assert MARK not in (wire.VERSION, membership.MARK)
    with pytest.raises(RemoteProtocolError, match="version 254"):  # what a node before trackers says
        wire.decode(bytes((MARK, 7)) + b"\x00" * 8)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends early"),
        (b"\xff\xff\xff\xff\x7f", "is not below"),
        (b"\x02\x03", "is not below"),
        (b"\x02\x01\x02\x00", "is not below"),
        (b"\x02\x01\x00\x09ab", "is not below"),
        (b"\x02\x02\x01\x00\x00\x00", "not in order"),
        (b"\x02\x02\x01\x00\x01\x00", "not in order"),
    ],
)
def test_what_is_no_sealed_payload_is_refused(data, why):
    with pytest.raises(RemoteProtocolError, match=why):
        open_sealed(data)


def test_damaged_payloads_raise_nothing_else(dice: Random):
    for _ in range(5000):
        damaged = bytearray(SEALED)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            opened = open_sealed(bytes(damaged[: dice.randint(0, len(damaged))]))
        except RemoteProtocolError:
            continue
        assert open_sealed(seal(opened)) == opened
