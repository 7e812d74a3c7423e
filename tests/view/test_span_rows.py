"""Spans, recorded as one event or as two, and which of them belongs to which."""

import numpy as np

from causality.traces import table
from happened import causality
from happened.view.span_rows import span_rows


def spans(rows):
    whole = table(rows)
    (c,) = causality.encode(whole)
    return c, span_rows(c, whole, np.arange(c.events))


def told(**attributes):
    return {"kind": "internal", "attributes": attributes}


def test_a_span_of_one_event_ends_where_it_says():
    _, rows = spans(
        [
            {"process": "web", "seq": 1, "time": 5, **told(trace="t", span="a", end="90")},
            {"process": "db", "seq": 1, "time": 20, **told(trace="t", span="b", end="30")}
            | {"causes": [{"process": "web", "seq": 1}]},
            {"process": "db", "seq": 2, "time": 40, **told(trace="t", span="c", end="soon")},
        ]
    )
    by_start = sorted(zip(rows.start, rows.end, rows.parent, strict=True))
    assert by_start == [(5, 90, -1), (20, 30, rows.start.index(5)), (40, None, -1)]


def test_a_span_of_two_events_ends_with_the_second():
    c, rows = spans(
        [
            {"process": "web", "seq": 1, "time": 5, **told(trace="t", span="a")},
            {"process": "web", "seq": 2, "time": 10, "kind": "send", "message": "m", "to": ["db"]},
            {"process": "web", "seq": 3, "time": 50, **told(trace="t", span="a")},
            {"process": "db", "seq": 1, "time": 20, **told(trace="t", span="b", parent="a")},
            {"process": "db", "seq": 2, "time": 30, **told(trace="t", span="b", parent="a")},
        ]
    )
    names = [(c.event(a).id, c.event(b).id) for a, b in zip(rows.first, rows.last, strict=True)]
    assert sorted(names) == [("db#1", "db#2"), ("web#1", "web#3")]
    ends = dict(zip(names, rows.end, strict=True))
    assert ends == {("db#1", "db#2"): 30, ("web#1", "web#3"): 50}


def test_both_halves_of_a_shared_id_are_spans():
    _, rows = spans(
        [
            {"process": "web", "seq": 1, "time": 5, **told(trace="t", span="a", end="90", kind="client")},
            {"process": "db", "seq": 1, "time": 20, **told(trace="t", span="a", end="80", kind="server")}
            | {"causes": [{"process": "web", "seq": 1}]},
        ]
    )
    assert rows.parent[rows.start.index(20)] == rows.start.index(5)


def test_spans_beyond_the_bound_are_counted(monkeypatch):
    monkeypatch.setattr("happened.view.span_rows.MOST_SPANS", 3)
    _, rows = spans(
        [{"process": "p", "seq": k, "time": k, **told(trace="t", span=str(k), end="99")} for k in range(1, 8)]
    )
    assert (len(rows), rows.left_out) == (3, 4)
