"""Simulated over the links of a topology: who transmits to whom, how long that takes, and who sends."""

from itertools import pairwise
from pathlib import Path

import networkx as nx
import pyarrow.parquet as pq
import pytest

from happened.causality import check_delivery, check_order
from happened.cli.options import read_terrain
from happened.core.errors import LocalProtocolError
from happened.ordering import create, protocols
from happened.sim.explore import explore
from happened.sim.network import Delay, Network
from happened.sim.run import Parameters, simulate
from happened.sim.terrain import Roads, relays
from happened.sim.workload import Workload
from happened.topology import derive, load
from happened.trace import read

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
DEPARTMENTS, LINE = EXAMPLES / "departments.yaml", EXAMPLES / "line.yaml"
RELAYING = [name for name in protocols() if relays(name)]
HUB = "processes: [a, b]\nrouters: [r]\nlinks: [[a, r], [b, r]]\n"


def run(tmp_path, protocol, seed, messages=150, file=DEPARTMENTS):
    terrain = read_terrain(file)
    parameters = Parameters(seed, protocol, terrain.applications, messages, terrain=terrain)
    summary = simulate(parameters, tmp_path)
    return terrain, summary, read(tmp_path)


@pytest.mark.parametrize("protocol", ["ks", *RELAYING])
def test_applications_talk_in_order_and_routers_do_not(tmp_path, seed, protocol):
    _, summary, trace = run(tmp_path, protocol, seed)
    assert summary["parameters"]["topology"] == str(DEPARTMENTS)
    deliveries = check_delivery(trace)
    assert (deliveries.messages, deliveries.lost, deliveries.misdelivered) == (150, 0, 0)
    assert check_order(trace, "causal").holds
    topology = load(DEPARTMENTS)
    kinds = trace.select(["process", "kind"]).to_pylist()
    assert {row["process"] for row in kinds if row["kind"] == "send"} <= set(topology.applications)
    seen = {row["process"] for row in kinds} & topology.routers
    assert bool(seen) is relays(protocol)


@pytest.mark.parametrize("protocol", ["ks", *RELAYING])
def test_what_relays_crosses_one_link_at_a_time(tmp_path, seed, protocol):
    terrain, _, _ = run(tmp_path, protocol, seed)
    made = pq.read_table(tmp_path / "ledger" / "transmissions.parquet").select(["sender", "to"]).to_pylist()
    crossed = {terrain.links(row["sender"], row["to"]) for row in made}
    assert (crossed == {1}) is relays(protocol) and len(made) > 150
    graph = load(DEPARTMENTS).graph
    linked = {graph.has_edge(terrain.names[row["sender"]], terrain.names[row["to"]]) for row in made}
    assert (linked == {True}) is relays(protocol)


def test_a_message_takes_the_same_time_over_a_link_whoever_carries_it():
    terrain = read_terrain(DEPARTMENTS)
    roads = Roads(terrain, Delay("exp", (0.1,)), 1)
    ana, ines = terrain.names.index("ana"), terrain.names.index("ines")
    way = terrain.path(ana, ines)
    assert [terrain.names[p] for p in way] == derive(load(DEPARTMENTS)).path("ana", "ines")
    hops = [roads.delay(ana, 1, a, b) for a, b in pairwise(way)]
    assert sum(hops) == roads.delay(ana, 1, ana, ines) and len(set(hops)) == 5
    assert roads.delay(ana, 2, *way[:2]) != hops[0]


@pytest.mark.parametrize("protocol", RELAYING)
def test_nothing_is_delivered_before_its_route_could_bring_it(tmp_path, seed, protocol):
    """Each delivery is at least as late as the sum of the delays over the links of its route."""
    terrain = read_terrain(DEPARTMENTS)
    network, workload = Network(Delay("constant", (0.05,))), Workload("unicast")
    parameters = Parameters(seed, protocol, terrain.applications, 100, workload, network, terrain=terrain)
    simulate(parameters, tmp_path)
    graph, index = load(DEPARTMENTS).graph, {name: i for i, name in enumerate(terrain.names)}
    sent = {}
    for row in sorted(read(tmp_path).to_pylist(), key=lambda row: row["time"]):
        if row["kind"] == "send":
            sent[row["message"]] = row["time"], row["process"]
        elif row["kind"] == "deliver":
            when, sender = sent[row["message"]]
            links = terrain.links(index[sender], index[row["process"]])
            assert row["time"] - when >= links * 50_000_000
            assert links >= nx.shortest_path_length(graph, sender, row["process"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"processes": 5}, "has 9 processes that send, not 5"),
        ({"tracker": "p1"}, "a tracker and a topology"),
    ],
)
def test_what_does_not_fit_a_topology_is_refused(changed, said):
    terrain = read_terrain(DEPARTMENTS)
    with pytest.raises(LocalProtocolError, match=said):
        Parameters(**{"seed": 1, "protocol": "topological", "processes": 9, "terrain": terrain} | changed)


def test_a_lonely_process_has_nobody_to_send_to(tmp_path):
    file = tmp_path / "lonely.yaml"
    file.write_text("processes: [a]\nrouters: [r]\nlinks: [[a, r]]\n")
    with pytest.raises(LocalProtocolError, match="fewer than two processes"):
        read_terrain(file)


# Explored.


@pytest.mark.parametrize("protocol", RELAYING)
def test_every_interleaving_through_a_router(tmp_path, protocol):
    file = tmp_path / "hub.yaml"
    file.write_text(HUB)
    terrain = read_terrain(file)
    found = explore(terrain.factory(protocol), 2, 3, renamed=True, routers=1)
    assert not found.violations
    assert found.programs == 108  # three sends in all, of two processes, each to one of three sets
    assert found.states > 2 * explore(protocol, 2, 3, renamed=True).states  # it has hops to interleave


def test_a_router_that_forwards_nothing_is_found(tmp_path):
    file = tmp_path / "hub.yaml"
    file.write_text(HUB)
    terrain = read_terrain(file)

    def make(me, n):
        machine = terrain.factory("topological")(me, n)
        if me == 2:
            machine._pass_on = lambda carried, hop=None: []
        return machine

    assert explore(make, 2, 1, routers=1).counts()["liveness"]


def test_without_a_topology_machines_stand_next_to_everybody():
    assert create("topological", 0, 3).place.neighbours == 0b110
