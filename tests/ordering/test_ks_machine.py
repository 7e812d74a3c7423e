"""What is particular to `ks` as a machine; what it shares with every protocol is in tests/contract."""

import pytest

from contract.drive import Dice, busy
from happened.core.errors import RemoteProtocolError
from happened.ordering import create, protocols


@pytest.mark.parametrize("n", [1, 4, 66])
def test_entries_are_counted_once_whether_all_are_told_or_the_receiver_alone(n, seed):
    made = busy(protocols()["ks"], n, Dice(seed), sends=60).made
    assert len(made) >= 60
    for message in made:
        keys = {entry[:2] for entry in message.about_others()} | set(message.waits())
        assert message.size()[0] == len(keys)


def test_a_message_that_depends_on_one_we_never_sent_is_refused():
    ghost, relay, real = create("ks", 1, 3), create("ks", 0, 3), create("ks", 1, 3)
    (send,) = ghost.multicast([0], b"").effects
    relay.receive(send.message)
    (send,) = relay.multicast([1], b"").effects
    with pytest.raises(RemoteProtocolError, match="never sent"):
        real.receive(send.message)


def test_pending_says_what_is_missing_and_since_which_event():
    zero, one, two = (create("ks", p, 3) for p in range(3))
    first = {e.to: e.message for e in zero.multicast([1, 2], b"").effects}
    one.receive(first[1])
    (reply,) = one.multicast([2], b"").effects
    two.tick()
    assert two.receive(reply.message) == []
    (held,) = two.pending()
    assert held.message == reply.message
    assert held.waits_for == ((0, 1),)
    assert held.since == 2
    assert [(e.sender, e.clock) for e in two.receive(first[2])] == [(0, 1), (1, 1)]
    assert two.pending() == []


def test_a_lie_about_a_message_never_sent_to_us_does_not_wedge_a_later_delivery():
    """RCV(1) waits for t <= SR[s]; a peer that names M(0,1), which went elsewhere, is outlived by M(0,2)."""
    zero, one, two = (create("ks", p, 3) for p in range(3))
    (elsewhere,) = zero.multicast([1], b"").effects
    one.receive(elsewhere.message)
    (send,) = one.multicast([2], b"").effects
    lie = send.message._replace(wait_for=1)  # lane 0: M(0, 1)
    assert two.receive(lie) == []
    (second,) = zero.multicast([2], b"").effects
    assert [(e.sender, e.clock) for e in two.receive(second.message)] == [(0, 2), (1, 1)]
