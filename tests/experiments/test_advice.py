"""Advice: replays carry what the recorded run carried, assumptions are read off the trace, ks is optimal."""

import random

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened import causality, trace
from happened.core.errors import TraceFormatError
from happened.experiments import advise as advising
from happened.experiments.advise import Optimality, advise, compare_with_necessary, write_advice
from happened.experiments.replay import Replay, arrivals, recordings
from happened.ordering import protocols
from happened.sim.network import Network
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload

ALL = tuple(protocols())


def send(message, *to, **more):
    return {"kind": "send", "message": message, "to": list(to), **more}


def receive(message, **more):
    return {"kind": "receive", "message": message, **more}


def deliver(message, **more):
    return {"kind": "deliver", "message": message, **more}


def advised(chains, names=ALL):
    return advise(traces.table(traces.number(chains)), names)


def by_protocol(advice):
    return {finding.protocol: finding for finding in advice.findings}


def applicable(advice):
    return {finding.protocol for finding in advice.findings if finding.not_applicable is None}


def broken(advice):
    return {assumption.name for assumption in advice.assumptions if not assumption.holds}


def simulated(tmp_path, protocol, pattern, **network):
    parameters = Parameters(7, protocol, 5, 300, Workload(pattern), Network(**network))
    return simulate(parameters, tmp_path / "run"), trace.read(tmp_path / "run")


# The reply overtakes the question: a asks b and c, b answers c, and c gets the answer first.
OVERTAKEN = {
    "a": [send("question", "b", "c", time=0)],
    "b": [deliver("question", time=10), send("answer", "c", time=20)],
    "c": [deliver("answer", time=30), deliver("question", time=45)],
}
PING_PONG = {
    "a": [send("ping", "b"), deliver("pong")],
    "b": [deliver("ping"), send("pong", "a")],
}


@pytest.mark.parametrize("protocol", ["ks", "pruning", "rst", "prs", "ses"])
@pytest.mark.parametrize("pattern", ["unicast", "multicast", "broadcast"])
def test_a_replay_of_the_protocol_that_ran_carries_and_waits_as_it_did(protocol, pattern, tmp_path):
    summary, table = simulated(tmp_path, protocol, pattern)
    ledger = summary["ledger"]
    found = by_protocol(advise(table, [protocol]))[protocol]
    for name in ("entries", "units", "control_bytes", "model_bytes"):
        assert getattr(found, name) == pytest.approx(ledger[name]["mean"])
    assert found.control_bytes > 0
    assert found.added_delay == pytest.approx(ledger["wait"]["mean"]) and found.added_delay > 0
    assert (found.added, found.held_at_end, found.deliveries) == (0, 0, ledger["deliveries"])


def test_what_one_protocol_recorded_says_what_another_would_have_carried(tmp_path):
    summary, _ = simulated(tmp_path / "ks", "ks", "multicast")
    _, recorded_by_rst = simulated(tmp_path / "rst", "rst", "multicast")
    found = by_protocol(advise(recorded_by_rst, ["ks"]))["ks"]
    assert found.units == pytest.approx(summary["ledger"]["units"]["mean"])


def test_duplicates_are_replayed_and_change_nothing(tmp_path):
    summary, table = simulated(tmp_path, "ks", "multicast", duplicate=0.3)
    advice = advise(table, ALL)
    assert advice.survey["repeated"] > 50 and any("duplicates" in said for said in advice.notes)
    found = by_protocol(advice)
    assert found["ks"].units == pytest.approx(summary["ledger"]["units"]["mean"])
    assert {f.deliveries for name, f in found.items() if name in applicable(advice)} == {
        summary["ledger"]["deliveries"]
    }


def test_deliveries_no_protocol_allows_are_arrivals_and_the_advice_says_so():
    advice = advised(OVERTAKEN)
    assert advice.survey["early"] == 1 and advice.survey["stand_ins"] == 3
    assert "1 of 3 recorded deliveries came in an order that no causal protocol allows" in advice.notes[0]
    assert "taken as arrivals, not as deliveries" in advice.notes[0]
    assert "3 deliveries have no recorded arrival and are taken for it" in advice.notes[1]
    ks = by_protocol(advice)["ks"]
    assert (ks.deliveries, ks.delayed, ks.held_at_end) == (3, 1, 0)
    assert ks.added_delay == pytest.approx(15e-9 / 3)  # the answer waits for the question from 30 to 45
    assert ks.added_events == pytest.approx(1 / 3)


def test_recorded_arrivals_come_before_recorded_deliveries():
    chains = OVERTAKEN | {
        "c": [
            receive("answer", time=30),
            receive("question", time=40),
            deliver("question", time=50),
            deliver("answer", time=60),
        ]
    }
    advice = advised(chains, ["ks"])
    assert advice.survey["early"] == 0 and advice.survey["stand_ins"] == 1
    assert by_protocol(advice)["ks"].added_delay == pytest.approx(10e-9 / 3)


def test_a_clock_that_runs_behind_its_messages_is_moved_forward():
    chains = {
        "a": [send("m", "b", time=1000)],
        "b": [receive("m", time=3), {"kind": "internal"}],
    }
    [recording] = recordings(arrivals(traces.table(traces.number(chains)))[0])
    assert recording.moments.tolist() == [1000] * 3


def test_without_times_delays_are_in_local_events():
    chains = {
        process: [{k: v for k, v in event.items() if k != "time"} for event in events]
        for process, events in OVERTAKEN.items()
    }
    advice = advised(chains, ["ks"])
    ks = by_protocol(advice)["ks"]
    assert ks.added_delay is None and ks.added_events == pytest.approx(1 / 3)
    assert any("lack times" in said for said in advice.notes)


def test_what_is_lost_never_arrives_and_what_waits_for_it_is_held():
    chains = OVERTAKEN | {"c": [deliver("answer", time=30)]}
    advice = advised(chains)
    assert broken(advice) >= {"reliable links"}
    found = by_protocol(advice)
    assert found["ks"].held_at_end == found["rst"].held_at_end == 1
    assert found["cbcast"].held_at_end == 0  # the answer carries the question


def test_what_never_leaves_its_sender_is_held_and_does_not_thin_the_figures_out():
    chains = {"a": [send("lost", "b"), *(send(f"m{k}", "b") for k in range(9))], "b": []}
    chains["b"] = [receive(f"m{k}") for k in range(9)]
    found = by_protocol(advised(chains, ["causal-total"]))["causal-total"]
    assert (found.deliveries, found.held_at_end) == (0, 9)
    assert found.entries == 1  # the first phase of the one that left


def test_unicasts_make_acknowledged_applicable():
    chains = {
        "a": [send("m", "b"), send("n", "c")],
        "b": [deliver("m"), send("o", "c")],
        "c": [deliver("o"), deliver("n")],
    }
    advice = advised(chains)
    found = by_protocol(advice)
    assert "unicast only" not in broken(advice) and "acknowledged" in applicable(advice)
    assert (found["acknowledged"].control_bytes, found["acknowledged"].added) == (0, 1)
    assert "offers only broadcast" in found["bss"].not_applicable
    assert advice.findings[0].protocol == "acknowledged"


def test_a_multicast_rules_out_acknowledged():
    chains = OVERTAKEN | {"d": [{"kind": "internal"}]}
    advice = advised(chains)
    found = by_protocol(advice)
    assert {"unicast only", "broadcast only"} <= broken(advice)
    assert "the trace is multicast; acknowledged offers only unicast" in found["acknowledged"].not_applicable
    assert found["acknowledged"].control_bytes is None
    ranked = [finding.not_applicable is None for finding in advice.findings]
    assert ranked == sorted(ranked, reverse=True)


def test_broadcasts_make_the_broadcast_protocols_applicable(tmp_path):
    _, table = simulated(tmp_path, "ks", "broadcast", fifo=True)
    advice = advise(table, ALL)
    assert broken(advice) == {"unicast only", "serialized sends"}
    assert applicable(advice) == {*ALL} - {"acknowledged", "serialized-broadcast", "serialized-multicast"}
    sizes = [f.control_bytes for f in advice.findings if f.not_applicable is None]
    assert sizes == sorted(sizes)
    assert {f.held_at_end for f in advice.findings if f.not_applicable is None} == {0}


def test_flooding_needs_the_fifo_links_that_a_trace_may_lack():
    chains = {
        "a": [send("m", "b"), send("n", "b")],
        "b": [receive("n"), receive("m")],
    }
    advice = advised(chains)
    assert "FIFO links" in broken(advice)
    assert "needs FIFO links; 1 arrivals" in by_protocol(advice)["flooding"].not_applicable


def test_serialized_sends_are_seen():
    advice = advised(PING_PONG)
    assert "serialized sends" not in broken(advice)
    assert {"serialized-multicast", "serialized-broadcast"} <= applicable(advice)
    apart = advised({"a": [send("m", "b")], "b": [send("n", "a")]})
    assert "needs serialized sends" in by_protocol(apart)["serialized-multicast"].not_applicable


def test_groups_are_those_of_the_trace():
    chains = {
        "a": [send("m", "b", "c"), send("n", "c", "d")],
        "b": [deliver("m")],
        "c": [deliver("m"), deliver("n")],
        "d": [deliver("n")],
    }
    advice = advised(chains)
    assert advice.survey["groups"] == 2 and "fixed groups" not in broken(advice)
    assert "bss-groups" in applicable(advice) and "bss" not in applicable(advice)


def test_too_many_groups_are_no_fixed_ones(monkeypatch):
    monkeypatch.setattr("happened.experiments.survey.MOST_GROUPS", 1)
    chains = {"a": [send("m", "b", "c"), send("n", "b")], "b": [deliver("m"), deliver("n")]}
    advice = advised(chains)
    assert "fixed groups" in broken(advice)
    assert "2 different groups" in by_protocol(advice)["bss-groups"].not_applicable


def test_computations_are_replayed_apart_and_counted_together():
    rows = [row for k in range(3) for row in traces.number(PING_PONG, f"request{k}")]
    idle = traces.number({"x": [{"kind": "internal"}]}, "idle")
    advice = advise(traces.table(rows + idle), ["ks", "bss-groups", "bss"])
    assert (advice.survey["computations"], advice.survey["messages"]) == (4, 6)
    assert applicable(advice) == {"ks", "bss-groups", "bss"}
    assert by_protocol(advice)["ks"].deliveries == 6


def test_a_protocol_that_carries_what_was_lost_for_ever_is_stopped(monkeypatch):
    monkeypatch.setattr("happened.experiments.replay.RUNAWAY", 100)
    chains = {"a": [send("lost", "b"), *(send(f"m{k}", "b") for k in range(40))], "b": []}
    assert "stopped after" in by_protocol(advised(chains))["cbcast"].not_applicable


@pytest.mark.parametrize("make", [traces.wild, lambda dice: traces.number(traces.causal(dice))])
def test_ks_carries_the_necessary_units_of_its_own_replay_on_every_edge(make, seed):
    units = 0
    for number in range(60):
        try:
            advice = advise(traces.table(make(random.Random(seed + number))), ["ks"])
        except TraceFormatError:  # a wild one with a cycle
            continue
        if advice.optimality is not None:
            assert advice.optimality.holds, seed + number
            units += advice.optimality.carried
    assert units > 50


def test_carrying_more_than_necessary_is_reported(tmp_path):
    _, table = simulated(tmp_path, "ks", "multicast")
    [recording] = recordings(arrivals(table)[0])
    replay = Replay("rst", recording)
    replay.run()
    found = compare_with_necessary(replay, recording)
    assert not found.holds and found.carried > found.necessary and 0 < found.differing <= found.edges


def test_the_necessary_information_is_that_of_the_trace_where_ks_would_have_delivered_alike(tmp_path):
    _, table = simulated(tmp_path, "ks", "multicast")
    needed = sum(int(of.edge_counts.sum()) for of in causality.necessary(table).computations)
    assert advise(table, ["ks"]).optimality == Optimality(
        needed, needed, advise(table, []).survey["copies"], 0
    )


def test_the_table_has_a_ranked_row_per_protocol(tmp_path):
    advice = advised(OVERTAKEN)
    write_advice(advice, tmp_path / "advice.parquet")
    rows = pq.read_table(tmp_path / "advice.parquet")
    assert rows.schema.equals(advising.ADVICE) and rows["protocol"].to_pylist() == [
        finding.protocol for finding in advice.findings
    ]
    ranks = rows["rank"].to_pylist()
    known = len(applicable(advice))
    assert ranks == [*range(1, known + 1), *[None] * (len(ALL) - known)]
