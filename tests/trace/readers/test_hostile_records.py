"""One record that no exporter should have written, between two that are sound: it alone is lost, by its line.

Two kinds of loss: a record that cannot be an event is quarantined with file and line; of one whose time or
references are optional and make no sense, the event stays and only they are left out.
"""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from happened import trace
from happened.cli import main

HUGE = 10**30
DIGITS = "9" * 5000
DEEP = "[" * 100_000
SURROGATE = "\ud800"
REGEX = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


def otlp(id, **fields):
    span = {"traceId": "t", "spanId": id, "name": id, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]}
    return json.dumps({"resourceSpans": [{"resource": service, "scopeSpans": [{"spans": [span | fields]}]}]})


def jaeger(id, **fields):
    span = {"traceID": "t", "spanID": id, "processID": "p", "operationName": id}
    span |= {"startTime": 1, "duration": 1}
    processes = {"p": {"serviceName": "s"}}
    return json.dumps({"data": [{"traceID": "t", "spans": [span | fields], "processes": processes}]})


def zipkin(id, **fields):
    span = {"traceId": "t", "id": id, "name": id, "timestamp": 10, "duration": 1}
    return json.dumps(span | {"localEndpoint": {"serviceName": "s"}} | fields)


def raft(name, **fields):
    return json.dumps({"ts": 1.5, "event": {"nid": "1", "name": name}} | fields)


def jsonl(label, **fields):
    seq = {"before": 1, "after": 2}.get(label, 3)
    return json.dumps({"process": "p", "seq": seq, "kind": "internal", "label": label} | fields)


def shiviz(event, host="p", clock=None):
    clock = clock or json.dumps({host: {"before": 1, "after": 2}.get(event, 3)})
    return f"{host} {clock}\n{event}"


def dag(id, **fields):
    return json.dumps({"id": id, "parents": [], "time": 5} | fields)


def nezha(span, operation=None, start="1"):
    return f"t,{span},root,pod,{operation or span},{start},2,1"


SOUND = {
    "otlp": otlp,
    "jaeger": jaeger,
    "zipkin": zipkin,
    "etcd-raft": raft,
    "jsonl": jsonl,
    "shiviz": shiviz,
    "dag": dag,
    "nezha": nezha,
}
"""How a record of each format is written, given the label its event will have."""


def digits(record):
    """Python refuses to read such a number, as others may."""
    return record.replace('"DIGITS"', DIGITS)


QUARANTINED = [
    ("otlp", "time beyond 64 bits", otlp("bad", startTimeUnixNano=str(HUGE)), "is beyond 64 bits"),
    ("otlp", "end beyond 64 bits", otlp("bad", endTimeUnixNano=str(1 << 63)), "is beyond 64 bits"),
    ("otlp", "Infinity", otlp("bad", startTimeUnixNano=float("inf")), "not nanoseconds since 1970"),
    ("otlp", "NaN", otlp("bad", startTimeUnixNano=float("nan")), "not nanoseconds since 1970"),
    ("otlp", "deep", DEEP, "is not JSON"),
    ("otlp", "digits", digits(otlp("bad", startTimeUnixNano="DIGITS")), "is not JSON"),
    ("otlp", "digits in a string", otlp("bad", startTimeUnixNano=DIGITS), "not nanoseconds since 1970"),
    ("otlp", "surrogate", otlp(SURROGATE), "lone surrogate"),
    ("otlp", "surrogate in an excerpt", otlp(SURROGATE, startTimeUnixNano="x"), "not nanoseconds"),
    ("jaeger", "time beyond 64 bits", jaeger("bad", startTime=10**17), "is beyond 64 bits"),
    ("jaeger", "Infinity", jaeger("bad", startTime=float("inf")), "not whole microseconds"),
    ("jaeger", "NaN", jaeger("bad", duration=float("nan")), "not whole microseconds"),
    ("jaeger", "deep", DEEP, "is not JSON"),
    ("jaeger", "digits", digits(jaeger("bad", startTime="DIGITS")), "is not JSON"),
    ("jaeger", "surrogate", jaeger(SURROGATE), "lone surrogate"),
    ("zipkin", "time beyond 64 bits", zipkin("bad", timestamp=10**17), "is beyond 64 bits"),
    ("zipkin", "Infinity", zipkin("bad", timestamp=float("inf")), "not whole microseconds"),
    ("zipkin", "NaN", zipkin("bad", timestamp=float("nan")), "not whole microseconds"),
    ("zipkin", "deep", DEEP, "is not JSON"),
    ("zipkin", "digits", digits(zipkin("bad", timestamp="DIGITS")), "is not JSON"),
    ("zipkin", "surrogate", zipkin(SURROGATE), "lone surrogate"),
    ("etcd-raft", "time beyond 64 bits", raft("bad", ts=1 << 62), "is beyond 64 bits"),
    ("etcd-raft", "deep", '{"event":' + DEEP, "is not JSON"),
    ("etcd-raft", "digits", digits(raft("bad", ts="DIGITS")), "is not JSON"),
    ("etcd-raft", "surrogate", raft(SURROGATE), "lone surrogate"),
    ("jsonl", "time beyond 64 bits", jsonl("bad", time=1 << 63), "not an integer"),
    ("jsonl", "Infinity", jsonl("bad", time=float("inf")), "not an integer"),
    ("jsonl", "NaN", jsonl("bad", time=float("nan")), "not an integer"),
    ("jsonl", "deep", '{"process":' + DEEP, "not an event"),
    ("jsonl", "digits", digits(jsonl("bad", seq="DIGITS")), "not an event"),
    ("jsonl", "surrogate", jsonl(SURROGATE), "lone surrogate"),
    ("shiviz", "count beyond 64 bits", shiviz("bad", clock=f'{{"p":{HUGE}}}'), "a whole number"),
    ("shiviz", "Infinity", shiviz("bad", clock='{"p":Infinity}'), "a whole number"),
    ("shiviz", "NaN", shiviz("bad", clock='{"p":NaN}'), "a whole number"),
    ("shiviz", "deep", shiviz("bad", clock=f'{{"p":{DEEP}}}'), "is not JSON"),
    ("shiviz", "digits", shiviz("bad", clock=f'{{"p":{DIGITS}}}'), "is not JSON"),
    ("shiviz", "surrogate", shiviz("bad", clock=r'{"p":3,"\ud800":1}'), "lone surrogate"),
    ("dag", "time beyond 64 bits", dag("bad", time=1 << 62), "is beyond 64 bits"),
    ("dag", "deep", DEEP, "is not JSON"),
    ("dag", "digits", digits(dag("bad", time="DIGITS")), "is not JSON"),
    ("dag", "surrogate", dag(SURROGATE), "lone surrogate"),
    ("nezha", "time beyond 64 bits", nezha("bad", start=str(HUGE)), "is beyond 64 bits"),
    ("nezha", "Infinity", nezha("bad", start="Infinity"), "not nanoseconds since 1970"),
    ("nezha", "digits", nezha("bad", start=DIGITS), "not nanoseconds since 1970"),
    ("nezha", "open quote", nezha("bad", operation='"open'), "is not CSV"),
    ("nezha", "field above 128 KB", nezha("bad", operation="x" * 200_000), "is not CSV"),
]

LEFT_OUT = [
    ("otlp", "links", otlp("bad", links=5)),
    ("jaeger", "references", jaeger("bad", references=5)),
    ("etcd-raft", "Infinity", raft("bad", ts=float("inf"))),
    ("etcd-raft", "NaN", raft("bad", ts=float("nan"))),
    ("etcd-raft", "1e400", raft("bad").replace("1.5", "1e400")),
    ("dag", "Infinity", dag("bad", time=float("inf"))),
    ("dag", "NaN", dag("bad", time=float("nan"))),
]


def ids(cases):
    return [f"{format}-{what}" for format, what, *_ in cases]


@pytest.fixture
def imported(tmp_path, capsys):
    """Import a record between two sound ones: (labels that became events, quarantine, what stderr says)."""

    def imported(format, record):
        log, out = tmp_path / "log", tmp_path / "out"
        sound = SOUND[format]
        log.write_text("\n".join([sound("before"), record, sound("after")]) + "\n", encoding="utf-8")
        given = ["--regex", REGEX] if format == "shiviz" else []
        code = main(["import", str(log), "--format", format, *given, "--out", str(out)])
        said = capsys.readouterr().err
        assert code == 0, said
        table = trace.read(out)
        # A span is two events; its end is not counted here.
        labels = [label for label in table["label"].to_pylist() if not label.endswith(" (end)")]
        return labels, pq.read_table(out / "quarantine").to_pylist(), said

    return imported


@pytest.mark.parametrize(
    ("format", "record", "reason"), [(f, r, why) for f, _, r, why in QUARANTINED], ids=ids(QUARANTINED)
)
def test_the_bad_record_is_quarantined_by_its_line_and_the_rest_imported(imported, format, record, reason):
    labels, quarantined, said = imported(format, record)
    assert sorted(labels) == ["after", "before"]
    (left_out,) = quarantined
    line = SOUND[format]("before").count("\n") + 2
    assert (Path(left_out["file"]).name, left_out["line"]) == ("log", line)
    assert reason in left_out["reason"]
    assert f"log:{line}: " in said and reason in said


@pytest.mark.parametrize(("format", "record"), [(f, r) for f, _, r in LEFT_OUT], ids=ids(LEFT_OUT))
def test_a_part_that_makes_no_sense_costs_no_event(imported, format, record):
    labels, quarantined, _ = imported(format, record)
    assert sorted(labels) == ["after", "bad", "before"]
    assert quarantined == []
