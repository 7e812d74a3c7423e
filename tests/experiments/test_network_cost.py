"""What protocols carry over the links of a topology: counted by hand on a line, and in all."""

from pathlib import Path

import pyarrow as pa
import pytest

from happened.cli.options import read_terrain
from happened.core.errors import LocalProtocolError
from happened.experiments.advise import advise
from happened.experiments.compare import Comparison, compare
from happened.experiments.network_cost import candidates, replayed, simulated
from happened.experiments.replay import arrivals, numbered, recordings
from happened.sim.network import Delay, Network, parse_delay
from happened.sim.terrain import Terrain, relays
from happened.sim.workload import Workload
from happened.topology import derive, from_document, load, useful
from happened.trace import SCHEMA

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
LINE, DEPARTMENTS = EXAMPLES / "line.yaml", EXAMPLES / "departments.yaml"


def trace(*sends):
    """One message after the other: (sender, destinations); everything arrives before the next is sent."""
    rows, seq, time = [], {}, 0

    def add(process, **row):
        nonlocal time
        seq[process] = seq.get(process, 0) + 1
        time += 1000
        row = {"process": process, "seq": seq[process], "time": time, **row}
        rows.append({"computation": "", "relevant": False, **row})

    for number, (sender, to) in enumerate(sends):
        add(sender, kind="send", message=str(number), to=to)
        for each in to:
            add(each, kind="receive", message=str(number))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def costs(table, file=LINE):
    terrain = read_terrain(file)
    found = [numbered(each, terrain) for each in recordings(arrivals(table)[0])]
    return {name: replayed(name, terrain, found) for name in candidates()}


def test_links_crossed_on_a_line_are_counted_by_hand():
    """a to b, c, d: copies sent directly cross 1 + 2 + 3 links, a relayed message the three links once."""
    found = costs(trace(("a", ["b", "c", "d"])))
    assert {name: cost.crossings for name, cost in found.items()} == {
        name: 3.0 if relays(name) else 6.0 for name in found
    }
    assert all((cost.messages, cost.deliveries) == (1, 3) for cost in found.values())


def test_the_first_message_carries_nothing_and_the_second_names_it():
    first, both = trace(("a", ["b"])), trace(("a", ["c"]), ("a", ["b"]))
    for name, cost in costs(first).items():
        assert cost.crossings == 1.0 and cost.entries <= 1.0, name
    assert all(cost.crossings == (2 + 1) / 2 for cost in costs(both).values())


def test_what_routers_keep_is_told_apart():
    found = costs(trace(("ana", ["gil"]), ("eva", ["ana", "hugo"]), ("gil", ["eva"])), DEPARTMENTS)
    for name, cost in found.items():
        assert (cost.kept_by_routers is not None) is relays(name), name
        assert cost.kept is not None


def test_names_that_the_file_does_not_have_are_refused():
    with pytest.raises(
        LocalProtocolError, match="has no process called 'zoe', which takes part in the trace"
    ):
        costs(trace(("a", ["zoe"])))


def test_a_router_that_sends_in_the_trace_is_refused():
    with pytest.raises(LocalProtocolError, match="'rx' sends or is sent to in the trace"):
        costs(trace(("ana", ["rx"])), DEPARTMENTS)


def test_advice_on_a_topology_is_about_hops():
    table = trace(*[("a", ["d"]), ("d", ["a"]), ("b", ["c", "d"])] * 5)
    flat = {each.protocol: each for each in advise(table, ["histories", "topological", "ks"]).findings}
    terrain = read_terrain(LINE)
    routed = advise(table, ["histories", "topological", "ks"], terrain=terrain)
    found = {each.protocol: each for each in routed.findings}
    assert flat["topological"].added == 0 < found["topological"].added
    assert found["ks"] == flat["ks"] and found["histories"] == flat["histories"]
    assert all(each.held_at_end == 0 and each.deliveries == 20 for each in found.values())
    assert routed.optimality.holds


def test_relaying_and_direct_sending_no_longer_cost_the_same():
    """Without a topology `topological` equals `histories` in every column that is not time."""
    terrain = read_terrain(DEPARTMENTS)
    comparison = Comparison(("histories", "topological"), (9,), (1,), 300, terrain=terrain)
    direct, routed = compare(comparison)
    assert direct["undelivered"] == routed["undelivered"] == 0
    for column in ("entries", "control_bytes", "model_bytes", "log_units", "added", "held", "added_delay"):
        assert direct[column] != routed[column], column
    assert direct["added"] == 0


def test_simulated_links_are_those_of_the_routes(seed):
    """Unicast on a line: sent directly or relayed, a message crosses the same links."""
    terrain = read_terrain(LINE)
    settings = {"workload": Workload("unicast"), "network": Network(Delay("exp", (0.05,)))}
    found = [simulated(name, terrain, 200, seed=seed, **settings) for name in candidates()]
    assert len({cost.crossings for cost in found}) == 1 and found[0].crossings > 1
    assert len({cost.entries for cost in found}) == len(found)


def entries_on(topology, **options):
    """Entries per link that topological carries, of messages to one other each."""
    names = (*topology.applications, *(name for name in topology.graph if name in topology.routers))
    places = derive(topology, names=names, **options).places
    terrain = Terrain("a topology", names, len(topology.applications), places)
    common = {"seed": 1, "workload": Workload("unicast"), "network": Network(parse_delay("exp:0.05"))}
    return simulated("topological", terrain, 1500, **common).entries


def test_cuts_of_the_routes_save_more_than_half_where_the_graph_has_none():
    abilene = load(EXAMPLES / "abilene.yaml")
    assert not useful(abilene)
    assert entries_on(abilene) < 0.5 * entries_on(abilene, filter_at=[])


def test_three_gateways_filter_as_well_as_if_somebody_had_claimed_them():
    gateways = ["e1", "e2", "e3"]
    north = {"gateways": gateways, "processes": [f"n{i}" for i in range(6)], "links": "all"}
    south = {"gateways": gateways, "processes": [f"s{i}" for i in range(6)], "links": "all"}
    zones = {"zones": {"north": north, "south": south}}
    by_itself = entries_on(from_document(zones))
    assert by_itself == entries_on(from_document(zones | {"separators": [gateways]}))
    assert by_itself < 0.8 * entries_on(from_document(zones), filter_at=[])
