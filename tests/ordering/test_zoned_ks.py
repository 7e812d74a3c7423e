"""`zoned-ks`: order end to end in every interleaving of small worlds, the necessary information in each zone,
and what breaks without each part of the argument."""

import random
from pathlib import Path

import pytest

import effort
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.orders import Order
from happened.core.places import Branch, Place
from happened.ordering import create
from happened.ordering.causal.zoned_ks import ZonedKs
from happened.sim.explore import Explorer
from happened.topology import derive, load
from oracles.worlds import explored, explorer, program, routed_programs
from oracles.zones import (
    WORLDS,
    BeforeDelivering,
    OutOfDeliveryOrder,
    Split,
    TwoGateways,
    Walk,
    places,
    random_zones,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"

# World -> messages, programs of messages to one or two others each, and states.
EXPLORED = {
    "two zones, one gateway": (3, 270, 20_868),
    "a line of three zones": (2, 360, 8_330),
    "three zones at one gateway": (2, 360, 7_404),
    "two zones of two beside a gateway": (2, 1_500, 39_164),
}


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("name", EXPLORED)
def test_every_program_is_in_order_end_to_end_in_every_interleaving(name):
    messages, programs, states = EXPLORED[name]
    at = places(WORLDS[name])
    count, found, violations = explored(
        explorer(at, ZonedKs), effort.some(routed_programs(len(at), messages))
    )
    assert (count, violations) == (effort.count(programs), [])
    assert found == states or (count < programs and found > states // 8)


ONE_MORE = {
    "two zones, one gateway": (1_215, 606_837),
    "a line of three zones": (4_320, 676_858),
    "three zones at one gateway": (4_320, 565_186),
    "two zones of two beside a gateway": (35_000, 6_735_692),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_MORE)
def test_every_program_of_one_message_more_is_in_order(name):
    at = places(WORLDS[name])
    found = explored(explorer(at, ZonedKs), routed_programs(len(at), EXPLORED[name][0] + 1))
    assert found == (*ONE_MORE[name], [])


@pytest.mark.parametrize("name", WORLDS)
def test_drawn_programs_of_three_messages_are_in_order(name, dice):
    at = places(WORLDS[name])
    n = len(at)
    drawn = []
    for _ in range(25 if n < 6 else 6):
        sends = []
        for _ in range(3):
            p = dice.randrange(n)
            sends.append((p, dice.sample([q for q in range(n) if q != p], dice.randint(1, 2))))
        drawn.append(program(n, *sends))
    count, states, violations = explored(explorer(at, ZonedKs), drawn)
    assert violations == [] and states > 10 * count


@pytest.mark.parametrize("name", WORLDS)
def test_walks_are_in_order_and_carry_exactly_what_is_necessary_in_each_zone(name, dice):
    at, hops = places(WORLDS[name]), 0
    for _ in range(15):
        walk = Walk((ZonedKs(p, len(at), place=place) for p, place in enumerate(at)), WORLDS[name])
        walk.wander(dice, dice.choice((8, 40)))
        hops += walk.hops
    assert hops > 15 * 4


@pytest.mark.long
def test_walks_through_random_zones_are_in_order_and_carry_what_is_necessary(dice):
    for _ in range(40):
        zones = random_zones(dice, dice.randint(2, 6))
        at = places(zones)
        walk = Walk((ZonedKs(p, len(at), place=place) for p, place in enumerate(at)), zones)
        walk.wander(dice, 30)


@pytest.mark.parametrize("name", ["two-gateways", "departments"])
def test_it_runs_on_the_routes_of_a_topology_file(name, dice):
    routes = derive(load(EXAMPLES / f"{name}.yaml"))
    n = len(routes.names)
    zones = [tuple(map(routes.names.index, block)) for block in routes.blocks]
    walk = Walk((create("zoned-ks", p, n, place=place) for p, place in enumerate(routes.places)), zones)
    walk.wander(dice, 60)


def test_restarted_processes_go_on_as_before(dice):
    class Restarted(ZonedKs):
        def receive(self, message):
            effects = super().receive(message)
            data, held = self.snapshot(), self.pending()
            self.restore(data)
            assert self.snapshot() == data and self.pending() == held
            return effects

    zones = WORLDS["three levels"]
    at = places(zones)
    Walk((Restarted(p, len(at), place=place) for p, place in enumerate(at)), zones).wander(dice, 60)


def test_in_one_zone_it_carries_what_ks_carries(dice):
    n, in_flight = 5, []
    pairs = [(create("zoned-ks", p, n), create("ks", p, n)) for p in range(n)]
    for _ in range(300):
        if in_flight and dice.random() < 0.6:
            d, *messages = in_flight.pop(dice.randrange(len(in_flight)))
            zoned, plain = (machine.receive(m) for machine, m in zip(pairs[d], messages, strict=True))
            assert zoned == plain
            continue
        p = dice.randrange(n)
        to = dice.sample([q for q in range(n) if q != p], 2)
        zoned, plain = (machine.multicast(to, b"").effects for machine in pairs[p])
        assert [s.message.hop for s in zoned] == [s.message for s in plain]
        assert [s.message.size() for s in zoned] == [s.message.size() for s in plain]
        in_flight += [(a.to, a.message, b.message) for a, b in zip(zoned, plain, strict=True)]
        assert pairs[p][0].log_size() == pairs[p][1].log_size()


def faults(exploring, *programs):
    return [(v.kind, v.reason) for v in explored(exploring, programs)[2]]


@pytest.mark.parametrize("machine", [OutOfDeliveryOrder, BeforeDelivering])
def test_gateways_must_forward_at_delivery_and_in_that_order(machine):
    sends, at = program(3, (0, [2]), (0, [2])), places(WORLDS["two zones, one gateway"])
    assert faults(explorer(at, ZonedKs), sends) == []
    assert faults(explorer(at, machine), sends) == [
        ("safety", "2 delivers M(0,2) before M(0,1), sent to it too and causally earlier")
    ]


def test_a_message_must_be_one_hop_to_all_members_it_is_for():
    """0 to 1 and beyond gateway 2: the part for 1 is answered before that for 2 arrives."""
    sends, at = program(4, (0, [1, 3]), (1, [3])), places([(0, 1, 2), (2, 3)])
    assert faults(explorer(at, ZonedKs), sends) == []
    assert faults(explorer(at, Split), sends) == [
        ("safety", "3 delivers M(1,1) before M(0,1), sent to it too and causally earlier")
    ]


@pytest.mark.parametrize("two", [False, True], ids=["one forwards", "both forward"])
def test_one_gateway_forwards_between_two_zones(two):
    def make(me, n):
        return TwoGateways(me, n, choose=lambda carried: 2 + carried.sender % 2 * two)

    found = faults(
        Explorer(make, 6, order=Order.CAUSAL, fifo=False, optimal=False),
        program(6, (0, [1, 4]), (1, [4])),
        program(6, (0, [4, 5]), (4, [5])),
    )
    assert found == (
        [("safety", "4 delivers M(1,1) before M(0,1), sent to it too and causally earlier")] if two else []
    )


def test_what_stays_in_a_zone_is_heard_of_nowhere_else():
    """1 and 2 exchange messages in their zone; what then leaves it through gateway 0 carries nothing."""
    at = places([(0, 1, 2), (0, 3, 4)])
    machines = [ZonedKs(p, 5, place=place) for p, place in enumerate(at)]
    for i in range(6):
        machines[1 + i % 2].multicast([2 - i % 2], b"")  # still on their way
    (up,) = machines[1].multicast([3], b"").effects
    assert up.to == 0 and up.message.size()[0] > 0
    delivered = machines[0].receive(up.message)
    assert [(send.to, send.message.size()) for send in delivered] == [(3, (0, 0))]


def line(me):
    return ZonedKs(me, 3, place=places([(0, 1), (1, 2)])[me])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dests": 0b001}, "not addressed"),
        ({"dests": 0b1100}, "not addressed"),
        ({"sender": 2}, "does not come through"),
        ({"sender": 1, "clock": 9}, "ours"),
        ({"relay": 2}, "does not come through"),
        ({"relay": 7}, "shares no zone"),
        ({"clock": 0}, "no clock"),
        ({"n": 4}, "join"),
        ({"hop": None}, "not a ZonedMessage"),
    ],
)
def test_what_no_correct_peer_sends_is_refused_and_changes_nothing(change, reason):
    (send,) = line(0).multicast([2], b"").effects
    gateway = line(1)
    before = gateway.snapshot()
    with pytest.raises(RemoteProtocolError, match=reason):
        gateway.receive(send.message._replace(**change))
    hop = send.message.hop
    for wrong in (
        hop._replace(sender=1),
        hop._replace(dests=0b01),
        hop._replace(clock=0),
        hop._replace(receiver=0),
    ):
        with pytest.raises(RemoteProtocolError):
            gateway.receive(send.message._replace(hop=wrong))
    assert gateway.snapshot() == before
    (onward,) = gateway.receive(send.message)
    assert onward.to == 2 and gateway.receive(send.message) == []


def test_a_duplicate_of_what_is_held_or_delivered_leaves_no_mark():
    first, second = crossing(2)
    gateway = line(1)
    gateway.receive(second)
    held = gateway.pending()
    assert gateway.receive(second) == [] and gateway.pending() == held and held[0].since == 1
    assert [effect.message.clock for effect in gateway.receive(first)] == [1, 2]
    assert [gateway.receive(message) for message in (second, first)] == [[], []]
    assert gateway._zones[0].carrier.state()[1:] == ((2, 0), ())


def crossing(count):
    """Messages of process 0 to process 2, as gateway 1 gets them."""
    sender = line(0)
    return [send.message for _ in range(count) for send in sender.multicast([2], b"").effects]


def test_a_newcomer_joins_a_zone_or_begins_one(dice):
    """3 comes into the zone of 1 and 2, then 4 behind 3; what was in flight arrives in order."""
    zones = [(0, 1), (1, 2)]
    machines = [ZonedKs(p, 3, place=place) for p, place in enumerate(places(zones))]
    walk = Walk(machines, zones)
    for index, grown in ((3, [(0, 1), (1, 2, 3)]), (4, [(0, 1), (1, 2, 3), (3, 4)])):
        for _ in range(8):
            walk.multicast(dice.randrange(len(walk.machines)), [dice.randrange(len(walk.machines))])
        at = places(grown)
        for machine, place in zip(walk.machines, at, strict=False):
            machine.join(index)
            with pytest.raises(LocalProtocolError, match=f"no route to {index}"):
                machine.multicast([index], b"")
            machine.move(place)
        walk.machines.append(ZonedKs(index, index + 1, place=at[index]))
        walk.zones = [tuple(sorted(zone)) for zone in grown]
        walk.inside += [type(walk.application)() for _ in range(len(grown) - len(walk.inside))]
    walk.wander(dice, 40)


def nested_zones(dice, levels):
    """A zone whose members each lead to one of the next level, as often as there are levels, or to none."""
    made, n = [], dice.randint(2, 3)
    made.append(tuple(range(n)))
    above = list(range(n))
    for _ in range(levels):
        below = []
        for gateway in above:
            new = dice.randint(0 if below else 1, 3)
            if new:
                made.append((gateway, *range(n, n + new)))
                below += range(n, n + new)
                n += new
        above = below
    return made


class GrowingWalk(Walk):
    """Processes join zones or begin some, leave and restart while messages are on their way."""

    def __init__(self, zones, kind):
        at = places(zones)
        super().__init__((kind(p, len(at), place=place) for p, place in enumerate(at)), zones)
        self.kind = kind

    def join(self, dice):
        n = len(self.machines)
        members = [p for p in range(n) if p not in self.gone]
        if dice.random() < 0.5:
            self.zones[dice.randrange(len(self.zones))] += (n,)
        else:
            self.zones.append((dice.choice(members), n))
            self.inside.append(type(self.application)())
        at = places(self.zones)
        for machine, place in zip(self.machines, at, strict=False):
            machine.join(n)
            machine.move(place)
        self.machines.append(self.kind(n, n + 1, place=at[n]))
        for p in self.gone:
            self.machines[n].leave(p)

    def leave(self, dice):
        """One that is no gateway. What is on its way to it is lost."""
        edge = [
            p
            for p in range(len(self.machines))
            if p not in self.gone and sum(p in zone for zone in self.zones) == 1
        ]
        if len(edge) > 2:
            p = dice.choice(edge)
            self.gone.add(p)
            self.in_flight = [(to, message) for to, message in self.in_flight if to != p]
            for machine in self.machines:
                machine.leave(p)

    def restart(self, dice):
        p = dice.randrange(len(self.machines))
        data = self.machines[p].snapshot()
        self.machines[p] = self.kind(p, len(self.machines))
        self.machines[p].restore(data)

    def stroll(self, dice, steps):
        for _ in range(steps):
            if not self.in_flight or dice.random() < 0.4:
                members = [p for p in range(len(self.machines)) if p not in self.gone]
                to = dice.sample(members, dice.randint(1, min(4, len(members))))
                self.multicast(dice.choice(members), to)
            else:
                # The newest packets first, mostly: the old ones are slow.
                i = len(self.in_flight) - 1 - min(int(dice.expovariate(0.5)), len(self.in_flight) - 1)
                self.arrive(i, duplicate=dice.random() < 0.05)


def growing_walk(dice, levels, changes, kind=ZonedKs):
    walk = GrowingWalk(nested_zones(dice, levels), kind)
    walk.stroll(dice, 30)
    for _ in range(changes):
        dice.choice((walk.join, walk.join, walk.leave, walk.restart))(dice)
        walk.stroll(dice, dice.randint(0, 30))
    walk.stroll(dice, 30)
    while walk.in_flight:
        walk.arrive(dice.randrange(len(walk.in_flight)))
    assert {to for _, to in walk.application.undelivered()} <= walk.gone
    assert not any(machine.pending() for machine in walk.machines if machine.me not in walk.gone)
    return walk.hops


@pytest.mark.long
@pytest.mark.parametrize("levels", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_walks_through_nested_zones_that_grow_are_in_order(levels, seed):
    """With two levels of gateways below the top, a message takes up to five hops."""
    hops = [growing_walk(random.Random(f"{seed}.{i}"), levels, 4) for i in range(25)]
    assert min(hops) > 20


def test_walks_through_nested_zones_find_gateways_that_forward_out_of_order():
    with pytest.raises(AssertionError, match="overtakes"):
        for i in range(100):
            growing_walk(random.Random(i), 2, 4, OutOfDeliveryOrder)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_more_walks_through_nested_zones_that_grow_are_in_order(levels, seed):
    for i in range(150):
        growing_walk(random.Random(f"{seed}.{i}"), levels, 8)


def test_a_zone_never_loses_a_member_and_a_gateway_never_leaves():
    gateway = line(1)
    before = gateway.snapshot()
    with pytest.raises(LocalProtocolError, match=r"zone \{1, 2\} of process 1 can only get members"):
        gateway.move(Place(0b001, (Branch(0, 0b001),)))
    with pytest.raises(LocalProtocolError, match="process 1 is a gateway"):
        gateway.leave(1)
    with pytest.raises(LocalProtocolError, match="process 1 is a gateway"):
        line(0).leave(1)
    assert gateway.snapshot() == before
    (send,) = line(0).multicast([2], b"").effects
    without = line(1)
    without.leave(2)
    with pytest.raises(LocalProtocolError, match="has left"):
        without.multicast([2], b"")
    for machine, relayed in ((gateway, [2]), (without, [])):
        effects = machine.receive(send.message)
        assert [effect.to for effect in effects if isinstance(effect, Send)] == relayed


def test_a_snapshot_of_other_zones_is_refused():
    whole, gateway = ZonedKs(1, 3), line(1)
    data = gateway.snapshot().replace(
        gateway.snapshot().split(b'"place":')[1].split(b',"process"')[0], b"null"
    )
    before = whole.snapshot()
    with pytest.raises(LocalProtocolError, match="not those of its place"):
        whole.restore(data)
    assert whole.snapshot() == before
