"""Spans of every format: what a record becomes, and what is left out. The order is test_span_model.py's."""

import json

import pytest

HEADER = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n"
SERVICE = '{"serviceName": "s"}'


def spans(*rows):
    """(id, parent, pod, start) of one trace, as CSV."""
    return HEADER + "".join(f"t,{id},{parent},{pod},{id},{start},99,1\n" for id, parent, pod, start in rows)


def test_linked_traces_are_one_computation(read, fixture_text):
    found = read("otlp", fixture_text("linked.otlp.json"))
    assert found.quarantined == []
    assert found.starts() == {
        "order": set(),
        "publish": {"order"},
        "batch": {"order", "publish"},
        "alone": set(),
    }
    computations = {row["label"]: row["computation"] for row in found.rows if "end" not in row["label"]}
    assert computations == {"order": "aa", "publish": "aa", "batch": "aa", "alone": "cc"}
    order, end = found.rows[:2]
    assert (order["process"], order["time"], order["relevant"]) == ("shop@i1", 1000, True)
    facts = {"trace": "aa", "span": "01", "kind": "server", "service": "shop"}
    assert order["attributes"] == {"items": "3", "end": "5000", "event": "start", **facts}
    assert (end["label"], end["process"], end["time"]) == ("order (end)", "shop@i1", 5000)
    assert end["attributes"] == {"event": "end", "edge": "nested", **facts}
    assert found.counts[0]["links"] == 1


def test_a_collector_writes_one_document_per_line(read, fixture_text):
    document = json.loads(fixture_text("linked.otlp.json"))
    text = "".join(json.dumps({"resourceSpans": [each]}) + "\n" for each in document["resourceSpans"])
    assert read("otlp", text).starts() == read("otlp", fixture_text("linked.otlp.json")).starts()
    cut = read("otlp", text[:-20])
    assert len(cut.rows) == 6
    assert [q.line for q in cut.quarantined] == [3]


def test_a_trace_may_be_spread_over_files(read, fixture_text):
    document = json.loads(fixture_text("linked.otlp.json"))
    files = [json.dumps({"batches": [each]}) for each in document["resourceSpans"]]
    assert read("otlp", *files).starts() == read("otlp", fixture_text("linked.otlp.json")).starts()


def test_jaeger_references_are_parents_and_links(read, fixture_text):
    found = read("jaeger", fixture_text("follows.jaeger.json"))
    assert found.starts() == {"GET": set(), "select": {"GET"}, "log": {"GET", "select"}}
    assert found.happened_before("select (end)", "GET (end)")
    assert not found.happened_before("select (end)", "log")  # it follows from its start; nobody waited
    assert found.counts[0]["links"] == 1
    assert found.rows[0]["time"] == 100_000
    assert found.rows[0]["attributes"]["end"] == "150000"


def test_processes_of_jaeger_are_instances(read):
    def process(*tags):
        return {"serviceName": "web", "tags": [{"key": key, "value": value} for key, value in tags]}

    processes = {
        "p1": process(("hostname", "h1"), ("pid", 7), ("ip", "10.0.0.1")),
        "p2": process(("ip", "10.0.0.2")),
        "p3": process(),
        "p4": process(("service.instance.id", "a~b"), ("hostname", "h1")),
    }
    spans = [
        {"traceID": "t", "spanID": id, "processID": id, "startTime": 1, "duration": 1} for id in processes
    ]
    found = read("jaeger", json.dumps({"traceID": "t", "spans": spans, "processes": processes}))
    assert {row["process"] for row in found.rows} == {"web@h1:7", "web@10.0.0.2", "web", "web@a%7Eb"}
    assert found.counts[0]["services"] == 1 and found.counts[0]["instances"] == 4


def test_halves_of_a_zipkin_span_are_a_call(read, fixture_text):
    found = read("zipkin", fixture_text("halves.zipkin.json"))
    assert found.quarantined == []
    client, server = (
        next(row for row in found.rows if row["attributes"].get("kind") == kind)
        for kind in ("client", "server")
    )
    assert (client["kind"], client["to"], server["kind"]) == ("send", ["back"], "deliver")
    assert client["message"] == server["message"] == "t:1 get"
    assert found.events()["back", 2]["label"] == "query"  # in the half of its own service
    counts = found.counts[0]
    assert (counts["spans"], counts["span_ids"], counts["shared_ids"]) == (3, 2, 1)
    assert counts["duplicate_ids"] == 0
    assert counts["child_starts_before_parent"] == 1  # the query, before the client's half, by the clocks


def test_a_child_of_neither_half_s_service_belongs_to_the_client_s(read, fixture_text):
    records = json.loads(fixture_text("halves.zipkin.json"))
    records[2]["localEndpoint"] = {"serviceName": "elsewhere"}
    found = read("zipkin", json.dumps([records]))
    (query,) = (row for row in found.rows if row["label"] == "query")
    assert (query["kind"], query["message"], query["attributes"]["caller"]) == ("deliver", "t:1 get", "front")


def test_a_child_of_a_service_that_called_itself_belongs_to_the_server_s_half(read, fixture_text):
    records = json.loads(fixture_text("halves.zipkin.json"))
    records[0]["localEndpoint"] = {"serviceName": "back"}
    records[0]["name"], records[1]["name"] = "client", "server"
    records[0]["timestamp"] = 1400
    found = read("zipkin", json.dumps(records))
    assert found.starts() == {"client": set(), "server": {"client"}, "query": {"client", "server"}}
    assert found.happened_before("query (end)", "server (end)")


def test_addresses_are_instances_and_an_absent_port_is_the_only_one_there_is(read):
    def span(id, **endpoint):
        return {"traceId": "t", "id": id, "timestamp": 1, "localEndpoint": endpoint}

    found = read(
        "zipkin",
        json.dumps(
            [
                span("1", serviceName="s", ipv4="10.0.0.1", port=80),
                span("2", serviceName="s", ipv4="10.0.0.1"),
                span("3", serviceName="s", ipv4="10.0.0.2", port=80),
                span("4", ipv4="10.0.0.3"),
            ]
        ),
    )
    assert {row["attributes"]["span"]: row["process"].partition("~")[0] for row in found.rows} == {
        "1": "s@10.0.0.1:80",
        "2": "s@10.0.0.1:80",
        "3": "s@10.0.0.2:80",
        "4": "10.0.0.3",
    }
    assert found.quarantined == []


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("last", [{"timestamp": 5, "duration": 7}, {"duration": 7}])
def test_pieces_of_a_span_are_put_together(read, last, turned):
    piece = {"traceId": "t", "id": "1", "localEndpoint": {"serviceName": "s"}, "kind": "SERVER"}
    pieces = [piece | {"timestamp": 5, "tags": {"a": "1"}}, piece | {"name": "get"} | last]
    found = read("zipkin", json.dumps(pieces[::-1] if turned else pieces))
    start, end = found.rows
    assert (start["label"], start["time"], end["time"]) == ("get", 5000, 12000)
    assert start["attributes"]["a"] == "1"
    assert found.quarantined == []


def test_zipkin_s_first_version_has_annotations_instead_of_kinds(read):
    def mark(value, time, service):
        return {"value": value, "timestamp": time, "endpoint": {"serviceName": service, "ipv4": "10.0.0.1"}}

    call = {
        "traceId": "t",
        "id": "1",
        "name": "get",
        "annotations": [
            mark("cs", 10, "front"), mark("sr", 12, "back"), mark("ss", 15, "back"), mark("cr", 20, "front"),
        ],
        "binaryAnnotations": [
            {"key": "http.path", "value": "/", "endpoint": {"serviceName": "back", "ipv4": "10.0.0.1"}}
        ],
    }  # fmt: skip
    local = {"traceId": "t", "id": "2", "parentId": "1", "name": "query", "timestamp": 13, "duration": 1}
    local["binaryAnnotations"] = [
        {"key": "lc", "value": "", "endpoint": {"serviceName": "back", "ipv4": "10.0.0.1"}}
    ]
    found = read("zipkin", json.dumps([call, local]))
    assert found.quarantined == []
    kinds = {(row["process"], row["seq"]): (row["label"], row["kind"], row["time"]) for row in found.rows}
    assert kinds == {
        ("front@10.0.0.1", 1): ("get", "send", 10_000),
        ("front@10.0.0.1", 2): ("get (end)", "deliver", 20_000),
        ("back@10.0.0.1", 1): ("get", "deliver", 12_000),
        ("back@10.0.0.1", 2): ("query", "internal", 13_000),
        ("back@10.0.0.1", 3): ("query (end)", "internal", 14_000),
        ("back@10.0.0.1", 4): ("get (end)", "send", 15_000),
    }


def test_a_span_that_is_set_aside_leaves_its_children_to_its_parent(read):
    """Nobody knows where the middle one ran, but that it was there."""

    def span(id, parent, service):
        endpoint = {"serviceName": service} if service else {}
        return {"traceId": "t", "id": id, "parentId": parent, "name": id, "localEndpoint": endpoint}

    records = [span("a", None, "x"), span("b", "a", None), span("c", "b", None), span("d", "c", "y")]
    found = read("zipkin", json.dumps(records))
    assert found.starts() == {"a": set(), "d": {"a"}}
    assert [q.imported for q in found.quarantined] == [False, False]


def test_a_span_needs_no_name(read):
    found = read("zipkin", '[{"traceId": "t", "id": "1", "localEndpoint": {"serviceName": "s"}}]')
    assert [(row["label"], row["time"]) for row in found.rows] == [(None, None), ("(end)", None)]
    assert found.quarantined == []


def test_pods_and_their_clocks(read, fixture_text):
    found = read("nezha", fixture_text("pods.csv"))
    assert found.counts == [
        {
            "spans": 4,
            "span_ids": 4,
            "traces": 2,
            "pods": 2,
            "instances": 2,
            "shared_ids": 0,
            "duplicate_ids": 0,
            "links": 0,
            "no_parent_in_file": 2,
            "cross_pod_edges": 1,
            "child_starts_before_parent": 1,
            "child_ends_after_parent": 1,
        }
    ]
    assert found.table.num_rows == 8
    assert found.stamps.vector("cart-1", 1, "t1") == {"front-1": 2, "cart-1": 1}


def test_a_part_of_a_table_needs_no_header(read, fixture_text):
    header, body = fixture_text("pods.csv").split("\n", 1)
    assert read("nezha", body).rows == read("nezha", f"{header}\n{body}").rows
    moved = "SpanID,TraceID,PodName,StartTimeUnixNano,EndTimeUnixNano\na,t,p,1,2\n"
    assert read("nezha", moved).rows[0]["computation"] == "t"


def test_clocks_order_a_service_s_spans_if_that_is_asked_for(read):
    text = spans(("top", "root", "front", 1), ("late", "top", "front", 5), ("early", "top", "front", 3))
    assert read("nezha", text).stamps.concurrent_pairs == 4  # both events of either, all of them end at 99
    clocks = read("nezha", text, clock_order=True)
    assert clocks.stamps.concurrent_pairs == 0
    assert clocks.starts() == {"top": set(), "early": {"top"}, "late": {"top", "early"}}


def test_recorded_causes_win_over_the_clock(read):
    """A child that began before its parent by their own service's clock, directly and through another."""
    found = read(
        "nezha", spans(("child", "parent", "front", 1), ("parent", "root", "front", 2)), clock_order=True
    )
    assert found.starts() == {"parent": set(), "child": {"parent"}}
    rows = [("a", "b", "front", 1), ("b", "c", "back", 9), ("c", "root", "front", 5), ("d", "c", "back", 2)]
    found = read("nezha", spans(*rows), clock_order=True)
    assert found.starts() == {"c": set(), "d": {"c"}, "b": {"c", "d"}, "a": {"b", "c", "d"}}


def test_a_span_recorded_twice_counts_once_and_another_of_its_id_is_named(read):
    found = read("nezha", spans(("a", "root", "p", 1), ("a", "root", "p", 1), ("a", "root", "p", 7)))
    assert len(found.rows) == 2
    assert [q.imported for q in found.quarantined] == [False, False]
    assert "is recorded twice, first as record 2 of log0" in found.reasons()[0]
    assert "is the id of two different spans" in found.reasons()[1]


def test_a_parent_that_is_not_there_is_left_out_and_named(read):
    found = read("nezha", spans(("a", "gone", "p", 1)))
    assert found.starts() == {"a": set()}
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
    assert found.starts()["c"] == {"a"}
    assert not any(found.starts()[id] for id, *_ in rows)
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


def test_a_document_that_ends_too_early_is_read_up_to_its_last_whole_record(read, fixture_text):
    text = fixture_text("halves.zipkin.json")
    for cut, spans in ((text[:-3], 3), (text[: text.index("back") + 2], 1), (text[:20], 0)):
        found = read("zipkin", cut)
        assert len(found.rows) == 2 * spans
        assert "the file ends too early" in found.reasons()[0]
        assert ("the records before are imported" in found.reasons()[0]) == (spans > 0)
        assert found.quarantined[0].line >= 1
    document = fixture_text("linked.otlp.json")
    for length in range(0, len(document), 7):
        found = read("otlp", document[:length])
        whole = document[:length].count('"endTimeUnixNano"')
        assert whole - 1 <= len(found.rows) / 2 <= whole, length
        assert found.quarantined or not document[:length].strip()
