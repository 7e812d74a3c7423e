"""Spans of every format: one event each, caused by parents and links."""

import json
from graphlib import TopologicalSorter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happened.trace.readers import Draft
from happened.trace.readers.spans import follow_clocks

HEADER = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n"
SERVICE = '{"serviceName": "s"}'


def spans(*rows):
    """(id, parent, pod, start) of one trace, as CSV."""
    return HEADER + "".join(f"t,{id},{parent},{pod},{id},{start},99,1\n" for id, parent, pod, start in rows)


def test_linked_traces_are_one_computation(read, fixture_text):
    found = read("otlp", fixture_text("linked.otlp.json"))
    assert found.quarantined == []
    assert found.causes() == {"order": set(), "publish": {"order"}, "batch": {"publish"}, "alone": set()}
    assert {row["label"]: row["computation"] for row in found.rows} == {
        "order": "aa",
        "publish": "aa",
        "batch": "aa",
        "alone": "cc",
    }
    order = found.rows[0]
    assert (order["process"], order["time"], order["relevant"]) == ("shop@i1", 1000, True)
    assert order["attributes"] == {"items": "3", "trace": "aa", "span": "01", "end": "5000", "kind": "server"}
    assert found.stamps.ordered_pairs == 3
    assert found.counts[0]["links"] == 1


def test_a_collector_writes_one_document_per_line(read, fixture_text):
    document = json.loads(fixture_text("linked.otlp.json"))
    text = "".join(json.dumps({"resourceSpans": [each]}) + "\n" for each in document["resourceSpans"])
    assert read("otlp", text).causes() == read("otlp", fixture_text("linked.otlp.json")).causes()
    cut = read("otlp", text[:-20])
    assert len(cut.rows) == 3
    assert [q.line for q in cut.quarantined] == [3]


def test_a_trace_may_be_spread_over_files(read, fixture_text):
    document = json.loads(fixture_text("linked.otlp.json"))
    files = [json.dumps({"batches": [each]}) for each in document["resourceSpans"]]
    assert read("otlp", *files).causes() == read("otlp", fixture_text("linked.otlp.json")).causes()


def test_jaeger_references_are_parents_and_links(read, fixture_text):
    found = read("jaeger", fixture_text("follows.jaeger.json"))
    assert found.causes() == {"GET": set(), "select": {"GET"}, "log": {"select"}}
    assert {row["label"]: (row["process"], row["seq"]) for row in found.rows} == {
        "GET": ("web", 1),
        "select": ("db", 1),
        "log": ("web", 2),
    }
    assert found.counts[0]["links"] == 1
    assert found.rows[0]["time"] == 100_000
    assert found.rows[0]["attributes"]["end"] == "150000"


def test_halves_of_a_zipkin_span_are_two_events(read, fixture_text):
    found = read("zipkin", fixture_text("halves.zipkin.json"))
    assert found.quarantined == []
    events = found.events()
    assert events["back", 1]["causes"] == [{"process": "front", "seq": 1}]
    assert events["back", 2]["causes"] == [{"process": "back", "seq": 1}]  # the half of its own service
    counts = found.counts[0]
    assert (counts["spans"], counts["span_ids"], counts["shared_ids"], counts["duplicate_ids"]) == (
        3,
        2,
        1,
        0,
    )
    assert (
        counts["child_starts_before_parent"] == 1
    )  # the query began before the client's half, by the clocks


def test_a_child_of_neither_half_s_service_belongs_to_the_client_s(read, fixture_text):
    records = json.loads(fixture_text("halves.zipkin.json"))
    records[2]["localEndpoint"] = {"serviceName": "elsewhere"}
    found = read("zipkin", json.dumps([records]))
    assert found.events()["elsewhere", 1]["causes"] == [{"process": "front", "seq": 1}]


def test_a_child_of_a_service_that_called_itself_belongs_to_the_server_s_half(read, fixture_text):
    records = json.loads(fixture_text("halves.zipkin.json"))
    records[0]["localEndpoint"] = {"serviceName": "back"}
    found = read("zipkin", json.dumps(records))
    labels = {row["attributes"]["kind"]: (row["process"], row["seq"]) for row in found.rows}
    (query,) = (row for row in found.rows if row["label"] == "query")
    assert [(cause["process"], cause["seq"]) for cause in query["causes"]] == [labels["server"]]
    assert found.stamps.happened_before(labels["client"], labels["server"])


def test_pods_and_their_clocks(read, fixture_text):
    found = read("nezha", fixture_text("pods.csv"))
    assert found.counts == [
        {
            "spans": 4,
            "span_ids": 4,
            "traces": 2,
            "pods": 2,
            "shared_ids": 0,
            "duplicate_ids": 0,
            "links": 0,
            "no_parent_in_file": 2,
            "cross_pod_edges": 1,
            "child_starts_before_parent": 1,
            "child_ends_after_parent": 1,
        }
    ]
    assert found.table.num_rows == 4
    assert found.stamps.vector("cart-1", 1, "t1") == {"front-1": 2, "cart-1": 1}


def test_a_part_of_a_table_needs_no_header(read, fixture_text):
    header, body = fixture_text("pods.csv").split("\n", 1)
    assert read("nezha", body).rows == read("nezha", f"{header}\n{body}").rows
    moved = "SpanID,TraceID,PodName,StartTimeUnixNano,EndTimeUnixNano\na,t,p,1,2\n"
    assert read("nezha", moved).rows[0]["computation"] == "t"


def test_spans_of_a_service_are_in_its_clock_s_order_unless_lanes_are_asked_for(read):
    text = spans(("top", "root", "front", 1), ("late", "top", "front", 5), ("early", "top", "front", 3))
    found = read("nezha", text)
    assert [row["seq"] for row in found.rows] == [1, 3, 2]
    assert found.stamps.concurrent_pairs == 0
    lanes = read("nezha", text, lanes=True)
    assert {row["process"] for row in lanes.rows} == {"front", "front/2"}
    assert lanes.stamps.concurrent_pairs == 1


def test_recorded_causes_win_over_the_clock(read):
    """A child that began before its parent by their own service's clock, directly and through another."""
    found = read("nezha", spans(("child", "parent", "front", 1), ("parent", "root", "front", 2)))
    assert {row["label"]: row["seq"] for row in found.rows} == {"parent": 1, "child": 2}
    found = read(
        "nezha",
        spans(
            ("a", "b", "front", 1), ("b", "c", "back", 9), ("c", "root", "front", 5), ("d", "c", "back", 2)
        ),
    )
    assert {row["label"]: row["seq"] for row in found.rows} == {"c": 1, "a": 2, "d": 1, "b": 2}
    assert found.stamps.happened_before(("front", 1), ("front", 2))


def test_a_span_recorded_twice_counts_once_and_another_of_its_id_is_named(read):
    found = read("nezha", spans(("a", "root", "p", 1), ("a", "root", "p", 1), ("a", "root", "p", 7)))
    assert len(found.rows) == 1
    assert [q.imported for q in found.quarantined] == [False, False]
    assert "is recorded twice, first as record 2 of log0" in found.reasons()[0]
    assert "is the id of two different spans" in found.reasons()[1]


def test_a_parent_that_is_not_there_is_left_out_and_named(read):
    found = read("nezha", spans(("a", "gone", "p", 1)))
    assert found.causes() == {"a": set()}
    assert found.reasons() == [
        "log0:2: field 'parents': t:gone is not among the records read; imported without"
    ]
    assert found.quarantined[0].imported


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", "a", "p", 1)], "t:a is its own cause"),
        ([("a", "b", "p", 1), ("b", "a", "q", 2)], "t:a, t:b are causes of one another"),
    ],
)
def test_parents_in_a_circle_are_left_out_and_named(read, rows, said):
    found = read("nezha", spans(*rows, ("c", "a", "r", 3)))
    assert found.causes()["c"] == {"a"}
    assert not any(found.causes()[id] for id, *_ in rows)
    assert len(found.quarantined) == len(rows)
    assert all(said in reason for reason in found.reasons())


@pytest.mark.parametrize(
    ("format", "text", "field"),
    [
        ("nezha", HEADER + "t,a,root\n", None),
        ("nezha", HEADER + "t,,root,p,o,1,2,3\n", "SpanID"),
        ("nezha", HEADER + "t,a,root,p,o,soon,2,3\n", "StartTimeUnixNano"),
        ("zipkin", '[{"traceId": "t"}]', "id"),
        ("zipkin", '[{"traceId": "t", "id": "1"}]', "localEndpoint.serviceName"),
        ("zipkin", f'{{"traceId": "t", "id": 1, "localEndpoint": {SERVICE}, "timestamp": "x"}}', "timestamp"),
        ("zipkin", '["a string"]', "id"),
        ("jaeger", '{"data": [{"traceID": "t"}]}', "spanID"),
        ("jaeger", '{"spans": [{"traceID": "t", "spanID": "s", "processID": "p1"}]}', "processID"),
        ("jaeger", f'{{"spans": [{{"traceID": "t", "spanID": "s", "process": {SERVICE}}}]}}', "startTime"),
        ("otlp", '{"resource": 1}', "spanId"),
        ("otlp", '{"batches": [{"scopeSpans": [{"spans": [{"traceId": 1, "spanId": 2}]}]}]}', "service.name"),
        ("otlp", '{"resourceSpans": [7]}', "spanId"),
        ("otlp", '{"resourceSpans": [{"scopeSpans": [{}]}]}', "spanId"),
        ("otlp", "[1, 2", None),
    ],
)  # fmt: skip
def test_a_record_that_is_no_span_is_quarantined_with_its_field(read, format, text, field):
    found = read(format, text)
    assert found.rows == []
    assert [(q.field, q.imported) for q in found.quarantined] == [(field, False)]


def test_a_document_that_ends_too_early_is_named(read, fixture_text):
    text = fixture_text("halves.zipkin.json")
    for cut in (text[:-3], text[: text.index("back") + 2]):
        found = read("zipkin", cut)
        assert found.rows == []
        assert "the file ends too early" in found.reasons()[0]
        assert found.quarantined[0].line > 1


def random_spans(seed):
    random = Random(seed)
    count = random.randint(1, 25)
    drafts = [
        Draft("log", i, "t", random.choice("pqr"), str(i), time=random.randint(0, 9), id=str(i))
        for i in range(count)
    ]
    shuffled = random.sample(range(count), count)
    parents = [[] for _ in drafts]
    for at, i in enumerate(shuffled[1:], start=1):
        parents[i] = random.sample(shuffled[:at], min(at, random.choice((0, 1, 1, 2))))
    return drafts, parents


@settings(max_examples=300)
@given(st.integers(0, 2**32).map(random_spans))
def test_clocks_are_followed_as_far_as_causes_allow(case):
    drafts, parents = case
    order = follow_clocks(drafts, parents)
    place = {i: at for at, i in enumerate(order)}
    assert sorted(order) == list(range(len(drafts)))
    assert all(place[parent] < place[i] for i, of in enumerate(parents) for parent in of)
    chains = {}
    for i in sorted(place, key=lambda i: (drafts[i].time, i)):
        chains.setdefault(drafts[i].process, []).append(i)
    edges = {i: set(of) for i, of in enumerate(parents)}
    for chain in chains.values():
        for a, b in pairwise(chain):
            edges[b].add(a)
    try:
        TopologicalSorter(edges).prepare()
    except ValueError:  # graphlib.CycleError: some clock contradicts the causes
        return
    assert all(sorted(chain, key=place.__getitem__) == chain for chain in chains.values())
