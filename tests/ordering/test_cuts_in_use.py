"""Filtering at the cuts of the links in use, where the graph has cycles: static, explored, changing."""

import random
from itertools import combinations

import networkx as nx
import pytest

import effort
from happened.core.errors import LocalProtocolError
from happened.ordering.causal.histories import Histories
from happened.topology import Topology, derive
from oracles import succession
from oracles.places import Graph, links_in_use, random_graph, ring, routed_places
from oracles.walks import ChangingWalk, Observed, Overtaken, Walk, wander
from oracles.worlds import WORLDS, explored, explorer, links, routed_programs

OPTIONS = {"R7": {}, "without R7": {"timestamp_redundancy": False}, "R6.1": {"extended": True}}


def random_system(dice, **options):
    """A graph of up to nine processes with up to five links more than a tree, routed on the tree."""
    n = dice.randint(3, 9)
    graph, tree = random_graph(dice, n, dice.randint(0, 5))
    places = routed_places(graph, tree, in_use=True)
    return Walk(Observed(p, n, place=place, **options) for p, place in enumerate(places))


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_random_systems_are_in_order_hop_by_hop_and_end_to_end(options, seed):
    for i in range(effort.samples(400)):
        dice = random.Random(f"{seed}.{i}")
        walk = random_system(dice, **options)
        wander(walk, dice, dice.choice((8, 40)), busy=dice.choice((0.4, 0.6)))
        walk.finish(dice)


@pytest.mark.long
@pytest.mark.sampled
def test_random_systems_on_derived_routes_are_in_order(seed):
    """Claimed separators included, so that there are forwarders with witnesses: until there was one."""
    witnessed = i = 0
    while i < effort.samples(400) or not witnessed:
        i += 1
        assert i < 4000
        dice = random.Random(f"{seed}.{i}")
        graph = dense(dice, dice.randint(3, 9))
        claimed = [c for c in combinations(graph, 2) if dice.random() < 0.2 and apart(graph, c)]
        routes = derive(Topology(graph, separators=tuple(claimed)))
        witnessed += bool(routes.witnesses)
        n = len(routes.places)
        walk = Walk(Observed(p, n, place=place) for p, place in enumerate(routes.places))
        wander(walk, dice, 30)
        walk.finish(dice)


def dense(dice, n):
    names = [f"v{i}" for i in range(n)]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[dice.randrange(i)], names[i]) for i in range(1, n))
    others = list(combinations(names, 2))
    graph.add_edges_from(dice.sample(others, dice.randint(0, len(others) // 2)))
    return graph


def apart(graph, members):
    rest = nx.restricted_view(graph, members, [])
    return len(rest) > 1 and not nx.is_connected(rest)


def test_rings_and_grids_have_no_cut_of_one_process_and_their_routes_have():
    for name in ("ring", "ring of five", "grid"):
        world = WORLDS[name]
        assert not list(world.graph.separators(1))
        assert list(links_in_use(world.graph.n, world.tree).separators(1))


@pytest.mark.parametrize(
    ("name", "programs"), [("ring", 360), pytest.param("ring of five", 1500, marks=pytest.mark.slow)]
)
def test_two_messages_are_in_order_in_every_program(name, programs):
    world = WORLDS[name]
    found = explored(explorer(world.places(in_use=True)), routed_programs(world.graph.n, 2))
    assert found[0] == programs and found[2] == []


@pytest.mark.parametrize("name", ["ring", "ring of five", "grid", "two gateways", "three gateways"])
def test_drawn_programs_are_in_order_in_every_interleaving(name, dice):
    world = WORLDS[name]
    drawn = list(routed_programs(world.graph.n, 2))
    count, states, violations = explored(explorer(world.places(in_use=True)), dice.sample(drawn, 30))
    assert violations == [] and count == 30 and states > 300


@pytest.mark.slow
def test_three_messages_on_a_ring_are_in_order_in_every_program():
    exploring = explorer(WORLDS["ring"].places(in_use=True))
    count, states, violations = explored(exploring, routed_programs(4, 3))
    assert violations == [] and count == 4320 and states > 400_000


def test_a_process_that_sent_past_the_routes_would_violate_and_is_refused():
    """Ring of four routed as a line: at the cuts of the line, `histories` may not use the fourth link."""
    places = routed_places(ring(4), links(4), in_use=True)
    machines = [Histories(p, 4, place=place) for p, place in enumerate(places)]
    with pytest.raises(LocalProtocolError, match="3 is no neighbour of process 0"):
        machines[0].multicast([3], b"")
    machines[0].multicast([1], b"")


def meeting(way, other):
    """How far along one way to a destination another one joins it."""
    return way.index(next(p for p in other if p in way))


class NobodyIsFit(Exception):
    """There is no process or link for a change that was drawn."""


class Rerouted:
    """A graph with cycles whose routes are derived anew with each change, while messages are on their way.

    Only what the contract of `succession` asks for is flushed: messages of which the way to some destination
    changes, what others may send past them (not if `flushes_of_others` is False), and what a router that
    fails sent or was sent.
    """

    def __init__(self, dice, *, flushes_of_others=True, **options):
        self.dice, self.flushes_of_others = dice, flushes_of_others
        self.graph = dense(dice, dice.randint(4, 7))
        self.names = list(self.graph)
        self.walk = ChangingWalk(len(self.names), lambda n: self.routes().places, **options)
        self.at = self.routes()
        self.log = []

    def routes(self):
        return derive(Topology(self.graph), names=self.names)

    def link(self):
        missing = sorted(map(sorted, nx.non_edges(self.graph)))
        self.graph.add_edge(*self.pick(missing))
        self.change(lambda machines, places: succession.admit(machines, places))

    def unlink(self):
        bridges = set(map(frozenset, nx.bridges(self.graph)))
        self.graph.remove_edge(*self.pick([e for e in self.graph.edges if frozenset(e) not in bridges]))
        self.change(lambda machines, places: succession.admit(machines, places))

    def join(self):
        name, near = self.new_name(), self.dice.sample(list(self.graph), self.dice.randint(1, 3))
        self.graph.add_edges_from((name, other) for other in near)
        newcomer = self.walk.newcomer()

        def admit(machines, places):
            machines.pop(newcomer.me, None)
            succession.admit(machines, places, newcomer)

        self.change(admit)

    def retire(self):
        """Of a process at the edge of the routes. What it was sent has arrived, so that nothing is lost."""
        edge = [i for i, place in self.places() if len({b.block for b in place.branches}) == 1]
        dead = self.pick([i for i in edge if self.can_do_without(i)])
        self.walk.kill(dead)
        self.graph.remove_node(self.names[dead])
        self.change(lambda machines, places: succession.retire(machines, dead, places))

    def succeed_from_a_journal(self):
        dead = self.router(lambda i: True)
        name = self.new_name()
        self.graph.add_edges_from((name, other) for other in list(self.graph[self.names[dead]]))
        successor, journal = self.walk.newcomer(), self.walk.machines[dead]
        self.fail(dead, successor, journal=journal)

    def succeed_by_another_way(self):
        """A neighbour takes over with the histories of all; others are reached by ways not used before."""
        dead = self.router(self.can_do_without)
        near = [self.names.index(name) for name in self.graph[self.names[dead]]]
        self.fail(dead, self.walk.machines[self.dice.choice(near)])

    def fail(self, dead, successor, **source):
        """Until somebody succeeds it, the router's journal takes what arrives, and what it sent goes on."""
        self.graph.remove_node(self.names[dead])

        def succeed(machines, places):
            self.walk.flush(self.dice, lambda s, d: dead in (s, d))
            if successor is self.walk.unplaced:
                machines.pop(successor.me, None)
            effects = succession.succeed(machines, dead, places, successor, **source)
            self.walk.kill(dead)
            self.walk.perform(successor.me, effects)

        self.change(succeed, {dead: successor.me})

    def pick(self, fit):
        if not fit:
            raise NobodyIsFit
        return self.dice.choice(fit)

    def new_name(self):
        self.names.append(f"v{len(self.names)}")
        return self.names[-1]

    def places(self):
        return [(i, place) for i, place in enumerate(self.at.places) if place.branches]

    def can_do_without(self, i):
        rest = nx.restricted_view(self.graph, [self.names[i]], [])
        return len(rest) > 2 and nx.is_connected(rest)

    def router(self, wanted):
        inner = [i for i, place in self.places() if len({b.block for b in place.branches}) > 1]
        return self.pick([i for i in inner if wanted(i)])

    def change(self, act, heirs=None):
        before, self.at = self.at, self.routes()
        moved = self.moved(before, self.at, heirs or {})
        self.flush_messages(moved)
        while True:
            try:
                act(self.walk.living(), self.walk.after())
                break
            except LocalProtocolError as error:
                assert "must deliver" in str(error), error
                learner = int(str(error).split()[1])
                self.walk.arrive(self.dice.choice([i for i, p in self.enumerated() if p[1] == learner]))
        self.walk.unplaced = None

    def moved(self, before, after, heirs):
        """(sender, destination) of all that may be on its way and would be followed by another way: that of
        the sender, or of somebody who knows of it and whose way meets the sender's no earlier than before."""
        gone, n = self.walk.gone | heirs.keys(), len(before.names)
        staying = [i for i in range(n) if i not in gone]
        moved = {(s, d) for s in range(n) for d in range(n) if s in gone}
        for d in staying:
            old, new = {}, {}
            for s in staying:
                way = [before.names.index(name) for name in before.path(before.names[s], before.names[d])]
                old[s] = [heirs.get(p, p) for p in way]
                new[s] = [after.names.index(name) for name in after.path(after.names[s], after.names[d])]
            changed = [x for x in staying if old[x] != new[x]]
            for s in staying:
                others = changed if self.flushes_of_others else {s} & set(changed)
                if any(meeting(new[s], new[x]) >= meeting(old[s], old[x]) for x in others):
                    moved.add((s, d))
        return moved

    def flush_messages(self, moved):
        """Every copy of a message of which one destination's way changes arrives, those for somebody who has
        left too.

        Otherwise a router that has yet to send it to one whose way stays would send it the new way too.
        """
        affected = {
            name
            for name, to in self.walk.application.dests.items()
            if any((name[0], other) in moved for other in to)
        }
        while True:
            first = [i for i, (_, _, m) in self.enumerated() if (m.sender, m.clock) in affected]
            held = [each.message for machine in self.walk.living().values() for each in machine.pending()]
            if not first and not any((m.sender, m.clock) in affected for m in held):
                return
            self.walk.arrive(self.dice.choice(first or range(len(self.walk.in_flight))))

    def enumerated(self):
        return list(enumerate(self.walk.in_flight))

    def run(self, changes, choices):
        self.walk.stroll(self.dice, self.dice.randint(5, 40))
        for _ in range(changes):
            change = self.dice.choice(choices)
            try:
                change(self)
            except NobodyIsFit:
                continue
            self.log.append(change.__name__)
            self.walk.stroll(self.dice, self.dice.randint(0, 30))
        self.walk.finish(self.dice)


CHANGES = [
    Rerouted.link,
    Rerouted.unlink,
    Rerouted.join,
    Rerouted.retire,
    Rerouted.succeed_from_a_journal,
    Rerouted.succeed_by_another_way,
]


def changing(seed, count, changes, options, choices=CHANGES):
    made = set()
    for i in range(count):
        system = Rerouted(random.Random(f"{seed}.{i}"), **options)
        try:
            system.run(changes, choices)
        except Exception as error:
            error.add_note(f"walk {i} of seed {seed}: {system.log}")
            raise
        made.update(system.log)
    assert made == {change.__name__ for change in choices}


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_links_joins_departures_and_failures_in_a_row_with_routes_that_change(options, seed):
    changing(seed, effort.samples(200), 4, options)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_more_changes_in_a_row_with_routes_that_change(options, seed):
    changing(seed, 1000, 8, options)


@pytest.mark.long
@pytest.mark.parametrize(
    "choices",
    [
        [Rerouted.link, Rerouted.join],
        [Rerouted.unlink],
        pytest.param([Rerouted.retire], marks=pytest.mark.slow),
        pytest.param([Rerouted.succeed_from_a_journal], marks=pytest.mark.slow),
        [Rerouted.succeed_by_another_way],
    ],
    ids=["links and joins", "unlink", "retire", "journal", "another way"],
)
def test_who_gets_a_link_that_was_not_in_use_must_learn(monkeypatch, choices):
    """Whatever changes the routes: without it, messages overtake. Soon, if little is flushed."""
    monkeypatch.setattr(succession, "_with_new_links", lambda *arguments: [])
    with pytest.raises(Overtaken):
        changing(0, 20_000, 6, {"flushes_of_others": False}, choices)


@pytest.mark.parametrize("flushed", [True, False])
def test_a_multicast_arrives_everywhere_before_the_way_to_one_of_its_destinations_changes(flushed):
    """0 - 1 - 2 - 4 and 1 - 3; then 3 is reached by 4. From 0 to 2 and 3: what 1 sent to 2 is slow."""
    graph = Graph(5, [(0, 1), (1, 2), (2, 4), (1, 3), (4, 3)])
    before, after = [(0, 1), (1, 2), (2, 4), (1, 3)], [(0, 1), (1, 2), (2, 4), (4, 3)]
    places = routed_places(graph, before, in_use=True)
    walk = Walk(Observed(p, 5, place=place) for p, place in enumerate(places))
    walk.multicast(0, [2, 3])
    walk.arrive(0)
    walk.arrive(next(i for i, (_, d, _) in enumerate(walk.in_flight) if d == (2 if flushed else 3)))
    if flushed:
        walk.arrive(0)
    succession.admit(
        dict(enumerate(walk.machines)), dict(enumerate(routed_places(graph, after, in_use=True)))
    )
    if flushed:
        walk.finish(random.Random(1))
    else:
        with pytest.raises(AssertionError, match="twice at 3"):
            walk.finish(random.Random(1))
