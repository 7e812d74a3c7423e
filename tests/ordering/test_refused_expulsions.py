"""Why some protocols let nobody be expelled: what waits for a lost message waits for ever."""

import pytest

from happened.core.errors import LocalProtocolError
from happened.net.engine import Engine
from happened.ordering import create, protocols

REFUSING = [
    name
    for name, facts in protocols().items()
    if facts.membership.departures and not facts.membership.expulsions
]
SERIALIZED = [name for name in REFUSING if protocols()[name].assumes.serialized]


def test_vectors_of_ses_count_messages_that_only_a_lost_one_told_of():
    """1 sends u to 0; 0 sends y to 3, which is lost, and then w to 2; 2 sends b to 3. It must follow y, whose
    vector counts u: 3 would have learnt of u from y alone, and does not go on when 0 has ended."""
    machines = [create("ses", p, 4) for p in range(4)]
    (u,) = machines[1].multicast([0], b"").effects
    assert len(machines[0].receive(u.message)) == 1
    machines[0].multicast([3], b"")
    (w,) = machines[0].multicast([2], b"").effects
    assert len(machines[2].receive(w.message)) == 1
    (b,) = machines[2].multicast([3], b"").effects
    assert machines[3].receive(b.message) == []
    assert machines[3].expel(0) + machines[3].close(0) == []
    (held,) = machines[3].pending()
    assert (held.message.sender, held.message.clock) == (2, 1)
    assert 1 in {sender for sender, _ in held.waits_for}, "it waits for u, which was never for it"


@pytest.mark.parametrize("protocol", SERIALIZED)
def test_a_chain_of_serialized_sends_ends_at_a_lost_message(protocol):
    """0 sends y, which 1 has and 2 has not; 1 sends b, which names y alone."""
    zero, one, two = (create(protocol, p, 3) for p in range(3))
    to_one, _ = zero.multicast([1, 2], b"").effects
    assert to_one.to == 1 and len(one.receive(to_one.message)) == 1
    one.follow(zero.latest)
    b = next(effect for effect in one.multicast([0, 2], b"").effects if effect.to == 2)
    assert two.receive(b.message) == []
    assert two.expel(0) + two.close(0) == []
    (held,) = two.pending()
    assert held.waits_for == ((0, 1),)


@pytest.mark.parametrize("protocol", REFUSING)
def test_a_node_refuses_with_the_reason_that_the_facts_give(protocol):
    engine = Engine("p0", ["p0", "p1", "p2"], protocol)
    reason = protocols()[protocol].membership.at_expulsion
    with pytest.raises(LocalProtocolError, match=f"'p1' cannot be expelled from {protocol}: {reason}"):
        engine.leave("p1")
    assert not engine.is_dirty and not engine.gone
