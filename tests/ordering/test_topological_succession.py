"""Joins, failures and departures one after the other: order, nothing lost and nothing twice, end to end."""

import random

import pytest

import effort
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.ordering.causal.topological import Topological
from happened.ordering.last_to_fail import last_to_fail
from oracles.places import Graph, path, routed_places, zones_in_a_row
from oracles.succession import admit, retire, succeed, unforwarded
from oracles.walks import ChangingWalk

OPTIONS = {
    "R7": {},
    "without R7": {"timestamp_redundancy": False},
    "R6.1": {"extended": True},
    "cuts in use": {"in_use": True},
}


class Row:
    """Zones in a row, whose gateways fail, are succeeded and joined while messages cross."""

    def __init__(self, dice, zones, gateways, *, in_use=False, **options):
        self.dice = dice
        self.zones, self.gateways = [list(zone) for zone in zones], [list(gates) for gates in gateways]
        n = 1 + max(p for members in (*zones, *gateways) for p in members)
        self.walk = ChangingWalk(
            n, lambda n: zones_in_a_row(n, self.zones, self.gateways, in_use=in_use), **options
        )
        self.log = []

    def witness_succeeds(self, gates):
        """What the router sent is flushed or not: it is enough that all to the witness has arrived."""
        dead, witness = gates[:2]
        self.walk.kill(dead)
        if self.dice.random() < 0.5:
            self.walk.flush(self.dice, lambda s, d: s == dead)
        self.walk.flush(self.dice, lambda s, d: d == witness)
        gates.remove(dead)
        return dead, self.walk.machines[witness]

    def fail(self):
        gates = self.pick(2)
        dead, witness = self.witness_succeeds(gates)
        self.walk.succeed(dead, witness, witness=witness)

    def fail_to_a_newcomer(self):
        gates = self.pick(2)
        dead, witness = self.witness_succeeds(gates)
        successor = self.walk.newcomer()
        gates.insert(0, successor.me)
        self.walk.succeed(dead, successor, witness=witness)

    def fail_with_a_journal(self):
        gates = self.pick(1)
        dead = gates[0]
        self.walk.flush(self.dice, lambda s, d: dead in (s, d))
        successor = self.walk.newcomer()
        gates[0] = successor.me
        self.walk.succeed(dead, successor, journal=self.walk.machines[dead])

    def fail_a_witness_with_a_journal(self):
        gates = self.pick(2)
        dead = self.dice.choice(gates[1:])
        self.walk.flush(self.dice, lambda s, d: dead in (s, d))
        successor = self.walk.newcomer()
        gates[gates.index(dead)] = successor.me
        self.walk.succeed(dead, successor, journal=self.walk.machines[dead])

    def retire_a_witness(self):
        self.walk.leave(self.pick(2).pop())

    def retire_a_process(self):
        zone = self.dice.choice([zone for zone in self.zones if len(zone) > 1])
        self.walk.leave(zone.pop(self.dice.randrange(len(zone))))

    def join_as_a_witness(self):
        gates = self.pick(1)
        # What is on its way to the forwarder has no copy for the newcomer.
        self.walk.flush(self.dice, lambda s, d: d == gates[0])
        gates.append(self.walk.newcomer().me)
        self.walk.join()

    def join_a_zone(self):
        self.dice.choice(self.zones).append(self.walk.newcomer().me)
        self.walk.join()

    def expire(self):
        for _ in range(2):
            self.walk.drain(self.dice)
            for machine in self.walk.living().values():
                machine.expire()

    def pick(self, least):
        return self.dice.choice([gates for gates in self.gateways if len(gates) >= least])

    def run(self, changes, choices):
        self.walk.stroll(self.dice, self.dice.randint(5, 40))
        for _ in range(changes):
            change = self.dice.choice(choices)
            try:
                change(self)
            except IndexError:
                continue  # nobody left for it
            self.log.append(change.__name__)
            self.walk.stroll(self.dice, self.dice.randint(0, 30))
        self.walk.finish(self.dice)


TWO_ZONES = ((0, 1), (5, 6)), ((2, 3, 4),)
THREE_ZONES = ((0, 1), (4, 5), (8, 9)), ((2, 3), (6, 7))
FAILURES = [Row.fail]
CHANGES = [
    getattr(Row, name) for name in vars(Row) if name.split("_")[0] in ("fail", "retire", "join", "expire")
]


def rows(seed, count, world, options, changes, choices):
    made = set()
    for i in range(count):
        row = Row(random.Random(f"{seed}.{i}"), *world, **options)
        try:
            row.run(changes, choices)
        except Exception as error:
            error.add_note(f"walk {i} of seed {seed}: {row.log}")
            raise
        made.update(row.log)
    assert made == {change.__name__ for change in choices}


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_random_walks_across_two_failures_in_a_row(options, seed):
    """Of three gateways, the forwarder fails, and then the one that succeeded it."""
    rows(seed, 60, TWO_ZONES, options, 2, FAILURES)


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("world", [TWO_ZONES, THREE_ZONES], ids=["two zones", "three zones"])
def test_random_walks_across_failures_departures_and_joins(world, options, seed):
    rows(seed, 50 if effort.THOROUGH else 25, world, options, 4, CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("world", [TWO_ZONES, THREE_ZONES], ids=["two zones", "three zones"])
def test_more_and_longer_random_walks_across_failures_departures_and_joins(world, options, seed):
    rows(seed, 150, world, options, 2, FAILURES)
    rows(seed, 300, world, options, 10, CHANGES)


def sent(effects):
    return {effect.to: effect.message for effect in effects if isinstance(effect, Send)}


def delivered(effects):
    return [effect.payload for effect in effects if not isinstance(effect, Send)]


def standing(places):
    return {p: Topological(p, len(places), place=place) for p, place in enumerate(places)}


def among(places, *processes):
    return {p: places[p] for p in processes}


def gated(*gates):
    """0 and 4, and these gateways between them."""
    return among(zones_in_a_row(5, ((0,), (4,)), (gates,)), 0, 4, *gates)


def test_what_the_first_router_forwarded_the_second_witness_does_not_send_again():
    """From 4 to 0 and to witness 2: 1 forwards it to both at once. To witness 3, the copy is slow."""
    machines = {p: Topological(p, 5, place=place) for p, place in gated(1, 2, 3).items()}
    up = sent(machines[4].multicast([0, 2], b"x").effects)
    machines[2].receive(up[2])
    down = sent(machines[1].receive(up[1]))
    assert [delivered(machines[p].receive(down[p])) for p in (0, 2, 3)] == [[b"x"], [b"x"], []]
    assert succeed(machines, 1, gated(2, 3), machines[2], witness=machines[2]) == []
    machines[3].receive(up[3])
    assert succeed(machines, 2, gated(3), machines[3], witness=machines[3]) == []


def test_nor_if_whom_the_first_router_forwarded_it_to_was_succeeded_as_well():
    """From 9 to 7 and 0: 6 forwards it to 7 and 1, and 1 to 0. Then 7 succeeds 6, and 2 succeeds 1.

    To witness 8, the copies are slow. It must not take 7 for one that has yet to send it to 2.
    """

    def places(*gates):
        left = {0, 5, 9}.union(*gates)
        return {
            p: place for p, place in enumerate(zones_in_a_row(10, ((0,), (5,), (9,)), gates)) if p in left
        }

    machines = {p: Topological(p, 10, place=place) for p, place in places((1, 2), (6, 7, 8)).items()}
    up = sent(machines[9].multicast([0, 7], b"x").effects)
    machines[7].receive(up[7])
    across = sent(machines[6].receive(up[6]))
    assert set(across) == {1, 2, 7, 8}
    down = sent(machines[1].receive(across[1]))
    for p, message in ((7, across[7]), (2, across[2]), (2, down[2]), (0, down[0])):
        machines[p].receive(message)
    assert succeed(machines, 6, places((1, 2), (7, 8)), machines[7], witness=machines[7]) == []
    assert succeed(machines, 1, places((2,), (7, 8)), machines[2], witness=machines[2]) == []
    for message in (up[8], across[8]):
        machines[8].receive(message)
    assert succeed(machines, 7, places((2,), (8,)), machines[8], witness=machines[8]) == []


def test_who_has_left_is_not_sent_to_and_nothing_is_kept_for_it():
    """From 4 to 0, which is beside 3 and leaves: 1 does not forward it, and witness 2 keeps nothing for 1."""
    machines = standing(zones_in_a_row(5, ((0, 3), (4,)), ((1, 2),)))
    up = sent(machines[4].multicast([0, 1], b"x").effects)
    machines[2].receive(up[2])
    assert unforwarded(machines[2], 1)
    retire(machines, 0, among(zones_in_a_row(5, ((3,), (4,)), ((1, 2),)), 1, 2, 3, 4))
    effects = machines[1].receive(up[1])
    assert delivered(effects) == [b"x"] and not sent(effects)
    assert unforwarded(machines[2], 1) == ()


def test_what_a_witness_kept_for_its_router_is_inherited_with_its_journal():
    """From 4 to 0: the copy for witness 2 arrives, and 1 fails before its own. Meanwhile 5 succeeded 2."""

    def places(*gates):
        return among(zones_in_a_row(6, ((0,), (4,)), (gates,)), 0, 4, *gates)

    machines = {p: Topological(p, 5, place=place) for p, place in gated(1, 2).items()}
    up = sent(machines[4].multicast([0], b"hello").effects)
    machines[2].receive(up[2])
    journal = Topological(2, 5)
    journal.restore(machines.pop(2).snapshot())
    assert succeed(machines, 2, places(1, 5), Topological(5, 6), journal=journal) == []
    left = sent(succeed(machines, 1, places(5), machines[5], witness=machines[5]))
    assert delivered(machines[0].receive(left[0])) == [b"hello"]


def test_a_router_that_was_succeeded_is_not_succeeded_again_from_its_old_journal():
    machines = {p: Topological(p, 5, place=place) for p, place in gated(1, 2, 3).items()}
    old = machines[1]
    succeed(machines, 1, gated(2, 3), machines[2], witness=machines[2])
    before = {p: machine.snapshot() for p, machine in machines.items()}
    with pytest.raises(LocalProtocolError, match=r"process 1 has left or was succeeded: .* who failed last"):
        succeed(machines, 1, gated(2, 3), machines[3], journal=old)
    assert {p: machine.snapshot() for p, machine in machines.items()} == before


def test_the_last_of_three_gateways_to_fail_is_the_one_that_nobody_saw_fail():
    """1 fails and 2 succeeds it, 2 fails and 3 does; then 3. The journals say who outlived whom."""
    machines = {p: Topological(p, 5, place=place) for p, place in gated(1, 2, 3).items()}
    journals = {1: machines[1].snapshot()}
    succeed(machines, 1, gated(2, 3), machines[2], witness=machines[2])
    journals[2] = machines[2].snapshot()
    succeed(machines, 2, gated(3), machines[3], witness=machines[3])
    journals[3] = machines[3].snapshot()
    group = 0b01110
    recorded = {}
    for p, journal in journals.items():
        recovered = Topological(p, 5)
        recovered.restore(journal)
        recorded[p] = recovered.gone
    assert last_to_fail(group, recorded) == last_to_fail(group, {3: recorded[3]}) == 1 << 3
    with pytest.raises(LocalProtocolError, match="not known before 3 recovers"):
        last_to_fail(group, {1: recorded[1], 2: recorded[2]})


def test_a_router_that_forwards_is_not_retired():
    line = [(0, 1), (1, 2), (2, 3)]
    machines = standing(routed_places(path(4), line))
    before = {p: machine.snapshot() for p, machine in machines.items()}
    bypass = [(0, 1), (1, 3)]
    with pytest.raises(LocalProtocolError, match=r"process 2 forwards to 0, 1, 3: let somebody succeed"):
        retire(machines, 2, among(routed_places(Graph(4, bypass), bypass), 0, 1, 3))
    assert {p: machine.snapshot() for p, machine in machines.items()} == before and len(machines) == 4
    retire(machines, 3, among(routed_places(Graph(4, line[:2]), line[:2]), 0, 1, 2))
    retire(machines, 2, among(routed_places(Graph(4, line[:1]), line[:1]), 0, 1))


def test_the_last_words_of_a_process_at_the_edge_arrive():
    line = [(0, 1), (1, 2), (2, 3)]
    machines = standing(routed_places(path(4), line, separators=[(1,), (2,)]))
    words = sent(machines[0].multicast([1, 3], b"x").effects)
    retire(machines, 0, among(routed_places(Graph(4, line[1:]), line[1:], separators=[(2,)]), 1, 2, 3))
    effects = machines[1].receive(words[1])
    assert delivered(effects) == [b"x"]
    effects = machines[2].receive(sent(effects)[2])
    assert list(sent(effects)) == [3]  # and not back to 1
    assert delivered(machines[3].receive(sent(effects)[3])) == [b"x"]


def test_the_last_words_in_a_broadcast_network_are_not_repeated_there():
    """0, 1 and 2 address each other, and 2 leads to 3. What 0 sent to all has reached 1."""
    edges = [(0, 1), (0, 2), (1, 2), (2, 3)]
    machines = standing(routed_places(Graph(4, edges), [(0, 1, 2), (2, 3)], separators=[(2,)]))
    words = sent(machines[0].multicast([1, 3], b"x").effects)
    assert delivered(machines[1].receive(words[1])) == [b"x"]
    retire(machines, 0, among(routed_places(path(4), [(1, 2), (2, 3)], separators=[(2,)]), 1, 2, 3))
    assert list(sent(machines[2].receive(words[2]))) == [3]


def test_only_a_witness_of_the_router_can_be_its_witness():
    machines = {p: Topological(p, 5, place=place) for p, place in gated(1, 2).items()}
    before = {p: machine.snapshot() for p, machine in machines.items()}
    with pytest.raises(LocalProtocolError, match="process 0 is no witness of process 1"):
        succeed(machines, 1, gated(2), machines[2], witness=machines[0])
    assert {p: machine.snapshot() for p, machine in machines.items()} == before


@pytest.mark.parametrize("how", ["admitted", "succeeds"])
def test_newcomers_learn_who_has_left(how):
    """3 left a line of routers 1 and 2; a newcomer that did not know would wait for copies to it."""
    line = [(0, 1), (1, 2), (2, 3)]
    machines = standing(routed_places(path(4), line, separators=[(1,), (2,)]))
    retire(machines, 3, among(routed_places(Graph(4, line[:2]), line[:2], separators=[(1,)]), 0, 1, 2))
    newcomer = Topological(4, 5)
    if how == "admitted":
        edges = [(0, 1), (1, 2), (2, 4)]
        admit(machines, among(routed_places(Graph(5, edges), edges, separators=[]), 0, 1, 2, 4), newcomer)
    else:
        edges = [(0, 4), (4, 2)]
        places = among(routed_places(Graph(5, edges), edges, separators=[]), 0, 2, 4)
        succeed(machines, 1, places, newcomer, journal=machines[1])
    with pytest.raises(LocalProtocolError, match="process 3 has left"):
        newcomer.multicast([3], b"")


def test_a_new_witness_judges_by_what_its_forwarder_knows_of_those_who_left():
    """0 - 1 - 2 - 3. 0 sends to 1 and 2 and leaves; 4 becomes a witness of 2 and gets its copy from 1.

    2 has nothing to forward. If 4 did not know that 0 was behind 1, it would, after 2, send it back to 1.
    """
    line = [(0, 1), (1, 2), (2, 3)]
    machines = standing(routed_places(path(4), line, separators=[]))
    words = sent(machines[0].multicast([1, 2], b"x").effects)
    retire(machines, 0, among(routed_places(Graph(4, line[1:]), line[1:], separators=[]), 1, 2, 3))
    graph, tree = Graph(5, [*line[1:], (4, 1), (4, 2), (4, 3)]), [*line[1:], (2, 4)]
    places = routed_places(graph, tree, witnesses={2: {4}}, separators=[])
    admit(machines, among(places, 1, 2, 3, 4), Topological(4, 5))
    copies = sent(machines[1].receive(words[1]))
    assert list(copies) == [2, 4]
    assert delivered(machines[2].receive(copies[2])) == [b"x"]
    machines[4].receive(copies[4])
    bypass = [(1, 4), (4, 3)]
    after = among(routed_places(Graph(5, bypass), bypass, separators=[]), 1, 3, 4)
    assert succeed(machines, 2, after, machines[4], witness=machines[4]) == []


def test_a_successor_by_collection_does_not_send_back_what_those_who_left_sent():
    """0 - 1 - 2 - 3. 0 sends to all and leaves; 2 fails, and 4 succeeds it with what all others know."""
    line = [(0, 1), (1, 2), (2, 3)]
    machines = standing(routed_places(path(4), line, separators=[]))
    words = sent(machines[0].multicast([1, 3], b"x").effects)
    retire(machines, 0, among(routed_places(Graph(4, line[1:]), line[1:], separators=[]), 1, 2, 3))
    bypass = [(1, 4), (4, 3)]
    after = among(routed_places(Graph(5, bypass), bypass, separators=[]), 1, 3, 4)
    succeed(machines, 2, after, Topological(4, 5))
    onward = sent(machines[1].receive(words[1]))
    assert list(sent(machines[4].receive(onward[4]))) == [3]


def test_a_newcomer_that_connects_what_a_departure_parted_learns_what_was_left_out():
    """0 and 1 beside router 2, which leads to 3 and leaves out a slow message from 0 to 1.

    2's successor 4 has no link with 3; then 5 connects 1 and 3, which were connected once.
    """
    places = routed_places(Graph(4, [(0, 1), (0, 2), (1, 2), (2, 3)]), [(0, 1, 2), (2, 3)], separators=[(2,)])
    machines = standing(places)
    slow = sent(machines[0].multicast([1], b"first").effects)[1]
    up = sent(machines[0].multicast([3], b"question").effects)
    machines[3].receive(sent(machines[2].receive(up[2]))[3])
    zone = Graph(5, [(0, 1), (0, 4), (1, 4)])
    after = among(routed_places(zone, [(0, 1, 4)], separators=[]), 0, 1, 3, 4)
    succeed(machines, 2, after, Topological(4, 5), journal=machines[2])
    graph = Graph(6, [*zone.edges, (1, 5), (5, 3)])
    after = routed_places(graph, [(0, 1, 4), (1, 5), (5, 3)], separators=[])
    admit(machines, among(after, 0, 1, 3, 4, 5), Topological(5, 6))
    answer = sent(machines[3].multicast([1], b"answer").effects)
    answer = sent(machines[5].receive(answer[5]))
    assert delivered(machines[1].receive(answer[1])) == []
    assert delivered(machines[1].receive(slow)) == [b"first", b"answer"]
