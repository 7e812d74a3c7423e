"""The vector broadcasts: what they carry against what is known of the past, and their odd cases."""

from itertools import combinations

import pytest

from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.ordering import create
from oracles.history import History


def run(name, n, sends, dice, **options):
    """Yield (history before the send, message) for random broadcasts of a random interleaving."""
    machines = [create(name, p, n, **options) for p in range(n)]
    history, in_flight = History(), []
    for _ in range(sends):
        sender = dice.randrange(n)
        to = [p for p in range(n) if p != sender or dice.random() < 0.5]
        effects = machines[sender].multicast(to, b"").effects
        message = effects[0].message
        past = set(history.past.get(sender, ()))
        history.send(sender, (sender, message.clock), to)
        yield history, past, message
        in_flight += effects
        while in_flight and dice.random() < 0.8:
            d, packet = in_flight.pop(dice.randrange(len(in_flight)))
            for s, clock, _ in machines[d].receive(packet):
                history.deliver(d, (s, clock))


def test_bss_carries_the_last_broadcast_of_everyone(dice):
    for _, past, message in run("bss", 5, 80, dice):
        last = {}
        for kind, (s, t), *_ in past:
            if kind == "send":
                last[s] = max(last.get(s, 0), t)
        assert {(s, t) for s, t, _ in message.units()} == set(last.items())
        assert message.size()[0] == 5 and message.model_bytes() == 20


def test_kim_carries_the_direct_predecessors_and_no_other(dice):
    """A broadcast is a direct predecessor iff no other in the past has it in its own."""
    widths = set()
    for history, past, message in run("kim", 5, 80, dice):
        sent = {event[1] for event in past if event[0] == "send"}
        direct = {m for m in sent if not any(("send", m) in history.before[other] for other in sent)}
        assert {(s, t) for s, t, _ in message.units()} == direct
        assert message.size()[0] == len(direct) and message.model_bytes() == 6 * len(direct)
        widths.add(len(direct))
    assert max(widths) > 1


@pytest.mark.parametrize("name", ["bss", "kim"])
def test_own_broadcasts_with_and_without_oneself_may_be_mixed(name):
    """One to oneself on its way back holds up the replies to a later one that is not."""
    zero, one = create(name, 0, 2), create(name, 1, 2)
    back, there = (send.message for send in zero.multicast([0, 1], b"back").effects)
    (later,) = zero.multicast([1], b"later").effects
    one.receive(there)
    one.receive(later.message)
    (reply,) = one.multicast([0], b"reply").effects
    assert zero.receive(reply.message) == []
    assert zero.pending()[0].waits_for == ((0, 1),)
    assert [effect.payload for effect in zero.receive(back)] == [b"back", b"reply"]


@pytest.mark.parametrize("name", ["bss", "kim"])
def test_a_message_in_our_name_that_we_never_sent_to_ourselves_is_refused(name):
    machine = create(name, 0, 2)
    (send,) = machine.multicast([1], b"").effects
    machine.multicast([0, 1], b"")
    before = machine.snapshot()
    with pytest.raises(RemoteProtocolError, match="never sent"):
        machine.receive(send.message._replace(dests=0b11, clock=3))
    assert machine.snapshot() == before


def test_those_who_left_are_no_longer_part_of_everybody():
    machine = create("bss", 0, 3)
    machine.leave(2)
    assert [send.to for send in machine.multicast([1], b"").effects] == [1]
    with pytest.raises(LocalProtocolError, match="has left"):
        machine.multicast([1, 2], b"")


RING = [{0, 1}, {1, 2}, {2, 0}]


def test_a_chain_through_three_overlapping_groups_is_ordered():
    """a in {0,1}, b in {1,2} after it, c in {2,0} after that: at 0, whose a to itself is slow, c waits."""
    zero, one, two = (create("bss-groups", p, 3, groups=RING) for p in range(3))
    slow, a = (send.message for send in zero.multicast([0, 1], b"a").effects)
    one.receive(a)
    (b,) = one.multicast([2], b"b").effects
    two.receive(b.message)
    (c,) = two.multicast([0], b"c").effects
    assert zero.receive(c.message) == []
    assert zero.pending()[0].waits_for == ((0, 1),)
    assert [effect.payload for effect in zero.receive(slow)] == [b"a", b"c"]


def test_groups_are_checked_where_they_are_given_and_where_they_are_used():
    for groups in ([], [[]], [[0, 3]], [[0, 1], [1, 0]]):
        with pytest.raises(LocalProtocolError):
            create("bss-groups", 0, 3, groups=groups)
    machine = create("bss-groups", 0, 3, groups=RING)
    with pytest.raises(LocalProtocolError, match="not the rest of a group"):
        machine.multicast([1, 2], b"")
    (send,) = machine.multicast([1], b"").effects
    stranger = create("bss-groups", 1, 3, groups=[{0, 1, 2}])
    with pytest.raises(RemoteProtocolError, match="other groups"):
        stranger.receive(send.message)
    outsider = create("bss-groups", 1, 3, groups=RING)
    with pytest.raises(RemoteProtocolError, match="not ours"):
        outsider.receive(send.message._replace(group=2))


def test_a_vector_per_group_grows_with_the_number_of_groups(dice):
    n = 4
    groups = [set(group) for size in (2, 3, 4) for group in combinations(range(n), size)]
    machines = [create("bss-groups", p, n, groups=groups) for p in range(n)]
    for _ in range(400):
        group = dice.choice(groups)
        sender = dice.choice(sorted(group))
        for d, message in machines[sender].multicast(group, b"").effects:
            machines[d].receive(message)
    assert message.size()[0] == sum(map(len, groups))
