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


def test_start_and_end_of_a_call_are_one_span_and_its_server_belongs_to_it():
    def half(kind, event, **more):
        return {"attributes": {"trace": "t", "span": "s", "kind": kind, "event": event, **more}}

    c, rows = spans(
        [
            {"process": "web", "seq": 1, "time": 1, **told(trace="t", span="root", event="start", end="99")},
            {"process": "web", "seq": 2, "time": 10, "kind": "send", "message": "m", "to": ["db"]}
            | half("client", "start", end="60", edge="parent"),
            {"process": "web", "seq": 3, "time": 60, "kind": "deliver", "message": "back"}
            | half("client", "end", edge="return"),
            {"process": "db", "seq": 1, "time": 20, "kind": "deliver", "message": "m"}
            | half("server", "start", end="50", edge="request"),
            {"process": "db", "seq": 2, "time": 50, "kind": "send", "message": "back", "to": ["web"]}
            | half("server", "end", edge="span"),
            {"process": "web", "seq": 4, "time": 99, **told(trace="t", span="root", event="end")},
        ]
    )
    names = [(c.event(a).id, c.event(b).id) for a, b in zip(rows.first, rows.last, strict=True)]
    assert sorted(names) == [("db#1", "db#2"), ("web#1", "web#4"), ("web#2", "web#3")]
    parents = {
        name: rows.parent[i] if rows.parent[i] < 0 else names[rows.parent[i]] for i, name in enumerate(names)
    }
    root, client, server = ("web#1", "web#4"), ("web#2", "web#3"), ("db#1", "db#2")
    assert parents == {root: -1, client: root, server: client}
    assert dict(zip(names, rows.end, strict=True)) == {root: 99, client: 60, server: 50}


def test_spans_beyond_the_bound_are_counted(monkeypatch):
    monkeypatch.setattr("happened.view.span_rows.MOST_SPANS", 3)
    _, rows = spans(
        [{"process": "p", "seq": k, "time": k, **told(trace="t", span=str(k), end="99")} for k in range(1, 8)]
    )
    assert (len(rows), rows.left_out) == (3, 4)
