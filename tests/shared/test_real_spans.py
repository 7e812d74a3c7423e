"""Spans of real systems: what the model makes of them, against counts that a script of its own derives.

The scripts here read the files themselves and know no reader, lane or message: a span is a dict, its parent
is looked up by id, and a count is a sum over pairs.
"""

import csv
import json
from collections import Counter

import pytest

from happened import causality, trace
from happened.causality.analysis import analyse
from happened.trace.importing import import_files
from oracles.span_order import order_of


@pytest.fixture(scope="module")
def imported(shared_traces, tmp_path_factory):
    def imported(name):
        out = tmp_path_factory.mktemp("spans") / "trace"
        summary = import_files([shared_traces / name], out).summary
        return summary, trace.read(out)

    return imported


def nezha_pairs(path):
    """(child, parent) of every span of a file whose parent is in it."""
    spans = {}
    for row in csv.DictReader(path.open()):
        times = {"start": int(row["StartTimeUnixNano"]), "end": int(row["EndTimeUnixNano"])}
        spans[row["TraceID"], row["SpanID"]] = {"at": row["PodName"], "row": row, **times}
    pairs = []
    for (trace_id, _), span in spans.items():
        parent = spans.get((trace_id, span["row"]["ParentID"]))
        if parent is not None:
            pairs.append((span, parent))
    return spans, pairs


def took(span):
    return span["end"] - span["start"]


@pytest.mark.parametrize("name", ["boutique-2022-08-22-0519.csv", "trainticket-2023-01-30-1139.csv"])
def test_pods_call_each_other(name, imported, shared_traces):
    spans, pairs = nezha_pairs(shared_traces / "nezha-spans" / name)
    calls = [(child, parent) for child, parent in pairs if child["at"] != parent["at"]]
    answered = [(child, parent) for child, parent in calls if took(child) <= took(parent)]
    late = [c for c, p in pairs if c["at"] == p["at"] and c["end"] > p["end"]]
    callers = Counter(id(parent) for _, parent in calls)
    served = {id(child) for child, _ in calls}
    returned = Counter(id(parent) for _, parent in answered)
    answering = {id(child) for child, _ in answered}
    # Events beyond two per span: a caller that was called itself sends by an event of its own, and a return
    # has one where it is not the only one, or where its receiver's end is itself a return.
    sends = sum(caller in served for caller in callers)
    arrivals = sum(n for caller, n in returned.items() if n > 1 or caller in answering)

    summary, table = imported(f"nezha-spans/{name}")
    assert summary["events"] == 2 * len(spans) + sends + arrivals
    assert summary["facts"]["detached_spans"] == len(late) + len(calls) - len(answered)
    assert summary["messages"] == len(callers) + len(answered)
    kinds = Counter(table["kind"].to_pylist())
    assert kinds["deliver"] == len(calls) + len(answered)
    found = causality.check_order(table)
    assert (found.deliveries, found.violations) == (len(calls) + len(answered), 0)


def test_the_boutique_s_late_children_are_detached(imported):
    summary, _ = imported("nezha-spans/boutique-2022-08-22-0519.csv")
    assert summary["facts"] == {"detached_spans": 534}


def test_a_request_of_each_sample_has_the_order_of_the_rules(imported, shared_traces):
    """Pair by pair, for some traces of the boutique that are neither the smallest nor the largest."""
    spans, _ = nezha_pairs(shared_traces / "nezha-spans" / "boutique-2022-08-22-0519.csv")
    by_trace = {}
    for (trace_id, span_id), span in spans.items():
        given = {"name": span_id, "parent": span["row"]["ParentID"], **span}
        by_trace.setdefault(trace_id, []).append(given)
    chosen = sorted(by_trace, key=lambda name: len(by_trace[name]))[40:46]
    _, table = imported("nezha-spans/boutique-2022-08-22-0519.csv")
    compared = compare(table, {name: by_trace[name] for name in chosen})
    assert compared > 1000


def compare(table, by_trace):
    """How many pairs of events were found in the order of the rules, of the traces given."""
    places = {}
    for row in table.select(["computation", "process", "seq", "attributes"]).to_pylist(
        maps_as_pydicts="strict"
    ):
        facts = row["attributes"]
        if row["computation"] in by_trace and facts["event"] in ("start", "end"):
            of_trace = places.setdefault(row["computation"], {})
            of_trace[facts["span"], facts["event"]] = (row["process"], row["seq"])
    compared = 0
    stamps = causality.stamp([c for c in causality.encode(table) if c.name in by_trace])
    for name, spans in by_trace.items():
        order = order_of(spans)
        of_trace = places[name]
        assert len(of_trace) == 2 * len(spans)
        for a, at in of_trace.items():
            for b, there in of_trace.items():
                if a != b:
                    assert stamps.happened_before(at, there, name) == ((a, b) in order), (a, b)
                    compared += 1
    return compared


def bookinfo_spans(path):
    for batch in json.loads(path.read_text())["batches"]:
        (service,) = (
            fact["value"]["stringValue"]
            for fact in batch["resource"]["attributes"]
            if fact["key"] == "service.name"
        )
        for scope in batch["scopeSpans"]:
            for span in scope["spans"]:
                yield {
                    "name": span["spanId"],
                    "at": service,
                    "kind": span["kind"].removeprefix("SPAN_KIND_").lower(),
                    "start": int(span["startTimeUnixNano"]),
                    "end": int(span["endTimeUnixNano"]),
                    "parent": span.get("parentSpanId"),
                }


def test_bookinfo(imported, shared_traces):
    """The gateway calls the product page, which calls details and reviews, which calls ratings."""
    spans = list(bookinfo_spans(shared_traces / "otlp" / "kiali-bookinfo-tempo.json"))
    summary, table = imported("otlp/kiali-bookinfo-tempo.json")
    names = {span["name"]: span for span in spans}
    calls = [(names[s["parent"]]["at"], s["at"]) for s in spans if s["kind"] == "server" and s["parent"]]
    assert len(spans) == 8 and len(calls) == 4
    assert (summary["events"], summary["messages"], summary["processes"]) == (2 * 8, 2 * 4, 5)
    assert compare(table, {summary_name(table): spans}) == 16 * 15
    found = causality.check(table)
    assert found.holds and found.verdict.deliveries == 8
    callers = Counter()
    for row in table.to_pylist(maps_as_pydicts="strict"):
        if "caller" in row["attributes"]:
            callers[row["attributes"]["caller"], row["attributes"]["service"]] += 1
    assert callers == Counter(calls)


def summary_name(table):
    (name,) = set(table["computation"].to_pylist())
    return name


def test_the_skewed_sample_shows_its_offset(imported, shared_traces):
    """Zipkin's own estimate: the server's time, less half of what the call took beyond it, less the
    client's.
    """
    spans = json.loads((shared_traces / "zipkin" / "skew.json").read_text())
    client, server = (
        next(s for s in spans if s.get("kind") == kind and s["id"] == "74280ae0c10d8062")
        for kind in ("CLIENT", "SERVER")
    )
    latency = (client["duration"] - server["duration"]) / 2
    expected = server["timestamp"] - latency - client["timestamp"]
    assert expected < -60_000
    _, table = imported("zipkin/skew.json")
    answers = analyse(table)
    offsets = {row["process"]: row["clock_offset"] / 1000 for row in answers.table("skew").to_pylist()}
    assert abs(offsets["serviceb@192.0.0.0"] - offsets["servicea@127.0.0.0"] - expected) < 1000
    assert answers.totals["receives_before_sends"] > 0
    assert answers.totals["receives_before_sends_corrected"] == 0


def test_kafka_s_messages_are_messages(imported, shared_traces):
    """Of the three messages of one key that servicea sent and polled, it polled the last before the
    second.
    """
    spans = json.loads((shared_traces / "zipkin" / "messaging-kafka.json").read_text())
    sent = {s["id"]: s["timestamp"] for s in spans if s.get("kind") == "PRODUCER"}
    polled = [s for s in spans if s.get("kind") == "CONSUMER" and s.get("parentId") in sent]
    mine = [s for s in polled if s["localEndpoint"]["serviceName"] == "servicea"]
    here = [(sent[s["parentId"]], s["timestamp"]) for s in mine]
    overtakers = sum(any(a < b and at < later for a, later in here) for b, at in here)
    assert overtakers == 1
    summary, table = imported("zipkin/messaging-kafka.json")
    assert (summary["messages"], len(polled)) == (len(sent), 6)
    found = causality.check_order(table)
    assert (found.deliveries, found.violations) == (len(polled), overtakers)
    assert found.witnesses[0].process == "servicea~[messages/e1b2f8b5-dd1e-11e8-93d1-0050568b53f5]"
