"""The short way of decoding a usual `ks` frame gives the message, or the refusal, of the general one."""

import time
from random import Random

import pytest

from happened.core.errors import RemoteProtocolError
from happened.ordering import create
from happened.wire import encode_multicast
from happened.wire.ks import _decode_any, decode, decode_plain
from happened.wire.primitives import Reader


def body(frame):
    """Where the message begins: after version, protocol and two lengths."""
    at = 2
    for _ in range(2):
        while frame[at] >= 0x80:
            at += 1
        at += 1
    return at


def outcome(decoder, frame):
    try:
        return decoder(Reader(frame, body(frame), len(frame)), 1024)
    except RemoteProtocolError as error:
        return str(error)


def is_plain(frame):
    try:
        return decode_plain(frame, body(frame), len(frame), 1024) is not None
    except IndexError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 5, 9, 40, 150])
def test_both_ways_agree_on_frames_and_on_damaged_ones(n, dice: Random):
    machines, in_flight, plain, frames = [create("ks", me, n) for me in range(n)], [], 0, 0
    for step in range(150):
        machine = dice.choice(machines)
        size = dice.randint(1, min(n, 5)) if step else 1  # the first is plain wherever any can be
        effects = machine.multicast(dice.sample(range(n), size), b"payload").effects
        in_flight += effects
        for frame in encode_multicast([effect.message for effect in effects]):
            frames += 1
            plain += is_plain(frame)
            for changes in range(4):
                damaged = bytearray(frame)
                for _ in range(changes):
                    at = dice.randrange(body(frame), len(frame))
                    damaged[at] = dice.choice([0, 1, 2, 127, 128, 255, dice.randrange(256)])
                assert outcome(decode, bytes(damaged)) == outcome(_decode_any, bytes(damaged)), damaged.hex()
        dice.shuffle(in_flight)
        while len(in_flight) > 3:
            effect = in_flight.pop()
            machines[effect.to].receive(effect.message)
    assert 0 < plain < frames or n in (2, 150)  # both kinds occur; with n above 127 none is plain


def test_senders_that_are_far_apart_take_the_short_way_too():
    slow, fast, other = (create("ks", me, 3) for me in range(3))
    for _ in range(100_000):
        fast.tick()
    for_slow, for_other = fast.multicast([2, 0], b"").effects
    slow.receive(for_slow.message)
    (answer,) = slow.multicast([2], b"").effects
    for effect in (for_other, answer):
        (frame,) = encode_multicast([effect.message])
        assert is_plain(frame) and outcome(decode, frame) == effect.message
    other.receive(answer.message)
    assert [held.waits_for for held in other.pending()] == [((1, 100_001),)]


def test_a_number_without_end_is_refused_at_once():
    for before in (b"\x03\x00", b"\x03\x00\x01\x02\x02\x02", b"\x03\x00\x09\x02\x02\x01\x02"):
        frame = b"\x01\x01" + b"\x80\x80\x40" + before + b"\xff" * 200_000
        start = time.process_time()
        assert "does not end" in outcome(decode, frame) or "not below" in outcome(decode, frame)
        assert time.process_time() - start < 1


def test_nothing_is_read_beyond_the_end_of_a_frame():
    (effect,) = create("ks", 0, 3).multicast([1], b"").effects
    (frame,) = encode_multicast([effect.message])
    for end in range(body(frame), len(frame)):
        with pytest.raises(RemoteProtocolError):
            decode(Reader(frame + frame, body(frame), end), 1024)
