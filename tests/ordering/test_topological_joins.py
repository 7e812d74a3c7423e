"""Joins and new links, the report's §4.4 (i) to (iii): what must be learnt, by whom; what fails without."""

import random

import pytest

import effort
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.ordering.causal.extended_history import ExtendedHistory
from happened.ordering.causal.histories import Histories
from happened.ordering.causal.topological import Topological
from oracles.history import History as Truth
from oracles.places import Graph, hop_places, path, random_graph, routed_places
from oracles.printed_histories import with_history
from oracles.succession import admit, adopt, awaits
from oracles.walks import Observed, Overtaken, Walk, wander


def by_index(items):
    return dict(enumerate(items))


class HopWalk:
    """Messages to neighbours, judged by sets of events."""

    def __init__(self, machines):
        self.machines = dict(machines)
        self.truth, self.in_flight = Truth(), []

    def multicast(self, p, to):
        clock, effects = self.machines[p].multicast(to, b"")
        self.truth.send(p, (p, clock), to)
        self.in_flight += [(e.to, e.message) for e in effects if isinstance(e, Send)]

    def arrive(self, i):
        d, message = self.in_flight.pop(i)
        for sender, clock, _ in self.machines[d].receive(message):
            if others := self.truth.overtaken_by(d, (sender, clock)):
                raise Overtaken("hop", d, (sender, clock), others)
            self.truth.deliver(d, (sender, clock))

    def wander(self, dice, sends):
        while sends:
            if self.in_flight and dice.random() < 0.5:
                # The newest packets first, mostly: the old ones are slow.
                i = len(self.in_flight) - 1 - min(int(dice.expovariate(0.8)), len(self.in_flight) - 1)
                self.arrive(i)
                continue
            sends -= 1
            p = dice.choice(sorted(self.machines))
            near = [q for q in self.machines if self.machines[p].place.neighbours >> q & 1]
            self.multicast(p, dice.sample(near, dice.randint(1, min(2, len(near)))))

    def finish(self, dice):
        while self.in_flight:
            self.arrive(dice.randrange(len(self.in_flight)))
        assert not self.truth.undelivered()
        assert not any(machine.pending() for machine in self.machines.values())


def from_nobody(machines, places, newcomer=None):
    """The uncorrected form: move, and learn nothing."""
    if newcomer is not None:
        for machine in machines.values():
            machine.join(newcomer.me)
        machines[newcomer.me] = newcomer
    for p, machine in machines.items():
        machine.move(places[p])


def invalidated(before, after):
    """The members of separators past which the new graph leads, as the report counts them."""
    now = {s.members: s.components for place in after.values() for s in place.separators}
    members = 0
    for separator in {s for place in before.values() for s in place.separators}:
        parts = now.get(separator.members)
        if parts is None or any(
            sum(bool(side & part) for side in separator.components) > 1 for part in parts
        ):
            members |= separator.members
    return members


def from_one_member(machines, places, newcomer=None):
    """What the report can be read to ask for: the history of one member of the separator."""
    before = {p: machine.place for p, machine in machines.items()}
    members = [p for p in machines if invalidated(before, places) >> p & 1]
    told = machines[members[0]].history() if members else ()
    learning = [newcomer] if newcomer is not None else []
    if newcomer is None:
        learning += [m for p, m in machines.items() if places[p].neighbours & ~before[p].neighbours]
    if any(awaits(machine, told) for machine in learning):
        raise LocalProtocolError(f"process {learning[0].me} must deliver")
    for machine in learning:
        adopt(machine, told)
    from_nobody(machines, places, newcomer)


def when_ready(walk, change, *arguments):
    """Change the places once those at a new link have delivered what they must."""
    while True:
        try:
            return change(walk.machines, *arguments)
        except LocalProtocolError as error:
            assert "must deliver" in str(error)
            learner = int(str(error).split()[1])
            walk.arrive(next(i for i, (d, _) in enumerate(walk.in_flight) if d == learner))


def changed_walk(dice, change, *, link):
    """Random traffic, a new link or a newcomer with links to two or three processes, and more traffic."""
    n = dice.randint(4, 6)
    graph, _ = random_graph(dice, n, dice.randint(0, 2))
    walk = HopWalk(by_index(Histories(p, n, place=place) for p, place in enumerate(hop_places(graph))))
    walk.wander(dice, dice.randint(4, 12))
    if link:
        missing = [(a, b) for a in range(n) for b in range(a) if {a, b} not in [set(e) for e in graph.edges]]
        if not missing:
            return
        after = Graph(n, [*graph.edges, dice.choice(missing)])
        when_ready(walk, change, by_index(hop_places(after)))
    else:
        after = Graph(n + 1, [*graph.edges, *((n, q) for q in dice.sample(range(n), dice.randint(2, 3)))])
        when_ready(walk, change, by_index(hop_places(after)), Histories(n, n + 1))
    walk.wander(dice, dice.randint(4, 12))
    walk.finish(dice)


@pytest.mark.long
@pytest.mark.sampled
@pytest.mark.parametrize("link", [True, False], ids=["a new link", "a newcomer"])
def test_whatever_leads_past_a_separator_learns_what_was_left_out_there(link, seed):
    for i in range(effort.samples(400)):
        changed_walk(random.Random(f"{seed}.{i}"), admit, link=link)


@pytest.mark.long
@pytest.mark.parametrize("link", [True, False], ids=["a new link", "a newcomer"])
def test_without_what_was_left_out_random_messages_overtake(link):
    with pytest.raises(Overtaken):
        for i in range(20_000):
            changed_walk(random.Random(i), from_nobody, link=link)


def walk_with_changes_in_a_row(dice, change, changes):
    """Separators of one member only: then a first change leads past more of them, and a second past none."""
    n = dice.randint(4, 6)
    graph, _ = random_graph(dice, n, dice.randint(0, 1))
    places = hop_places(graph, graph.separators(1))
    walk = HopWalk(by_index(Histories(p, n, place=place) for p, place in enumerate(places)))
    walk.wander(dice, dice.randint(4, 10))
    for _ in range(changes):
        missing = [(a, b) for a in range(n) for b in range(a) if frozenset((a, b)) not in graph.edges]
        newcomers = ()
        if missing and dice.random() < 0.5:
            graph = Graph(n, [*graph.edges, dice.choice(missing)])
        else:
            newcomers, n = (Histories(n, n + 1),), n + 1
            neighbours = dice.sample(range(n - 1), dice.randint(1, 3))
            graph = Graph(n, [*graph.edges, *((n - 1, q) for q in neighbours)])
        when_ready(walk, change, by_index(hop_places(graph, graph.separators(1))), *newcomers)
        walk.wander(dice, dice.randint(0, 3))
    walk.wander(dice, dice.randint(4, 12))
    walk.finish(dice)


@pytest.mark.long
@pytest.mark.sampled
def test_two_joins_or_links_in_a_row_are_in_order(seed):
    for i in range(effort.samples(600)):
        walk_with_changes_in_a_row(random.Random(f"{seed}.{i}"), admit, 2)


@pytest.mark.slow
def test_several_joins_or_links_in_a_row_are_in_order(seed):
    for i in range(10_000):
        walk_with_changes_in_a_row(random.Random(f"{seed}.{i}"), admit, 2 + i % 3)


def from_the_members(machines, places, newcomer=None):
    """What the report asks for: the histories of the members of separators that the change leads past."""
    before = {p: machine.place for p, machine in machines.items()}
    members = [p for p in machines if invalidated(before, places) >> p & 1]
    told = [entry for p in members for entry in machines[p].history()]
    learning = [newcomer] if newcomer is not None else []
    if newcomer is None:
        learning += [m for p, m in machines.items() if places[p].neighbours & ~before[p].neighbours]
    for machine in learning:
        if awaits(machine, told):
            raise LocalProtocolError(f"process {machine.me} must deliver")
    for machine in learning:
        adopt(machine, told)
    from_nobody(machines, places, newcomer)


def test_in_a_row_the_members_of_the_separators_led_past_do_not_know_enough():
    with pytest.raises(Overtaken):
        for i in range(20_000):
            walk_with_changes_in_a_row(random.Random(i), from_the_members, 2)


BESIDE = Graph(5, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)])


@pytest.mark.parametrize("link", [True, False], ids=["a new link", "a newcomer"])
@pytest.mark.parametrize("change", [admit, from_one_member])
def test_the_histories_of_all_members_are_needed(change, link):
    """0 and 1 are on one side of {2, 3}, 4 on the other; 3 knows of a slow message and 2 does not yet."""
    places = hop_places(BESIDE, [(2, 3)])
    walk = HopWalk(by_index(Histories(p, 5, place=place) for p, place in enumerate(places)))
    walk.multicast(0, [1])
    walk.multicast(0, [2, 3])
    walk.arrive(2)
    walk.multicast(3, [4])
    walk.arrive(2)
    assert (0, 1) not in {(e.sender, e.clock) for e in walk.machines[4].history()}  # left out by R9
    if link:
        when_ready(walk, change, by_index(hop_places(Graph(5, [*BESIDE.edges, (1, 4)]), [])))
        walk.multicast(4, [1])
    else:
        after = Graph(6, [*BESIDE.edges, (1, 5), (4, 5)])
        when_ready(walk, change, by_index(hop_places(after, [(2, 3, 5)])), Histories(5, 6))
        walk.multicast(4, [5])
        walk.arrive(-1)
        walk.multicast(5, [1])
    if change is from_one_member:
        with pytest.raises(Overtaken):
            walk.arrive(-1)
    else:
        walk.arrive(-1)
        walk.finish(random.Random(1))


# Processes 0 and 1 beside router 2, which leads to 3. The message from 0 to 1 is slow, and 2 leaves it out
# of what it forwards to 3.
ZONE = Graph(4, [(0, 1), (0, 2), (1, 2), (2, 3)])


def filtered():
    places = routed_places(ZONE, [(0, 1, 2), (2, 3)], separators=[(2,)])
    walk = Walk(Observed(p, 4, place=place) for p, place in enumerate(places))
    walk.multicast(0, [1])
    (slow,) = walk.in_flight
    walk.multicast(0, [3])
    while len(walk.in_flight) > 1:
        walk.arrive(1)
    assert walk.in_flight == [slow]
    assert (0, 1) not in {(entry.sender, entry.clock) for entry in walk.machines[3].history()}
    return walk


def change_places(walk, change, graph, tree, separators, newcomer=None):
    machines = by_index(walk.machines)
    change(machines, by_index(routed_places(graph, tree, separators=separators)), newcomer)
    walk.machines = [machines[p] for p in sorted(machines)]


def reply(walk):
    """Process 3 answers 1 by the new way, which is quick."""
    before = len(walk.in_flight)
    walk.multicast(3, [1])
    while len(walk.in_flight) > before:
        walk.arrive(before)


LINKED = (Graph(4, [*ZONE.edges, (1, 3)]), [(0, 1, 2), (1, 3)], [(1,), (1, 2)])
WIDENED = (Graph(5, [*ZONE.edges, (1, 4), (3, 4)]), [(0, 1, 2), (1, 4), (4, 3)], [(2, 4), (1, 2)])


def test_a_new_link_past_a_router_needs_what_the_router_left_out():
    """The case that the report does not have. Its ends take a history like a timestamp: in order."""
    walk = filtered()
    change_places(walk, from_nobody, *LINKED)
    with pytest.raises(Overtaken):
        reply(walk)
    walk = filtered()
    with pytest.raises(LocalProtocolError, match=r"process 1 must deliver M\(0, 1\)"):
        change_places(walk, admit, *LINKED)
    walk.arrive(0)
    change_places(walk, admit, *LINKED)
    reply(walk)
    wander(walk, random.Random(1), 40)


def test_a_newcomer_that_widens_a_separator_needs_the_histories_of_its_members():
    walk = filtered()
    change_places(walk, from_nobody, *WIDENED, newcomer=Observed(4, 5))
    with pytest.raises(Overtaken):
        reply(walk)
    walk = filtered()
    change_places(walk, admit, *WIDENED, newcomer=Observed(4, 5))
    reply(walk)
    assert walk.machines[1].pending()
    wander(walk, random.Random(1), 40)


def test_a_link_beside_a_newcomer_that_led_past_a_router_needs_what_the_router_left_out():
    """WIDENED, and then the link 1 - 3, which leads past no separator of that graph."""
    walk = filtered()
    widened = Graph(5, [*ZONE.edges, (1, 4), (3, 4)])
    change_places(
        walk, admit, widened, [(0, 1, 2), (1, 4), (4, 3)], list(widened.separators(1)), Observed(4, 5)
    )
    linked = Graph(5, [*widened.edges, (1, 3)])
    link = linked, [(0, 1, 2), (1, 4), (1, 3)], list(linked.separators(1))
    with pytest.raises(LocalProtocolError, match=r"process 1 must deliver M\(0, 1\) before"):
        change_places(walk, admit, *link)
    walk.arrive(0)
    change_places(walk, admit, *link)
    reply(walk)
    wander(walk, random.Random(1), 40)


@pytest.mark.parametrize("atomic", [True, False])
def test_a_member_that_filters_at_the_old_separator_after_the_switch_violates(atomic):
    """The zone of `filtered` hop by hop; 3 gets a link to 1, and then 2 hears of a slow message."""
    before, after = hop_places(ZONE, [(2,)]), hop_places(Graph(4, [*ZONE.edges, (1, 3)]), [])
    walk = HopWalk(by_index(Histories(p, 4, place=place) for p, place in enumerate(before)))
    admit(walk.machines, by_index(after))
    if not atomic:
        walk.machines[2].move(before[2])
    walk.multicast(0, [1])
    for p, q in ((0, 2), (2, 3)):
        walk.multicast(p, [q])
        walk.arrive(-1)
    walk.multicast(3, [1])
    if atomic:
        walk.arrive(-1)
        walk.finish(random.Random(1))
    else:
        with pytest.raises(Overtaken):
            walk.arrive(-1)


def test_a_newcomer_that_changes_no_separator_learns_nothing():
    """(i): it is a neighbour of one process, and on that one's side of every separator."""
    walk = filtered()
    graph, tree = Graph(5, [*ZONE.edges, (3, 4)]), [(0, 1, 2), (2, 3), (3, 4)]
    change_places(walk, admit, graph, tree, [(2,), (3,)], newcomer=Observed(4, 5))
    assert walk.machines[4].history() == ()
    wander(walk, random.Random(3), 40)


def test_a_router_between_parts_never_connected_learns_nothing(dice):
    """(ii): lines 0 - 1 - 2 and 3 - 4 - 5, then 6 between 2 and 3."""
    apart = Graph(6, [(0, 1), (1, 2), (3, 4), (4, 5)])
    lines = [(0, 1), (1, 2), (3, 4), (4, 5)]
    places = routed_places(apart, lines, separators=[(1,), (4,)])
    walk = Walk(Observed(p, 6, place=place) for p, place in enumerate(places))
    with pytest.raises(LocalProtocolError, match="no route to 3"):
        walk.multicast(0, [3])
    for p, to in ((0, [1, 2]), (0, [2]), (2, [0]), (3, [4, 5]), (5, [3])):
        walk.multicast(p, to)
    together = Graph(7, [*apart.edges, (2, 6), (6, 3)])
    tree, cuts = [*lines, (2, 6), (6, 3)], [(1,), (2,), (3,), (4,), (6,)]
    change_places(walk, admit, together, tree, cuts, newcomer=Observed(6, 7))
    assert walk.machines[6].history() == ()
    wander(walk, dice, 60)


def test_on_a_changed_way_later_messages_overtake_what_was_under_way_on_the_old_one():
    """So `admit` wants the messages between processes whose way changes to have arrived."""
    ring = Graph(4, [(0, 1), (1, 2), (2, 3), (3, 0)])
    walk = Walk(
        Observed(p, 4, place=place)
        for p, place in enumerate(routed_places(path(4), [(0, 1), (1, 2), (2, 3)]))
    )
    walk.multicast(0, [3])
    change_places(walk, admit, ring, [(0, 1), (1, 2), (0, 3)], None)
    walk.multicast(0, [3])
    with pytest.raises(Overtaken) as overtaken:
        walk.arrive(1)
    assert overtaken.value.level == "application"


class NamedGroups(ExtendedHistory):
    """Addresses as a group's name, read by whoever looks: a message to several was for all there are now."""

    def missing(self, entries):
        several = [e._replace(dests=e.dests | self._me) if e.dests.bit_count() > 1 else e for e in entries]
        return super().missing(several)


@pytest.mark.parametrize("named", [False, True])
def test_a_groups_name_read_after_a_join_blocks_for_ever(named):
    """(i) holds with explicit address sets only."""
    kind = with_history(NamedGroups) if named else Histories
    machines = [kind(p, 3) for p in range(3)]
    to_the_group = machines[0].multicast([1, 2], b"").effects
    machines[1].receive(to_the_group[0].message)
    for machine in machines:
        machine.join(3)
    (reply,) = machines[1].multicast([3], b"").effects
    newcomer = kind(3, 4)
    delivered = newcomer.receive(reply.message)
    if named:
        assert not delivered
        assert [held.waits_for for held in newcomer.pending()] == [((0, 1),)]  # which nobody sent to it
    else:
        assert len(delivered) == 1


def test_bad_places_are_refused_before_anybody_has_changed():
    walk = filtered()
    machines = by_index(walk.machines)
    before = [machine.snapshot() for machine in machines.values()]
    graph, tree, separators = WIDENED
    places = by_index(routed_places(graph, tree, separators=separators))
    stranger = places[4]._replace(neighbours=1)
    for bad, reason in (({**places, 4: stranger}, "1 is not one"), ({0: places[0]}, "process 1 stays")):
        with pytest.raises(LocalProtocolError, match=reason):
            admit(machines, bad, Topological(4, 5))
    assert [machine.snapshot() for machine in machines.values()] == before and len(machines) == 4
