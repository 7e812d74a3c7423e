"""Formats of spans that are read into the same model: what of each becomes a process, a kind, a time, a
call.
"""

import json

import pytest

from happened import causality
from happened.trace.readers.detection import detect


def told(found):
    """Label -> (process, kind of event, time), of starts."""
    return {
        row["label"]: (row["process"], row["kind"], row["time"])
        for row in found.rows
        if row["attributes"]["event"] == "start"
    }


def test_spans_that_an_sdk_prints(read, fixture_text):
    found = read("otel-sdk", fixture_text("console.otel.json"))
    assert told(found) == {
        "plan": ("agent@i1", "send", 1_714_557_600_000_001_000),
        "tool": ("tools", "deliver", 1_714_557_600_500_000_000),
    }
    plan = found.rows[0]["attributes"]
    assert (plan["error"], plan["tokens"], plan["span"]) == ("true", "12", "01")
    assert found.happened_before("tool (end)", "plan (end)")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T01:00:01+01:00", 10**9),
        ("1970-01-01T00:00:01", 10**9),
        (1_700_000_000, 1_700_000_000 * 10**9),
        (1_700_000_000.25, 1_700_000_000_250_000_000),
        (1_700_000_000_250, 1_700_000_000_250_000_000),
        (1_700_000_000_250_000, 1_700_000_000_250_000_000),
        ("1700000000250000001", 1_700_000_000_250_000_001),
        (None, None),
    ],
)
def test_times_of_agent_frameworks(read, time, expected):
    record = {"trace_id": "t", "span_id": "s", "parent_id": None, "name": "n", "start_time": time}
    found = read("otel-sdk", json.dumps(record))
    assert found.rows[0]["time"] == expected
    assert found.rows[0]["process"] == "unknown_service"


@pytest.mark.parametrize("indent", [None, 4])
def test_spans_among_other_lines_of_a_console(read, indent):
    spans = [{"name": n, "context": {"trace_id": "t", "span_id": n}, "parent_id": None} for n in "abc"]
    a, b, c = (json.dumps(span, indent=indent) for span in spans)
    found = read("otel-sdk", f"Listening on 8080\n{a}\n[INFO] a request\n17 {{x}}\n{b}\r\n{c[:20]}\n{c}\n")
    starts = [row["label"] for row in found.rows if row["attributes"]["event"] == "start"]
    told = [(q.line, q.text.partition(" ")[0]) for q in found.quarantined]
    if indent is None:
        assert starts == ["a", "b", "c"]
        assert told == [(1, "Listening"), (3, "[INFO]"), (4, "17"), (6, '{"name":')]
    else:  # a broken document over several lines may hold anything
        assert starts[:2] == ["a", "b"]
        assert told[:3] == [(1, "Listening"), (10, "[INFO]"), (11, "17")]


def test_a_table_of_spans_of_an_agent_framework(read, tmp_path):
    """As Phoenix exports them: columns with dots in their names, times in milliseconds."""
    columns = {"context.trace_id": "t", "start_time": 1_700_000_000_250, "end_time": 1_700_000_000_500}
    plan = {"name": "plan", "span_kind": "AGENT", "parent_id": None, "context.span_id": "1"}
    tool = {"name": "tool", "span_kind": "TOOL", "parent_id": "1", "context.span_id": "2"}
    known = {"attributes.llm.model_name": "small", "attributes.llm": None}
    text = "".join(json.dumps(columns | each | known) + "\n" for each in (plan, tool))
    found = read("otel-sdk", text)
    assert found.quarantined == []
    assert found.happened_before("plan", "tool") and found.happened_before("tool (end)", "plan (end)")
    assert found.rows[0]["attributes"]["llm.model_name"] == "small"
    assert found.rows[0]["attributes"]["span"] == "1" and "llm" not in found.rows[0]["attributes"]
    log = tmp_path / "spans.jsonl"
    log.write_text(text)
    assert detect(log) == "otel-sdk"


def test_what_is_no_span_of_an_sdk_is_quarantined(read):
    bad = [{"name": "x"}, {"trace_id": "t", "id": "s", "start_time": "soon"}, 7]
    found = read("otel-sdk", json.dumps(bad))
    assert found.rows == []
    assert [q.field for q in found.quarantined] == ["context", "start_time", "context"]


def test_segments_and_subsegments(read, fixture_text):
    found = read("xray", fixture_text("segments.xray.json"))
    starts = [row for row in found.rows if row["attributes"]["event"] == "start"]
    by_span = {row["attributes"]["span"]: row for row in starts}
    assert by_span["b"]["kind"] == "send" and by_span["c"]["kind"] == "deliver"
    assert by_span["c"]["process"] == "back@i-7" and by_span["c"]["attributes"]["caller"] == "front"
    assert (
        by_span["d"]["attributes"]["callee"] == "DynamoDB" and by_span["d"]["attributes"]["error"] == "true"
    )
    assert by_span["a"]["time"] == 100_500_000_000
    assert found.quarantined == []
    found = read("xray", '{"trace_id": "t", "id": "a", "start_time": "x"}\n{"Document": "{"}\n[]\n{"id": 1}')
    assert len(found.quarantined) == 4 and found.rows == []


def test_spans_of_datadog(read, fixture_text):
    found = read("datadog", fixture_text("spans.datadog.json"))
    assert [(row["process"], row["kind"], row["time"]) for row in found.rows] == [
        ("web@r1", "send", 1000),
        ("web@r1", "deliver", 1900),
        ("api@h2", "deliver", 1100),
        ("api@h2", "send", 1600),
    ]
    assert found.rows[2]["attributes"]["error"] == "true"
    assert read("datadog", '[[{"trace_id": 1, "span_id": 2}]]').quarantined[0].field == "start"


def test_slices_and_flows(read, fixture_text):
    found = read("chrome", fixture_text("flows.chrome.json"))
    assert told(found) == {
        "click": ("browser@1", "internal", 10_000),
        "post": ("browser@1", "send", 20_000),
        "handle": ("2", "deliver", 40_500),
        "fetch": ("2~2", "internal", 42_000),
    }
    assert found.happened_before("click", "post") and found.happened_before("post (end)", "click (end)")
    assert found.happened_before("post", "handle") and not found.happened_before("post (end)", "handle")
    assert not found.happened_before("handle", "fetch")  # asynchronous slices are of no thread
    assert causality.check_order(found.table).deliveries == 1


def test_slices_of_one_thread_follow_each_other(read):
    def event(phase, ts, **more):
        return {"ph": phase, "pid": 1, "tid": 1, "ts": ts, "name": f"at{ts}", **more}

    events = [event("X", 1, dur=2), event("X", 5, dur=2), event("i", 9), event("E", 11), event("X", "soon")]
    events += [event("X", 6, dur=9, tid=2), {"no": "phase"}]
    found = read("chrome", json.dumps(events))
    assert found.happened_before("at1 (end)", "at5") and found.happened_before("at5 (end)", "at9")
    assert not found.happened_before("at1", "at6")
    assert sorted(q.field for q in found.quarantined) == ["ph", "ph", "ts"]


def test_a_flow_without_enclosing_ends_in_the_next_slice(read):
    def event(phase, tid, ts, **more):
        return {"ph": phase, "pid": 1, "tid": tid, "ts": ts, "name": f"{phase}{tid}{ts}", **more}

    flow = {"id": 3, "cat": "c"}
    events = [event("X", 1, 1, dur=5), event("s", 1, 2, **flow), event("f", 2, 8, **flow)]
    events += [event("X", 2, 7, dur=9), event("X", 2, 10, dur=1)]
    found = read("chrome", json.dumps({"traceEvents": events}))
    assert found.happened_before("X11", "X210") and not found.happened_before("X11", "X27")


def test_spans_that_the_sdk_of_go_prints(read):
    def printed(name, id, kind, parent, service, start, end, **more):
        here = {"TraceID": "ab" * 16, "SpanID": id}
        return {
            "Name": name, "SpanContext": here, "SpanKind": kind,
            "Parent": {"TraceID": "ab" * 16, "SpanID": parent or "0" * 16},
            "StartTime": f"1970-01-01T00:00:0{start}Z", "EndTime": f"1970-01-01T00:00:0{end}Z",
            "Resource": [{"Key": "service.name", "Value": {"Type": "STRING", "Value": service}}], **more,
        }  # fmt: skip

    items = [{"Key": "items", "Value": {"Type": "INT64", "Value": 3}}]
    spans = [
        printed("serve", "2" * 16, 2, "1" * 16, "back", 2, 3, Status={"Code": "Error"}, Attributes=items),
        printed("call", "1" * 16, 3, None, "front", 1, 4, Links=None, Attributes=None),
    ]
    found = read("otel-sdk", "\n".join(map(json.dumps, spans)))
    assert told(found) == {"call": ("front", "send", 10**9), "serve": ("back", "deliver", 2 * 10**9)}
    assert found.happened_before("serve (end)", "call (end)")
    serve = next(row for row in found.rows if row["label"] == "serve")["attributes"]
    assert (serve["items"], serve["error"]) == ("3", "true")


def test_flows_of_one_id_are_told_apart_by_their_names(read):
    def event(phase, tid, ts, name, **more):
        return {"ph": phase, "pid": 1, "tid": tid, "ts": ts, "name": name, "id": 5, "cat": "c", **more}

    events = [event("X", tid, ts, name, dur=2) for tid, ts, name in ((1, 1, "A"), (2, 11, "B"))]
    events += [event("X", tid, ts, name, dur=2) for tid, ts, name in ((3, 1, "A2"), (4, 21, "B2"))]
    events += [event("s", 1, 2, "f"), event("s", 3, 2.5, "g")]
    events += [event("f", 2, 12, "f", bp="e"), event("f", 4, 22, "g", bp="e")]
    starts = read("chrome", json.dumps({"traceEvents": events})).starts()
    assert starts == {"A": set(), "A2": set(), "B": {"A"}, "B2": {"A2"}}


@pytest.mark.parametrize("wrapper", ["result", "trace"])
def test_otlp_of_jaeger_and_tempo_is_wrapped(read, fixture_text, wrapper):
    document = json.loads(fixture_text("linked.otlp.json"))
    assert (
        read("otlp", json.dumps({wrapper: document})).starts() == read("otlp", json.dumps(document)).starts()
    )
