"""What trackers recorded in a trace is verified from its events alone, and every kind of fault is named."""

from random import Random

import pyarrow as pa
import pytest

from happened import trace
from happened.causality.analysis import analyse
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.trace.tracker_attributes import name_in, tracker_attributes
from happened.tracking import protocols

EVERY = ["p2:2" if name == "p2" else name for name in protocols() if name != "direct"]
"""`direct` refuses to send where the simulated application has no event of its own in between."""


def simulated(folder, seed, tracker, protocol="ks", pattern="multicast"):
    settings = {"processes": 5, "messages": 150, "workload": Workload(pattern), "relevant": 0.3}
    simulate(Parameters(seed=seed, protocol=protocol, tracker=tracker, **settings), folder)
    return trace.read(folder / "trace")


def verify(table):
    found = analyse(table, questions=["verify-trackers"])
    faults = sorted((row["process"], row["seq"], row["fault"]) for row in found.table("trackers").to_pylist())
    assert found.totals["tracker_faults"] == len(faults)
    return found.totals["tracker_stamps"], faults


def numbered(table):
    rows = table.to_pylist()
    return [row for row in rows if "relevant_seq" in dict(row["attributes"] or ())]


def altered(table, row, **attributes):
    """The same trace with other attributes at one event; None takes one away."""
    rows = table.to_pylist()
    for each in rows:
        if (each["process"], each["seq"]) == (row["process"], row["seq"]):
            told = dict(each["attributes"]) | attributes
            each["attributes"] = [(key, value) for key, value in told.items() if value is not None]
    return pa.Table.from_pylist(rows, schema=table.schema)


@pytest.mark.parametrize("tracker", EVERY)
def test_what_a_tracker_told_is_right(tracker, seed, tmp_path):
    """With messages to several: a null event that one copy needs must have been told to all."""
    table = simulated(tmp_path, seed, tracker)
    stamps, faults = verify(table)
    assert stamps == len(numbered(table)) > 50 and faults == []


@pytest.mark.parametrize(
    ("tracker", "told"),
    [
        ("p1", "vector"),
        ("p3-reduced", "vector"),
        ("p3-reduced", "predecessors"),
        ("p2:2", "dependencies"),
        ("incremental", "dependencies"),
    ],
)
def test_a_count_that_is_one_less_is_found(tracker, told, dice: Random, tmp_path):
    table = simulated(tmp_path, dice.randrange(1000), tracker)
    rows = [row for row in numbered(table) if dict(row["attributes"])[told]]
    for row in dice.sample(rows, 5):
        entries = dict(row["attributes"])[told].split()
        own = f"{row['process']}:{dict(row['attributes'])['relevant_seq']}"
        # Of a dependency vector only its own entry is sure to matter: another may follow from the rest.
        at = entries.index(own) if told == "dependencies" else dice.randrange(len(entries))
        name, count = entries[at].split(":")
        entries[at] = f"{name}:{int(count) - 1}"
        expected = [(row["process"], row["seq"], told)]
        assert verify(altered(table, row, **{told: " ".join(entries)}))[1] == expected


@pytest.mark.parametrize(
    ("tracker", "attributes", "fault"),
    [
        ("p1", {"relevant_seq": "999"}, "number"),
        ("p1", {"relevant_seq": "one"}, "unreadable"),
        ("p1", {"vector": "p0:1,p1:2"}, "unreadable"),
        ("p1", {"vector": ""}, "vector"),
        ("p1", {"vector": "nobody:3"}, "vector"),
        ("p3", {"predecessors": "nobody:3"}, "predecessors"),
        ("p3", {"predecessors": "p0:999"}, "predecessors"),
        ("lamport", {"scalar": "999"}, "scalar"),
        ("lamport", {"scalar": "-1"}, "unreadable"),
        ("p2:2", {"dependencies": "p0:999"}, "dependencies"),
    ],
)
def test_what_cannot_be_is_named(tracker, attributes, fault, seed, tmp_path):
    table = simulated(tmp_path, seed, tracker)
    row = numbered(table)[-1]
    assert verify(altered(table, row, **attributes))[1] == [(row["process"], row["seq"], fault)]


def test_dependencies_that_leave_something_out_are_found(seed, tmp_path):
    """An entry that is needed is one without which the vector cannot be rebuilt."""
    table = simulated(tmp_path, seed, "p2:1")
    found = 0
    for row in numbered(table):
        told = dict(row["attributes"])
        for entry in told["dependencies"].split():
            if not entry.startswith(row["process"]):
                rest = told["dependencies"].replace(entry, "").replace("  ", " ").strip()
                faults = verify(altered(table, row, dependencies=rest))[1]
                assert faults in ([], [(row["process"], row["seq"], "dependencies")])
                found += bool(faults)
        if found > 3:
            return
    pytest.fail("no entry mattered")


def test_null_events_are_not_the_applications(seed, tmp_path):
    table = simulated(tmp_path, seed, "p2:1")
    null = [row for row in numbered(table) if "null" in dict(row["attributes"])]
    assert null and not any(row["relevant"] for row in null)
    assert {row["label"] for row in numbered(table) if row["relevant"]} == {"relevant event"}


def test_a_null_event_that_is_lost_is_found(seed, tmp_path):
    """What today's snapshots lose: the events after it have numbers that leave a gap."""
    table = simulated(tmp_path, seed, "p2:1")
    row = next(row for row in numbered(table) if "null" in dict(row["attributes"]))
    _, faults = verify(altered(table, row, relevant_seq=None))
    assert (row["process"], "number") in {(process, fault) for process, _, fault in faults}


def test_many_computations_are_verified_in_one_union(seed, tmp_path):
    tables = []
    for number in range(6):
        table = simulated(tmp_path / str(number), seed + number, "p3-reduced")
        column = pa.array([f"run {number}"] * table.num_rows)
        tables.append(table.set_column(0, table.schema.field(0), column))
    table = pa.concat_tables(tables)
    stamps, faults = verify(table)
    assert stamps == len(numbered(table)) and faults == []


def test_names_with_spaces_and_colons_can_be_read_back():
    told = tracker_attributes("p1", 2, vector={"a b:c%": 2, "Zoë": 1}, null=True)
    assert told["vector"] == "a%20b%3Ac%25:2 Zo%C3%AB:1" and told["null"] == "true"
    assert [name_in(each.split(":")[0]) for each in told["vector"].split(" ")] == ["a b:c%", "Zoë"]
