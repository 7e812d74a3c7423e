"""What trackers would have cost on a recorded trace is what they cost the run that recorded it."""

import json

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened import trace
from happened.cli import main
from happened.experiments.advise import advise
from happened.experiments.trackers import TRACKERS
from happened.sim.network import Network
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload


def recorded(folder, seed, tracker, protocol="ks", **more):
    settings = {"processes": 5, "messages": 200, "workload": Workload("multicast"), "relevant": 0.2} | more
    summary = simulate(Parameters(seed=seed, protocol=protocol, tracker=tracker, **settings), folder)
    return trace.read(folder / "trace"), summary["ledger"]


def by_name(table, *names):
    return {found.tracker: found for found in advise(table, ["ks"], trackers=names).trackers}


@pytest.mark.parametrize("tracker", ["vector", "p1", "p1-fifo", "p2:2", "p3-reduced"])
def test_a_tracker_costs_what_it_cost(tracker, seed, tmp_path):
    table, ledger = recorded(tmp_path / "run", seed, tracker)
    found = by_name(table, tracker)[tracker]
    rows = table.to_pylist()
    direct = sum(len(set(row["to"]) - {row["process"]}) for row in rows if row["kind"] == "send")
    assert found.not_applicable is None
    assert found.entries * direct == pytest.approx(
        ledger["tracking_entries"]["mean"] * ledger["transmissions"]
    )
    assert found.relevant_events == sum(row["relevant"] for row in rows)
    assert found.null_events == sum(row["label"] == "null event" for row in rows)
    assert (found.null_events > 0) == tracker.startswith("p2")


def test_fewest_bits_come_first_and_fifo_is_asked_for(seed, tmp_path):
    table, _ = recorded(tmp_path / "run", seed, "p1")
    found = advise(table, ["ks"], trackers=TRACKERS).trackers
    assert [each.bits for each in found] == sorted(each.bits for each in found)
    told = {each.tracker: each.tells for each in found}
    assert told["p3"] == "predecessors, vector" and told["p2:1"] == "dependencies"


def test_what_does_not_apply_says_why():
    chains = {
        "a": [
            {"kind": "send", "message": "m", "to": ["b"]},
            {"kind": "send", "message": "n", "to": ["b"]},
        ],
        "b": [{"kind": "deliver", "message": "n"}, {"kind": "deliver", "message": "m"}],
    }
    table = traces.table(traces.number(chains))
    found = by_name(table, "p1", "p1-fifo")
    assert found["p1"].relevant_events == 4  # none is marked: all are relevant
    assert found["p1-fifo"].not_applicable == (
        "it needs FIFO links, and 1 deliveries overtook a message of the same sender"
    )
    del chains["b"][1:]
    lost = by_name(traces.table(traces.number(chains)), "differential")["differential"]
    assert lost.not_applicable == "it needs links that lose nothing, and 1 messages are lost"


def test_direct_is_refused_where_nothing_relevant_comes_between(seed, tmp_path):
    table, _ = recorded(tmp_path / "run", seed, "p1", network=Network())
    assert "produce a relevant event before sending" in by_name(table, "direct")["direct"].not_applicable


def test_the_command_tells_of_trackers(seed, tmp_path, capsys):
    recorded(tmp_path / "run", seed, "p1")
    run = [str(tmp_path / "run"), "--protocols", "ks"]
    assert main(["advise", *run, "--trackers", "p1,p2:3", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "trackers on " in out and "null events in all" in out
    table = pq.read_table(tmp_path / "out" / "trackers.parquet").to_pylist()
    assert {row["tracker"] for row in table} == {"p1", "p2:3"}
    assert main(["advise", *run, "--trackers", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trackers"] == []
    with pytest.raises(SystemExit):
        main(["advise", *run, "--trackers", "p9"])
    assert "no tracking protocol is called 'p9'" in capsys.readouterr().err
