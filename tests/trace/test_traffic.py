"""Who sends to whom: each pair once, whatever arrived."""

import json

from happened import trace
from happened.trace.traffic import traffic


def test_every_pair_counts_once(tmp_path):
    rows = [
        {"process": "b", "seq": 1, "kind": "send", "message": "2", "to": ["d"]},
        {"process": "a", "seq": 1, "kind": "send", "message": "1", "to": ["b", "c", "a"]},
        {"process": "b", "seq": 2, "kind": "deliver", "message": "1"},
        {"process": "d", "seq": 1, "kind": "internal"},
        {"computation": "other", "process": "a", "seq": 1, "kind": "send", "message": "1", "to": []},
        {"process": "a", "seq": 2, "kind": "send", "message": "3", "to": ["b"]},
        {"computation": "other", "process": "a", "seq": 2, "kind": "send", "message": "2", "to": ["e"]},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert traffic(trace.read(path)) == [("a", "b"), ("a", "c"), ("a", "e"), ("b", "d")]


def test_a_trace_without_sends_has_none(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"process": "a", "seq": 1, "kind": "internal"}) + "\n")
    assert traffic(trace.read(path)) == []
