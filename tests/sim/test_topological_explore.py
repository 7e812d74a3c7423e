"""Every interleaving on small graphs: hop by hop, end to end, and what breaks without each of the rules."""

import random

import pytest

from effort import samples
from happened.core.destinations import pack
from happened.ordering.causal.histories import Histories
from oracles.misrouted import BeforeDelivering, OutOfDeliveryOrder, Routed, Split, gateways, shortest_paths
from oracles.places import Graph, hop_places, path, random_graph, ring, routed_places, two_gateways
from oracles.printed_histories import FilterUnreported, with_history
from oracles.walks import Observed, Overtaken, Walk, wander
from oracles.worlds import (
    WORLDS,
    explored,
    explorer,
    hop_explorer,
    hop_programs,
    links,
    program,
    routed_programs,
)

CHORD = Graph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
BOW_TIE = Graph(5, [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)])


def holds(found, programs, states):
    assert found == (programs, states, [])


def safely_explored(graph, messages, **options):
    places = hop_places(graph)
    return explored(explorer(places, Histories, **options), hop_programs(places, messages))


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"extended": True}, marks=pytest.mark.slow),
        pytest.param({"timestamp_redundancy": False}, marks=pytest.mark.slow),
    ],
)
def test_hops_on_a_line_and_a_ring_are_in_order_whatever_is_sent_to_neighbours(options):
    holds(safely_explored(path(4), 3, **options), 184, 10_004)
    holds(safely_explored(ring(4), 3, **options), 540, 35_224)


@pytest.mark.slow
def test_hops_on_a_ring_of_five_are_in_order_whatever_is_sent_to_neighbours():
    holds(safely_explored(ring(5), 3), 945, 58_655)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"extended": True}, {"timestamp_redundancy": False}])
@pytest.mark.parametrize(
    ("graph", "messages", "programs"),
    [(path(4), 4, 731), (ring(4), 4, 2835), (CHORD, 3, 2740), (BOW_TIE, 3, 7965)],
    ids=["line", "ring", "ring with a chord", "bow-tie"],
)
def test_hops_on_larger_worlds_are_in_order(graph, messages, programs, options):
    count, states, violations = safely_explored(graph, messages, **options)
    assert violations == [] and count == programs and states > 100_000


# World -> programs of two messages to one or two others each, and states.
TWO_MESSAGES = {
    "line": (360, 8_208),
    "star": (360, 7_413),
    "tree": (1_500, 42_989),
    "ring": (360, 8_208),
    "ring of five": (1_500, 48_616),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if TWO_MESSAGES[name][0] > 1000 else [])
        for name in TWO_MESSAGES
    ],
)
def test_two_messages_are_in_order_end_to_end_in_every_program(name):
    world = WORLDS[name]
    found = explored(explorer(world.places()), routed_programs(world.graph.n, 2))
    holds(found, *TWO_MESSAGES[name])


# Programs drawn at random, each explored in every interleaving: how many of two and of three messages.
DRAWN = {"tree": (0, 120), "grid": (300, 30), "two gateways": (80, 0), "three gateways": (24, 0)}


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*WORLDS])
def test_drawn_programs_are_in_order_end_to_end_in_every_interleaving(name, dice):
    world, (two, three) = WORLDS[name], map(samples, DRAWN.get(name, (0, 120)))
    exploring, n = explorer(world.places()), world.graph.n
    drawn = [draw(dice, n, 2) for _ in range(two)] + [draw(dice, n, 3) for _ in range(three)]
    count, states, violations = explored(exploring, drawn)
    assert violations == [] and count == two + three and states > 10 * count


def draw(dice, n, messages):
    sends = [[] for _ in range(n)]
    for _ in range(messages):
        p = dice.randrange(n)
        sends[p].append(dice.sample([q for q in range(n) if q != p], dice.randint(1, 2)))
    return program(n, *((p, to) for p, several in enumerate(sends) for to in several))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["line", "star", "ring"])
def test_three_messages_are_in_order_end_to_end_in_every_program(name):
    count, states, violations = explored(explorer(WORLDS[name].places()), routed_programs(4, 3))
    assert violations == [] and count == 4320 and states > 400_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "two gateways", "three gateways"])
def test_two_messages_are_in_order_end_to_end_in_every_program_of_a_wide_world(name):
    world = WORLDS[name]
    count, _, violations = explored(explorer(world.places()), routed_programs(world.graph.n, 2))
    assert violations == [] and count >= 1500


def faults(exploring, *programs):
    return [(v.kind, v.reason) for v in explored(exploring, programs)[2]]


def test_r9_needs_messages_addressed_to_neighbours_only():
    """Line 0-1-2-3: 1 to 0, 1 to 2, 2 to 0."""
    sends = program(4, (1, [0]), (1, [2]), (2, [0]))
    everybody = [
        place._replace(neighbours=pack({0, 1, 2, 3} - {p})) for p, place in enumerate(hop_places(path(4)))
    ]
    assert faults(explorer(everybody, Histories), sends) == [
        ("safety", "0 delivers M(2,1) before M(1,1), sent to it too and causally earlier")
    ]


def test_r9_needs_the_other_members_of_the_separator_to_have_been_told():
    """Ring of four: 0 to 1, 0 to 3, 3 to 2, 2 to 1."""
    sends = program(4, (0, [1]), (0, [3]), (3, [2]), (2, [1]))
    assert faults(hop_explorer(ring(4)), sends) == []
    assert faults(hop_explorer(ring(4), with_history(FilterUnreported)), sends) == [
        ("safety", "1 delivers M(2,1) before M(0,1), sent to it too and causally earlier")
    ]


# Who forwards between the sides {0, 1} and {4, 5}.
CHOICES = {
    "one forwarder": lambda carried, d: 2,
    "by source": lambda carried, d: 2 + carried.sender % 2,
    "by destination": lambda carried, d: 2 + d % 2,
    "at random": lambda carried, d: 2 + hash((carried.sender, carried.clock, d)) % 2,
}
CROSSING = [
    program(6, (0, [1, 4]), (1, [4])),  # docs/papers.md: to both sides; answer by the other gateway
    program(6, (0, [4, 5]), (4, [5])),
]


def gateway_places():
    graph, tree, _ = two_gateways()
    return routed_places(graph, tree)


@pytest.mark.parametrize("choice", CHOICES)
def test_hop_order_is_not_application_order_where_two_gateways_forward(choice):
    exploring = explorer(gateway_places(), Routed, route=gateways(CHOICES[choice]))
    found = faults(exploring, *CROSSING)
    assert found == [] if choice == "one forwarder" else found[0][0] == "safety"


class ObservedRoutes(Observed, Routed):
    pass


def violated(make, runs, members=None):
    """How many random walks broke application order; none may break the order of hops."""
    count = 0
    for i in range(runs):
        dice = random.Random(i)
        try:
            wander(Walk(make(dice)), dice, 30, members=members)
        except Overtaken as overtaken:
            assert overtaken.level == "application"
            count += 1
    return count


def test_in_random_walks_too_only_one_forwarder_keeps_the_order():
    places = gateway_places()

    def machines(choice):
        route = gateways(CHOICES[choice])
        return lambda dice: [ObservedRoutes(p, 6, place=pl, route=route) for p, pl in enumerate(places)]

    found = {choice: violated(machines(choice), 60, members=(0, 1, 4, 5)) for choice in CHOICES}
    assert found.pop("one forwarder") == 0 and all(found.values()), found


def test_shortest_paths_on_graphs_with_cycles_violate_and_a_spanning_tree_does_not():
    def machines(shortest):
        def make(dice):
            graph, tree = random_graph(dice, 6, 4)
            places = routed_places(graph, tree)
            if not shortest:
                return [Observed(p, 6, place=place) for p, place in enumerate(places)]
            route = shortest_paths(graph)
            return [ObservedRoutes(p, 6, place=place, route=route) for p, place in enumerate(places)]

        return make

    assert violated(machines(False), 60) == 0
    assert violated(machines(True), 60) > 0


@pytest.mark.parametrize("size", [4, 5])
def test_shortest_paths_on_a_ring_violate_with_two_messages(size):
    places = routed_places(ring(size), links(size))
    exploring = explorer(places, Routed, route=shortest_paths(ring(size)))
    _, _, violations = explored(exploring, routed_programs(size, 2))
    assert violations[0].kind == "safety"


@pytest.mark.parametrize("machine", [OutOfDeliveryOrder, BeforeDelivering])
def test_routers_must_forward_in_the_order_they_deliver_in(machine):
    sends = program(4, (3, [0]), (3, [0]))
    assert faults(explorer(WORLDS["line"].places()), sends) == []
    assert faults(explorer(WORLDS["line"].places(), machine), sends) == [
        ("safety", "0 delivers M(3,2) before M(3,1), sent to it too and causally earlier")
    ]


def test_a_multicast_must_be_one_hop_message_to_all_next_hops():
    """0 and 1 beside router 2, which leads to 3: the part for 1 is answered before that for 2 arrives."""
    places = routed_places(Graph(4, [(0, 1), (0, 2), (1, 2), (2, 3)]), [(0, 1, 2), (2, 3)])
    sends = program(4, (0, [1, 3]), (1, [3]))
    assert faults(explorer(places), sends) == []
    assert faults(explorer(places, Split), sends) == [
        ("safety", "3 delivers M(1,1) before M(0,1), sent to it too and causally earlier")
    ]
