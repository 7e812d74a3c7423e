"""`topological`: routes, hop messages, filters and witnesses, one at a time."""

import pytest

from happened.core.destinations import unpack
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.places import Branch, Place, Separator, alone
from happened.ordering.causal.histories import Histories
from happened.ordering.causal.topological import Topological
from oracles.places import Graph, path, random_graph, routed_places
from oracles.succession import unforwarded
from oracles.walks import Observed, Walk, wander
from oracles.worlds import WORLDS

# The report's chapter 5: p1 at node n1, routers d1 and d2 side by side, d3, node n3, p6.
P1, N1, D1, D2, D3, N3, P6 = range(7)
CHAPTER_5 = Graph(7, [(P1, N1), (N1, D1), (N1, D2), (D1, D3), (D2, D3), (D1, D2), (D3, N3), (N3, P6)])
ROUTE = [(P1, N1), (N1, D1), (D1, D3), (D1, D2), (D3, N3), (N3, P6)]


def chain(machines, p, to):
    """The addresses of the hop messages of one multicast, in order, as (next, watching)."""
    todo, addresses = [machines[p].multicast(to, b"").effects], []
    while todo:
        sends = [effect for effect in todo.pop(0) if isinstance(effect, Send)]
        if sends:
            message = sends[0].message
            addresses.append((set(unpack(message.next)), set(unpack(message.watching))))
        todo += [machines[send.to].receive(send.message) for send in sends]
    return addresses


def test_a_multicast_becomes_the_chain_of_chapter_5():
    places = routed_places(CHAPTER_5, ROUTE, witnesses={D1: {D2}}, reports=False)
    machines = [Topological(p, 7, place=place) for p, place in enumerate(places)]
    assert chain(machines, P1, [P1, P6]) == [
        ({N1}, set()),
        ({D1}, {D2}),
        ({D3}, set()),
        ({N3}, set()),
        ({P6}, set()),
    ]


def test_a_forwarder_reports_to_its_witnesses():
    places = routed_places(CHAPTER_5, ROUTE, witnesses={D1: {D2}})
    machines = [Topological(p, 7, place=place) for p, place in enumerate(places)]
    assert chain(machines, P1, [P6])[1:3] == [({D1}, {D2}), ({D3}, {D2})]
    assert chain(machines, P6, [P1])[2:4] == [({D1}, {D2}), ({N1}, {D2})]


def test_a_witness_keeps_what_its_forwarder_has_not_been_seen_to_forward():
    places = routed_places(CHAPTER_5, ROUTE, witnesses={D1: {D2}})
    machines = [Topological(p, 7, place=place) for p, place in enumerate(places)]
    (up,) = machines[P1].multicast([P6], b"x").effects
    to_d1, to_d2 = machines[N1].receive(up.message)
    assert (to_d1.to, to_d2.to) == (D1, D2)
    machines[D2].receive(to_d2.message)
    assert [left.carried.payload for left in unforwarded(machines[D2], D1)] == [b"x"]
    report = next(send for send in machines[D1].receive(to_d1.message) if send.to == D2)
    machines[D2].receive(report.message)
    assert unforwarded(machines[D2], D1) == ()
    # What ends at the forwarder itself is not to be forwarded.
    (up,) = machines[P1].multicast([D1], b"y").effects
    copies = machines[N1].receive(up.message)
    machines[D2].receive(copies[1].message)
    assert unforwarded(machines[D2], D1) == ()


def test_a_router_leaves_out_what_stays_on_the_other_side():
    """1 forwards between 0 and 2: of what it said to 0, nothing goes to 2."""
    for separators, entries in (([(1,)], 0), ([], 1)):
        place = routed_places(path(3), [(0, 1), (1, 2)], separators=separators)[1]
        machine = Topological(1, 3, place=place)
        machine.multicast([0], b"")
        (send,) = machine.multicast([2], b"").effects
        assert len(send.message.entries) == entries == send.message.size()[0]


def test_in_one_zone_it_carries_what_histories_carries(dice):
    n, in_flight = 5, []
    pairs = [(Topological(p, n), Histories(p, n)) for p in range(n)]
    for _ in range(200):
        if in_flight and dice.random() < 0.6:
            d, *messages = in_flight.pop(dice.randrange(len(in_flight)))
            effects = [machine.receive(m) for machine, m in zip(pairs[d], messages, strict=True)]
            assert effects[0] == effects[1]
            continue
        p = dice.randrange(n)
        to = dice.sample([q for q in range(n) if q != p], 2)
        hops, plain = (machine.multicast(to, b"").effects for machine in pairs[p])
        assert [send.message.entries for send in hops] == [send.message.entries for send in plain]
        in_flight += [(a.to, a.message, b.message) for a, b in zip(hops, plain, strict=True)]


@pytest.mark.long
def test_filtering_at_more_separators_makes_timestamps_smaller(dice):
    """On a line of processes, all else being the same."""
    seed, means = dice.randrange(2**32), []
    for separators in ([], [(3,)], [(1,), (2,), (3,), (4,), (5,)]):
        places = routed_places(path(7), [(i, i + 1) for i in range(6)], separators=separators)
        walk = Walk(Observed(p, 7, place=place) for p, place in enumerate(places))
        walk_dice = type(dice)(seed)
        wander(walk, walk_dice, 300)
        means.append(sum(walk.carried) / len(walk.carried))
    assert means[2] < means[1] < means[0]


@pytest.mark.long
@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(
    "options", [{}, {"extended": True}, {"timestamp_redundancy": False}], ids=["R7", "R6.1", "without R7"]
)
def test_random_walks_are_in_order_hop_by_hop_and_end_to_end(name, options, dice):
    world = WORLDS[name]
    for _ in range(15):
        machines = [Observed(p, world.graph.n, place=pl, **options) for p, pl in enumerate(world.places())]
        wander(Walk(machines), dice, dice.choice((6, 40)))


@pytest.mark.parametrize("extra", [0, 2, pytest.param(5, marks=pytest.mark.slow)])
def test_random_walks_on_random_graphs_are_in_order_hop_by_hop_and_end_to_end(extra, dice):
    for _ in range(60):
        n = dice.randint(4, 9)
        graph, tree = random_graph(dice, n, extra)
        machines = [Observed(p, n, place=place) for p, place in enumerate(routed_places(graph, tree))]
        wander(Walk(machines), dice, dice.choice((6, 40)))


def test_restarted_processes_go_on_as_before(dice):
    """Every machine is restored from its snapshot after every step."""

    class Restarted(Observed):
        def _again(self):
            data = self.snapshot()
            self.restore(data)
            assert self.snapshot() == data

        def receive(self, message):
            effects = super().receive(message)
            self._again()
            return effects

        def multicast(self, to, payload):
            made = super().multicast(to, payload)
            self._again()
            return made

    world = WORLDS["two gateways"]
    wander(Walk(Restarted(p, 6, place=place) for p, place in enumerate(world.places())), dice, 60)


LINE = routed_places(path(3), [(0, 1), (1, 2)])[1]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (LINE._replace(neighbours=0b001), "2 is not one"),
        (LINE._replace(neighbours=0b111), "other processes"),
        (LINE._replace(neighbours=0b1101), "out of 3"),
        (LINE._replace(branches=(Branch(0, 0b001), Branch(2, 0b101))), "no other branch"),
        (LINE._replace(branches=(Branch(0, 0b011),)), "no other branch"),
        (LINE._replace(branches=(Branch(0, 0b100),)), "must reach that process"),
        (LINE._replace(branches=(Branch(0, 0b001, 0, 0b1000),)), "3 is not one"),
        (LINE._replace(neighbours=0b001, branches=(), witnesses=0b100), "2 is not"),
        (LINE._replace(separators=(Separator(0b001, (0b010, 0b100)),)), "not at {0}"),
        (LINE._replace(separators=(Separator(0b010, (0b001, 0b101)),)), "0 is on two sides of separator {1}"),
        (LINE._replace(separators=(Separator(0b010, (0b001,)),)), "2 is on no side of separator {1}"),
    ],
)
def test_a_place_that_no_process_can_have_is_refused(place, reason):
    with pytest.raises(LocalProtocolError, match=reason.replace("{", r"\{").replace("}", r"\}")):
        Topological(1, 3, place=place)


def test_who_has_no_route_cannot_be_sent_to():
    machine = Topological(0, 3, place=Place(0b010, (Branch(1, 0b010),)))
    before = machine.snapshot()
    with pytest.raises(LocalProtocolError, match="no route to 2"):
        machine.multicast([1, 2], b"")
    assert machine.snapshot() == before
    machine.join(3)
    with pytest.raises(LocalProtocolError, match="no route to 3"):
        machine.multicast([3], b"")


def test_without_a_topology_a_newcomer_is_a_neighbour():
    machine = Topological(0, 2)
    machine.join(2)
    assert machine.place == alone(0, 3)
    assert [send.to for send in machine.multicast([1, 2], b"").effects] == [1, 2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"next": 0b100}, "not addressed"),
        ({"relay": 1}, "come back"),
        ({"sender": 1, "clock": 1}, "ours"),
        ({"relay": 9}, "no relay"),
        ({"hop": 0}, "no relay"),
        ({"watching": 0b010}, "twice"),
        ({"next": 0, "watching": 0b010}, "on to nobody"),
        ({"watching": 0b001}, "its own relay"),
        ({"dests": 0}, "for nobody"),
        ({"dests": 0b11000}, "for others"),
        ({"n": 9}, "join"),
    ],
)
def test_what_no_correct_peer_sends_is_refused_and_changes_nothing(change, reason):
    (send,) = Topological(0, 3, place=routed_places(path(3), [(0, 1), (1, 2)])[0]).multicast([2], b"").effects
    machine = Topological(1, 3, place=LINE)
    before = machine.snapshot()
    with pytest.raises(RemoteProtocolError, match=reason):
        machine.receive(send.message._replace(**change))
    assert machine.snapshot() == before
    assert machine.receive(send.message)


def test_a_message_from_where_there_is_no_route_is_refused():
    """It could only be sent everywhere, back too."""
    (send,) = Topological(0, 3).multicast([1], b"").effects
    machine = Topological(1, 3, place=Place(0b101, (Branch(2, 0b100),)))
    with pytest.raises(RemoteProtocolError, match="no route"):
        machine.receive(send.message)
