"""Growth with zones: the shape of the curve on short runs, and the places it runs on."""

from itertools import combinations

import networkx as nx
import pytest

from happened.core.errors import LocalProtocolError
from happened.experiments.growth import _HopSizes, mean_hops, measure, place
from happened.ordering import create
from happened.topology.routes import verify


def graph_of(n, size):
    graph = nx.Graph()
    graph.add_nodes_from(str(p) for p in range(n))
    unit = 1
    while unit < n:
        for head in range(0, n, unit * size):
            zone = range(head, min(head + unit * size, n), unit)
            graph.add_edges_from((str(p), str(q)) for p, q in combinations(zone, 2))
        unit *= size
    return graph


@pytest.mark.parametrize(("n", "size"), [(4, 2), (10, 10), (27, 3), (40, 10), (100, 10)])
def test_zones_in_levels_are_one_hypertree_and_gateways_its_separators(n, size):
    graph, places = graph_of(n, size), [place(me, n, size) for me in range(n)]
    verify(graph, places)
    cut = {p for p, at in enumerate(places) if at.separators}
    assert {str(p) for p in cut} == set(nx.articulation_points(graph))
    for p in cut:
        (separator,) = places[p].separators
        rest = nx.connected_components(graph.subgraph(set(graph) - {str(p)}))
        assert set(separator.components) == {sum(1 << int(q) for q in part) for part in rest}


def hops_on_graph(n, size, local):
    """The same mean from shortest paths, which on a hypertree are the ways."""
    graph, total = graph_of(n, size), 0.0
    for p, lengths in nx.all_pairs_shortest_path_length(graph):
        outside = [d for q, d in lengths.items() if int(q) // size != int(p) // size]
        total += local + (1 - local) * (sum(outside) / len(outside) if outside else 1)
    return total / n


@pytest.mark.parametrize(("n", "size"), [(10, 10), (100, 10), (27, 3), (81, 3)])
def test_mean_hops_are_those_of_the_graph(n, size):
    assert mean_hops(n, size) == pytest.approx(hops_on_graph(n, size, 0.9))


def test_with_zones_entries_per_hop_stay_and_without_they_grow(seed):
    small, large = (
        {p: measure(p, n, 30 * n, seed=seed) for p in ("ks", "topological", "zoned-ks")} for n in (10, 60)
    )
    assert large["ks"].per_hop > 3 * small["ks"].per_hop
    for zoned in ("topological", "zoned-ks"):
        assert large[zoned].per_hop < 1.3 * small[zoned].per_hop
        assert large[zoned].hops == pytest.approx(mean_hops(60, 10), abs=0.1)
        assert large[zoned].per_message < large["ks"].per_message / 2
    assert small["zoned-ks"] == small["ks"]._replace(protocol="zoned-ks")


def test_only_the_hops_of_messages_of_the_second_half_count():
    sender, gateway = (create("zoned-ks", me, 20, place=place(me, 20, 10)) for me in (1, 0))
    (first,), (second,) = (sender.multicast([15], b"").effects for _ in range(2))
    (onward,), (last,) = (gateway.receive(send.message) for send in (first, second))
    sizes = _HopSizes(1)
    for sends in ([first], [second], [onward], [last]):
        assert sizes([send.message for send in sends]) == [0]
    assert (sizes.hops, sizes.entries) == (2, second.message.size()[0] + last.message.size()[0])


@pytest.mark.parametrize("n", [3, 10])
def test_rst_carries_the_square_as_its_formula_says(n):
    (send,) = create("rst", 0, n).multicast([1], b"").effects
    assert measure("rst", 10 * n, 0).per_hop == (10 * n) ** 2 and send.message.size()[0] == n * n


@pytest.mark.parametrize(("n", "size", "messages"), [(15, 10, 9), (5, 10, 9), (10, 1, 9), (10, 10, 1)])
def test_what_makes_no_zones_or_no_run_is_refused(n, size, messages):
    with pytest.raises(LocalProtocolError):
        measure("ks", n, messages, size=size)
