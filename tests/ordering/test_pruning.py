"""Jang, Park, Cho & Yoon (1997): the same units as `ks` on every edge, four kinds of redundancy counted, a
rule that is never needed."""

import pytest

import effort
from happened.ordering import create
from happened.sim.explore import explore
from oracles.network import Network
from oracles.published import RuleEightPruning


@pytest.mark.sampled
@pytest.mark.long
def test_rule_8_never_fires(some_programs):
    result = explore(RuleEightPruning, 3, 3, optimal=False)
    assert result.programs == effort.count(598) and result.violations == ()


@pytest.mark.parametrize(("n", "largest"), [(4, 4), (8, 1), (12, 12)], ids=["small", "unicast", "wide"])
def test_every_edge_carries_the_units_of_ks(n, largest, dice):
    """The same schedule for both: same units on each copy, same log after each event."""
    ours, theirs = ([create(name, p, n) for p in range(n)] for name in ("pruning", "ks"))
    in_flight, compared = [], 0
    for _ in range(400):
        if in_flight and dice.random() < 0.7:
            d, message, reference = in_flight.pop(dice.randrange(len(in_flight)))
            # Messages released together are concurrent: either order is right.
            assert sorted(ours[d].receive(message)) == sorted(theirs[d].receive(reference))
            assert ours[d].log_units() == theirs[d].log_units()
            continue
        sender, to = dice.randrange(n), dice.sample(range(n), dice.randint(1, largest))
        pairs = zip(
            ours[sender].multicast(to, b"").effects, theirs[sender].multicast(to, b"").effects, strict=True
        )
        for send, reference in pairs:
            assert send.message.units() == reference.message.units()
            compared += len(send.message.units())
            in_flight.append((send.to, send.message, reference.message))
    assert compared > 100


def test_each_class_of_redundancy_in_its_pattern_of_figure_1():
    """Types 2 to 5 of the text, each seen from the process that prunes."""
    net = Network([create("pruning", p, 3) for p in range(3)])
    first = net.multicast(0, [1, 2])
    net.arrive(2, first[2])
    assert net.machines[2].pruned() == counts(just_delivered=1)
    net.arrive(1, net.multicast(2, [1])[1])  # held until the first is there
    net.arrive(1, first[1])
    # The reply of 2 says that the first has reached 2: what 1 knew of that is redundant.
    assert net.machines[1].pruned() == counts(just_delivered=2, already_delivered=1)

    net = Network([create("pruning", p, 3) for p in range(3)])
    first = net.multicast(0, [1, 2])
    net.arrive(2, first[2])
    net.multicast(0, [1])
    assert net.machines[0].pruned() == counts(just_replaced=1)
    # The next message to 2 tells of the second to 1, which has replaced the first there.
    net.arrive(2, net.multicast(0, [2])[2])
    assert net.machines[2].pruned() == counts(just_delivered=2, already_replaced=1)


def counts(just_delivered=0, already_delivered=0, just_replaced=0, already_replaced=0):
    return {
        "just delivered": just_delivered,
        "already delivered": already_delivered,
        "just replaced": just_replaced,
        "already replaced": already_replaced,
    }


def test_every_unit_that_a_delivery_ends_is_counted_once(dice):
    """Sets of units before and after say how many were pruned; the counters must agree."""
    n = 6
    net = Network([create("pruning", p, n) for p in range(n)])
    pruned = 0
    for _ in range(200):
        net.multicast(dice.randrange(n), dice.sample(range(n), dice.randint(1, n)))
        while net.in_flight and dice.random() < 0.75:
            d, message = net.in_flight[dice.randrange(len(net.in_flight))]
            machine, itself = net.machines[d], (message.sender, message.clock, d)
            known, before = machine.log_units(), machine.pruned()
            if len(net.arrive(d, message)) != 1:
                continue
            told = {unit for unit in message.units() if unit[2] != d}
            told |= {(*itself[:2], x) for x in message.to}
            left = machine.log_units()
            spent = {name: count - before[name] for name, count in machine.pruned().items()}
            assert spent["just delivered"] == 1 and itself in told and spent["just replaced"] == 0
            merged = spent["already delivered"] + spent["already replaced"]
            assert merged == len(known - left - {itself}) + len(told - left - {itself})
            pruned += merged
    assert pruned > 100
