"""`phased` in groups that share three members: two messages of one phase can wait for each other."""

import pytest

from happened.core.effects import Deliver, Send
from happened.ordering import create


@pytest.mark.xfail(
    strict=True,
    reason="not live where groups share three members: at 0, M(2,2) and M(1,2) each wait for the other's "
    "sender to pass a phase of their own group, which only the other does; the facts promise broadcasts",
)
def test_two_groups_with_three_common_members_do_not_wait_for_each_other():
    machines = [create("phased", p, 4, groups=[[0, 1, 2], [0, 1, 2, 3]]) for p in range(4)]
    delivered = [set() for _ in machines]
    links = []

    def perform(process, effects):
        links.extend((e.to, e.message) for e in effects if isinstance(e, Send))
        delivered[process] |= {(e.sender, e.clock) for e in effects if isinstance(e, Deliver)}

    for sender, to in ((2, [0, 1, 3]), (2, [0, 1]), (1, [0, 2]), (1, [0, 2, 3])):
        perform(sender, machines[sender].multicast(to, b"").effects)
    while links:
        to, message = links.pop(0)
        perform(to, machines[to].receive(message))
    assert delivered[0] == {(2, 1), (2, 2), (1, 1), (1, 2)}
