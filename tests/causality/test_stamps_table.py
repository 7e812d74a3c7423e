"""The table of stamps: clocks as arrays by the numbers of processes, and back to names."""

import numpy as np
import pyarrow as pa
import pytest

from causality import traces
from happened import causality
from happened.causality import computation, encode, epochs
from happened.causality.analysis import analyse, clock_maps
from happened.causality.questions import stamp
from happened.core.errors import TraceFormatError


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


def wide_and_narrow():
    """Three processes of which one never acts, and one alone: vectors of the union are three wide."""
    pair = {"b": [send("m", "a", "c"), send("n", "a")], "a": [deliver("m"), deliver("n")]}
    rows = traces.number(pair, "pair")
    rows += traces.number({"z": [{"kind": "internal"}, {"kind": "internal"}]}, "single")
    return traces.table(rows)


def by_event(analysis, column):
    rows = analysis.table("stamps").to_pylist()
    return {(row["process"], row["seq"]): row[column] for row in rows}


def test_a_clock_has_an_entry_for_each_process_of_its_own_computation():
    found = analyse(wide_and_narrow(), questions=["stamp"])
    assert by_event(found, "clock") == {
        ("a", 1): [1, 1, 0], ("a", 2): [2, 2, 0], ("b", 1): [0, 1, 0], ("b", 2): [0, 2, 0],
        ("z", 1): [1], ("z", 2): [2],
    }  # fmt: skip
    assert set(by_event(found, "entries").values()) == {None}
    assert [tuple(row.values()) for row in found.table("processes").to_pylist()] == [
        ("pair", "a", 0, 2), ("pair", "b", 1, 2), ("pair", "c", 2, 0), ("single", "z", 0, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("timestamps", "entries"),
    [
        ("sparse", {("a", 1): [(0, 1), (1, 1)], ("a", 2): [(0, 2), (1, 2)], ("b", 2): [(1, 2)]}),
        ("predecessors", {("a", 1): [(1, 1)], ("a", 2): [(0, 1), (1, 2)], ("b", 1): []}),
    ],
)
def test_shorter_forms_have_entries_by_number(timestamps, entries):
    found = analyse(wide_and_narrow(), timestamps=timestamps, questions=["stamp"])
    assert set(by_event(found, "clock").values()) == {None}
    told = by_event(found, "entries")
    for event, expected in entries.items():
        assert sorted((entry["p"], entry["seq"]) for entry in told[event]) == expected, event


@pytest.mark.parametrize("timestamps", ["full", "sparse", "predecessors"])
def test_clocks_by_name_are_those_by_number(dice, timestamps):
    """Of random computations in one union, against what each says of itself."""
    alone = [traces.table(traces.number(traces.causal(dice), f"c{i}")) for i in range(20)]
    table = pa.concat_tables([*alone, wide_and_narrow()])
    found = analyse(table, timestamps=timestamps, questions=["stamp"])
    processes = found.table("processes")
    shuffled = processes.take(dice.sample(range(len(processes)), len(processes)))
    clocks = clock_maps(found.table("stamps"), shuffled).to_pylist()
    stamps, causes = causality.stamp(table), immediate_causes(table)
    for row, clock in zip(found.table("stamps").to_pylist(), clocks, strict=True):
        computation, process, seq = row["computation"], row["process"], row["seq"]
        expected = stamps.vector(process, seq, computation)
        if timestamps == "sparse" and seq > 1:
            before = stamps.vector(process, seq - 1, computation)
            expected = {name: count for name, count in expected.items() if before.get(name) != count}
        elif timestamps == "predecessors":
            expected = causes.get((computation, process, seq), {})
        assert dict(clock) == expected


def immediate_causes(table):
    causes = {}
    for row in analyse(table, questions=["predecessors"]).table("predecessors").to_pylist():
        event = row["computation"], row["process"], row["seq"]
        causes.setdefault(event, {})[row["cause_process"]] = row["cause_seq"]
    return causes


@pytest.mark.parametrize("timestamps", ["full", "sparse"])
def test_clocks_beyond_what_one_piece_of_a_column_holds_are_several(monkeypatch, timestamps):
    expected = analyse(wide_and_narrow(), timestamps=timestamps).table("stamps")
    monkeypatch.setattr(stamp, "MOST_ENTRIES", 6)
    found = analyse(wide_and_narrow(), timestamps=timestamps).table("stamps")
    assert found["clock" if timestamps == "full" else "entries"].num_chunks > 2
    assert found.to_pylist() == expected.to_pylist()


def test_a_process_longer_than_its_numbers_reach_is_refused(monkeypatch):
    monkeypatch.setattr(computation, "MOST_EVENTS", 1)
    with pytest.raises(
        TraceFormatError, match="process 'a' has 2 events, and vectors count 1 of one process"
    ):
        encode(wide_and_narrow())


def test_an_epoch_that_ends_beyond_what_vectors_count_is_refused():
    most = 2**31 - 1
    none = np.empty(0, np.int64)
    one = np.array([0])
    entering = epochs.Frontier(
        np.array([most - 1]), one, np.array([most - 1]), np.array([[most - 1]], np.int32)
    )
    last = epochs.Epoch(1, one, np.array([most]), np.array([0, 0]), none, none, ("p",))
    stamped, leaving = epochs.stamp(last, entering)
    assert stamped.event_vectors().tolist() == [[most]]
    beyond = epochs.Epoch(1, one, np.array([most + 1]), np.array([0, 0]), none, none, ("p",))
    with pytest.raises(TraceFormatError, match="process 'p' has 2,147,483,648 events"):
        epochs.stamp(beyond, leaving)
