"""Histories of databases: whoever read a value has the one who wrote it in his past."""

import json

import pytest


def test_transactions_read_what_others_wrote(read, fixture_text):
    found = read("awdit", fixture_text("fork.awdit.txt"))
    assert found.causes() == {
        "w 0 0": set(), "w 0 1": set(), "r 0 1; r 0 0": {"w 0 0", "w 0 1"}, "w 1 1": set(),
    }  # fmt: skip
    assert found.happened_before("w 0 1", "w 1 1")
    assert {row["process"] for row in found.rows} == {"session 1", "session 2", "session 3"}
    assert found.counts == [{"sessions": 3, "writes": 3, "reads": 2}]


def test_a_value_of_nobody_or_of_several_says_nothing(read):
    found = read("awdit", "w 0 1\n=====\nw 0 1\n=====\nr 0 1\nr 9 9\n")
    assert found.causes()["r 0 1; r 9 9"] == set()


def test_transactions_that_read_from_one_another_are_a_circle(read):
    found = read("awdit", "r 1 1\n-----\nw 0 0\n=====\nr 0 0\n-----\nw 1 1\n")
    assert found.quarantined and "in a circle" in found.reasons()[0]
    assert found.stamps.ordered_pairs == 2  # the sessions alone


def test_a_line_that_is_no_step_is_quarantined(read):
    found = read("awdit", "w 0 0\nx 1 1\nw 1\n")
    assert [q.line for q in found.quarantined] == [2, 3] and len(found.rows) == 1


def test_operations_read_what_others_invoked(read, fixture_text):
    found = read("jepsen", fixture_text("appends.jepsen.json"))
    rows = {(row["process"], row["seq"]): row for row in found.rows}
    assert rows["process 2", 2]["causes"] == [{"process": "process 1", "seq": 1}]
    assert rows["process 1", 2]["causes"] is None  # the answer came later, and nobody knew of it
    assert rows["process 1", 1]["time"] == 5


@pytest.mark.parametrize("operation", ["{}", '{"type": "invoke"}', '{"process": 1, "type": "maybe"}', "7"])
def test_what_is_no_operation_is_quarantined(read, operation):
    found = read("jepsen", f"[{operation}]")
    assert found.rows == [] and found.quarantined[0].field == "type"


def test_an_operation_by_itself_has_a_key_and_a_value(read):
    add = '{"process": 0, "type": "invoke", "f": "add", "value": [3, 7]}'
    read_it = '{"process": 1, "type": "ok", "f": "read", "value": [3, [7]]}'
    found = read("jepsen", f"[{add}, {read_it}]")
    assert found.rows[1]["causes"] == [{"process": "process 0", "seq": 1}]


@pytest.mark.parametrize(
    ("wrote", "read_it"),
    [
        (("write", [1, 5]), ("read", [1, 5])),
        (("write", 5), ("read", 5)),
        (("add", 7), ("read", [7])),
        (("add", 7), ("read", [3, 7, 9])),
    ],
)
def test_registers_and_sets(read, wrote, read_it):
    operations = [
        {"process": 1, "type": "invoke", "f": wrote[0], "value": wrote[1]},
        {"process": 1, "type": "ok", "f": wrote[0], "value": wrote[1]},
        {"process": 2, "type": "invoke", "f": "read", "value": None},
        {"process": 2, "type": "ok", "f": read_it[0], "value": read_it[1]},
    ]
    found = read("jepsen", "\n".join(map(json.dumps, operations)))
    assert found.rows[3]["causes"] == [{"process": "process 1", "seq": 1}]
