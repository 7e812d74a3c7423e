"""Separators against brute force: a set separates iff a search that may not enter it misses somebody."""

from itertools import combinations, pairwise
from math import ceil
from time import process_time

import networkx as nx
import pytest

from happened.topology import Topology, derive, every, from_document, useful
from happened.topology.separators import (
    articulation_points,
    balanced_cut,
    boundary,
    in_one_piece,
    is_separator,
    minimum_cut,
    parts,
    parts_without_each,
    past,
)
from happened.topology.separators import separates as falls_apart


def reachable(links, start, without):
    found, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for a, b in links:
            for one, other in ((a, b), (b, a)):
                if one == here and other not in found and other not in without:
                    found.add(other)
                    waiting.append(other)
    return found


def separates(names, links, members):
    rest = [name for name in names if name not in members]
    return bool(rest) and len(reachable(links, rest[0], members)) < len(rest)


def random_graph(dice, n):
    """Connected: a random tree, and then some links."""
    names = [f"v{i}" for i in range(n)]
    links = {(names[dice.randrange(i)], names[i]) for i in range(1, n)}
    links |= {pair for pair in combinations(names, 2) if dice.random() < dice.choice([0.05, 0.3, 0.7])}
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from(sorted(links))
    return graph


def subsets(names):
    return [set(chosen) for k in range(len(names) + 1) for chosen in combinations(names, k)]


def test_every_subset_of_small_random_graphs(dice):
    seen = {True: 0, False: 0}
    for _ in range(100):
        graph = random_graph(dice, dice.randint(1, 7))
        for members in subsets(graph):
            truth = separates(list(graph), list(graph.edges), members)
            assert is_separator(graph, members) is truth
            seen[truth] += 1
            apart = parts(graph, members)
            assert sorted(name for part in apart for name in part) == sorted(set(graph) - members)
            for part in apart:
                assert reachable(list(graph.edges), next(iter(part)), members) == part
            way = past(graph, members)
            assert not (truth and way)
            if way:
                assert not members & set(way) and all(graph.has_edge(*link) for link in pairwise(way))
                assert all(
                    any(graph.has_edge(end, member) for member in members) for end in (way[0], way[-1])
                )
    assert min(seen.values()) > 100


def test_articulation_points_and_minimum_cuts_are_the_smallest_separators(dice):
    sizes = set()
    for _ in range(150):
        graph = random_graph(dice, dice.randint(1, 8))
        names, links = list(graph), list(graph.edges)
        separating = [members for members in subsets(names) if separates(names, links, members)]
        assert articulation_points(graph) == [name for name in names if {name} in separating]
        smallest = minimum_cut(graph)
        if smallest is None:
            assert not separating
        else:
            assert set(smallest) in separating and len(smallest) == min(map(len, separating))
            sizes.add(len(smallest))
    assert {1, 2, 3} <= sizes


def test_balanced_cuts_leave_at_most_half_on_a_side(dice):
    found = 0
    for _ in range(150):
        graph = random_graph(dice, dice.randint(1, 12))
        cut = balanced_cut(graph)
        if cut is not None:
            found += 1
            assert separates(list(graph), list(graph.edges), set(cut))
            assert max(map(len, parts(graph, cut))) <= ceil(len(graph) / 2)
    assert found > 50


def test_a_grid_is_halved_by_a_column():
    grid = nx.grid_2d_graph(5, 3)
    graph = nx.relabel_nodes(grid, {(x, y): f"{x}{y}" for x, y in grid})
    cut = balanced_cut(graph)
    assert cut is not None and len(cut) == 3 and max(map(len, parts(graph, cut))) <= 8


def test_complete_graphs_have_no_separator():
    graph = nx.relabel_nodes(nx.complete_graph(5), str)
    assert minimum_cut(graph) is None and balanced_cut(graph) is None and not every(Topology(graph))


def test_cuts_do_not_depend_on_the_order_of_sets_of_text(dice):
    """Python orders sets of text differently in every run; relabelling moves them as much."""
    graph = random_graph(dice, 12)
    renamed = nx.relabel_nodes(graph, {name: f"other-{name}" for name in graph})
    for cut in (minimum_cut, balanced_cut):
        members = cut(graph)
        assert cut(renamed) == (members and tuple(f"other-{name}" for name in members))


HIERARCHY = {
    "zones": {
        "west": {"gateways": ["d1", "d2"], "zones": {"n1": ["p1"], "n2": ["p2", "p3"]}},
        "east": {"gateways": ["d3"], "zones": {"n3": ["p4", "p5"]}},
        "north": {"gateways": ["e1", "e2", "e3"], "processes": ["q1", "q2"], "links": "all"},
    },
    "links": [["d1", "d3"], ["d2", "d3"], ["d1", "d2"], *(["d3", f"e{i}"] for i in (1, 2, 3))],
}


def test_administrative_boundaries_are_useful_up_to_two_members():
    topology = from_document(HIERARCHY)
    small = {frozenset(separator.members): separator for separator in useful(topology)}
    assert {frozenset(s) for s in (["d1", "d2"], ["d3"], ["n1"], ["n2"], ["n3"])} == set(small)
    assert frozenset(["e1", "e2", "e3"]) in {frozenset(s.members) for s in every(topology)}
    west = small[frozenset(["d1", "d2"])]
    assert west.members[0] == "d1" and west.why == ("boundary of west",)
    assert west.part_of("p2") == {"p2", "p3", "n2"} and west.part_of("d1") == frozenset()
    forward, backward = west.sides(["p4"])
    assert forward == {"p4", "p5", "n3", "d3", "e1", "e2", "e3", "q1", "q2"}
    assert backward == {"p1", "n1", "p2", "p3", "n2"}
    assert small[frozenset(["d3"])].why == ("boundary of east", "articulation point")


def test_a_zone_without_gateways_is_bounded_by_its_outermost_members():
    document = {"processes": ["x"], "links": [["b", "x"], ["c", "x"]]} | {
        "zones": {"z": {"gateways": [], "processes": ["a", "b", "c"], "links": [["a", "b"], ["b", "c"]]}}
    }
    topology = from_document(document)
    assert boundary(topology, "z") == ("b", "c")
    assert [separator.members for separator in useful(topology)] == [("b", "c"), ("b",)]


@pytest.mark.parametrize("n, looked_for", [(500, True), (600, False)])
def test_expensive_cuts_are_looked_for_in_graphs_not_too_large(n, looked_for):
    found = every(Topology(nx.relabel_nodes(nx.path_graph(n), str)))
    assert any("balanced cut" in separator.why for separator in found) is looked_for


def test_a_boundary_with_nobody_beyond_it_separates_nothing():
    assert not useful(from_document({"zones": {"z": ["a"]}}))


@pytest.mark.parametrize("n", range(1, 13))
def test_one_search_finds_the_parts_without_each_articulation_point(dice, n):
    for _ in range(60):
        graph = random_graph(dice, n)
        expected = {name: parts(graph, (name,)) for name in articulation_points(graph)}
        assert parts_without_each(graph) == expected


@pytest.mark.long
def test_ten_thousand_processes_are_read_and_routed_in_seconds():
    """Nested zones of ten; a search for each cut vertex, and a count of links at each zone, took minutes."""
    leaves = {f"z{i}": {"zones": {f"z{i}-{j}": zone(i, j) for j in range(10)}} for i in range(10)}
    began = process_time()
    topology = from_document({"zones": leaves})
    routes = derive(topology)
    assert len(routes.places) == 10_000 + 10 + 100 + 1000
    assert process_time() - began < 25


def pairs_of_gateways(zones):
    """As many zones of eight processes, each behind two gateways, in ten sites behind two gateways."""

    def inner(i, k):
        return {"processes": [f"p{i}-{k}-{m}" for m in range(8)], "gateways": [f"g{i}-{k}a", f"g{i}-{k}b"]}

    return from_document(
        {
            "zones": {
                f"s{i}": {
                    "gateways": [f"s{i}a", f"s{i}b"],
                    "zones": {f"z{i}-{k}": inner(i, k) for k in range(zones // 10)},
                }
                for i in range(10)
            }
        }
    )


@pytest.mark.long
def test_routes_through_separators_of_two_take_a_time_like_the_graph():
    """With a search through the graph for each of them, 4 times the zones took 16 times as long."""

    def seconds(topology):
        began = process_time()
        routes = derive(topology)
        taken = process_time() - began
        assert not routes.unwitnessed and len(routes.witnesses) == len(topology.zones)
        return taken

    small, large = pairs_of_gateways(50), pairs_of_gateways(200)
    assert min(seconds(large) for _ in range(3)) < 9 * min(seconds(small) for _ in range(3))


def connected(graph, starts):
    return len({frozenset(nx.node_connected_component(graph, name)) for name in starts}) <= 1


@pytest.mark.parametrize("n", range(1, 10))
def test_searches_in_turn_tell_whether_vertices_are_connected(dice, n):
    for _ in range(100):
        graph = nx.relabel_nodes(nx.gnm_random_graph(n, dice.randint(0, 2 * n), seed=dice), str)
        starts = dice.sample(list(graph), dice.randint(1, n))
        assert in_one_piece(graph.neighbors, starts) is connected(graph, starts)
        whole = random_graph(dice, n)
        members = dice.sample(list(whole), dice.randint(1, n))
        assert falls_apart(whole, members) is separates(list(whole), list(whole.edges), members)


def zone(i, j):
    return {"zones": {f"z{i}-{j}-{k}": [f"p{i}{j}{k}{m}" for m in range(10)] for k in range(10)}}
