"""Outbox and inbox: nothing lost, repeated or shown too early, whatever the network does."""

from random import Random

import pytest

from happened.core.errors import RemoteProtocolError
from happened.net.link import Inbox, Outbox


def test_frames_are_seen_only_once_they_are_released():
    outbox = Outbox()
    outbox.put(b"one")
    outbox.put(b"two")
    assert outbox.after(0, 100) == []
    outbox.release(1)
    assert outbox.after(0, 100) == [(1, b"one")]
    outbox.release(2)
    assert outbox.after(0, 100) == [(1, b"one"), (2, b"two")]
    assert outbox.after(1, 100) == [(2, b"two")]


def test_a_long_frame_leaves_even_if_it_exceeds_what_was_asked_for():
    outbox = Outbox(0, [b"x" * 50, b"y"])
    assert outbox.after(0, 10) == [(1, b"x" * 50)]


def test_acknowledged_frames_are_forgotten_and_not_asked_for_again():
    outbox = Outbox(0, [b"one", b"two", b"three"])
    outbox.acknowledge(2)
    assert (outbox.acknowledged, len(outbox), outbox.bytes) == (2, 1, 5)
    outbox.acknowledge(1)  # late, and nothing new
    assert outbox.acknowledged == 2
    assert outbox.after(1, 100) == [(3, b"three")]


def test_nobody_acknowledges_what_was_not_sent():
    outbox = Outbox()
    outbox.put(b"not released")
    with pytest.raises(RemoteProtocolError, match="frame 1 is acknowledged"):
        outbox.acknowledge(1)


def test_an_inbox_takes_each_number_once_and_refuses_gaps():
    inbox = Inbox(received_through=4)
    assert not inbox.is_new(3)
    assert inbox.is_new(5)
    with pytest.raises(RemoteProtocolError, match="frame 7 follows 4"):
        inbox.is_new(7)


def test_every_frame_arrives_once_and_in_order_however_often_the_connection_breaks(dice: Random):
    """The oracle is the list of what was put in; the connection forgets all it knows when it breaks."""
    for _ in range(200):
        outbox, inbox, sent, arrived = Outbox(), Inbox(), [], []
        on_the_wire, position = [], 0
        while len(arrived) < 40:
            act = dice.random()
            if act < 0.3 and len(sent) < 40:
                sent.append(bytes([len(sent)]))
                outbox.put(sent[-1])
            elif act < 0.5:
                outbox.release(dice.randint(outbox.released, outbox.last))
            elif act < 0.7:
                frames = outbox.after(position, dice.randint(1, 5))
                on_the_wire += frames
                position = frames[-1][0] if frames else position
            elif act < 0.9 and on_the_wire:
                number, frame = on_the_wire.pop(0)
                if inbox.is_new(number):
                    inbox.received_through += 1
                    arrived.append(frame)
            elif act < 0.93:
                inbox.durable = dice.randint(inbox.durable, inbox.received_through)
                outbox.acknowledge(inbox.durable)
            elif act < 0.97:  # broken: what was on the wire is lost, the receiver says what it has
                on_the_wire.clear()
                outbox.acknowledge(inbox.durable)
                position = inbox.durable
            else:  # the receiver was killed: what was not durable is gone
                on_the_wire.clear()
                inbox = Inbox(inbox.durable)
                del arrived[inbox.durable :]
                outbox.acknowledge(inbox.durable)
                position = inbox.durable
            outbox.release(outbox.last if len(sent) == 40 else outbox.released)
        assert arrived == sent
