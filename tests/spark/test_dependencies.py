"""Which service calls which, whole and cut into epochs, against a count over the spans themselves; lanes of
one instance have one clock there too, and what an import lost is in the summary.
"""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from happened import trace
from happened.causality.analysis import analyse
from happened.spark.pipeline import analyze_path
from happened.trace.importing import import_files


def requests(dice, traces):
    """Zipkin spans of some requests, front to back to store; store's clock is behind by a second."""
    spans = []
    for number in range(traces):
        name, at, at_back = f"t{number}", 1_000_000 + 900 * number, 5_000_000 + 900 * number
        spans.append(span(name, "1", None, "SERVER", "front", at, 800))
        for call in range(dice.randint(1, 3)):
            client, failed = f"2{call}", dice.random() < 0.3
            spans.append(span(name, client, "1", "CLIENT", "front", at + 10 + call, 500))
            server = span(name, client, "1", "SERVER", "back", at_back + 110 + call, 300, shared=True)
            server["tags"] = {"error": "503"} if failed else {}
            spans.append(server)
            if dice.random() < 0.5:
                query = span(name, f"3{call}", client, "CLIENT", "back", at_back + 120 + call, 20)
                spans.append(query | {"remoteEndpoint": {"serviceName": "store"}})
    return spans


def span(trace_id, id, parent, kind, service, start, duration, **more):
    given = {"traceId": trace_id, "id": id, "kind": kind, "timestamp": start, "duration": duration}
    return given | {"parentId": parent, "name": id, "localEndpoint": {"serviceName": service}} | more


def counted(spans):
    """(trace, caller, callee) -> calls, errors; a server's caller is front, a query's callee is the store."""
    calls, errors = Counter(), Counter()
    for each in spans:
        if each.get("shared") or "remoteEndpoint" in each:
            service = each["localEndpoint"]["serviceName"]
            link = (each["traceId"], *(("front", service) if each.get("shared") else (service, "store")))
            calls[link] += 1
            errors[link] += bool(each.get("tags"))
    return {link: (count, errors[link]) for link, count in calls.items()}


@pytest.mark.parametrize("whole_events", [100_000, 1], ids=["whole", "by epochs"])
def test_calls_are_counted_on_spark(spark, dice, tmp_path, whole_events):
    spans = requests(dice, 4)
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([*spans, {"traceId": "t0", "id": "no place"}]))
    done = import_files([path], tmp_path / "run")
    expected = analyse(trace.read(tmp_path / "run"), questions=["dependencies", "epochs"])
    summary = analyze_path(
        spark,
        tmp_path / "run",
        tmp_path / "out",
        questions=["dependencies", "epochs"],
        whole_events=whole_events,
        epoch_events=10,
    )
    for table in (expected.table("dependencies"), pq.read_table(tmp_path / "out" / "dependencies")):
        found = {
            (row["computation"], row["caller"], row["callee"]): (row["calls"], row["errors"])
            for row in table.to_pylist()
        }
        assert found == counted(spans)
    assert summary["service_calls"] == sum(calls for calls, _ in counted(spans).values())
    assert summary["service_call_errors"] == sum(errors for _, errors in counted(spans).values())
    assert summary["import_quarantined"] == done.summary["quarantined"] == 1

    offsets = {}
    for row in pq.read_table(tmp_path / "out" / "skew").to_pylist():
        instance = row["process"].partition("~")[0]
        offsets.setdefault((row["computation"], instance), set()).add(row["clock_offset"])
    assert all(len(of_instance) == 1 for of_instance in offsets.values())
    for number in range(4):
        (front,), (back,) = (offsets[f"t{number}", name] for name in ("front", "back"))
        assert 3_999_000_000 < back - front < 4_000_200_000
    assert summary["receives_before_sends"] > 0
    assert summary["receives_before_sends_corrected"] == 0
    rows = pq.read_table(tmp_path / "out" / "skew").to_pylist()
    assert sorted(map(str, rows)) == sorted(map(str, expected.table("skew").to_pylist()))
