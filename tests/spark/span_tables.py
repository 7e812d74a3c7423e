"""Spans made by dice, as files and as the tables that people have of them; and frames against imports."""

import json
from decimal import Decimal

import pyarrow.parquet as pq
from pyspark.sql import functions as F

from happened import trace
from happened.spark.draft_frames import REPEATED
from happened.trace.importing import import_files
from happened.trace.schema import SCHEMA, SENDS

SERVICES = ("web", "cart", "mail", "db")
KINDS = (
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
)


def random_spans(dice, traces):
    """Spans of request traces as plain records: trees with links across them, queues, equal times, parents
    and services that are missing, and some records twice."""
    every = []
    for number in range(traces):
        mine = []
        for at in range(dice.randint(1, 7)):
            start = dice.choice((None, *[1_000_000 * dice.randint(1, 40)] * 9))
            kind = dice.choice(KINDS)
            span = {
                "trace": f"{number + 1:032x}",
                "span": f"{(number << 8) + at + 1:016x}",
                "parent": dice.choice(mine)["span"] if mine and dice.random() < 0.9 else None,
                "name": f"op {at}",
                "kind": kind,
                "start": start,
                "end": None if start is None else start + 1000 * dice.randint(0, 9000),
                "service": dice.choice(SERVICES),
                "attributes": {"n": str(at)},
                "links": [],
                "failed": dice.random() < 0.1,
            }
            if kind in KINDS[3:] and dice.random() < 0.5:
                span["attributes"]["messaging.kafka.message.key"] = f"k{dice.randint(0, 2 * traces)}"
            if every and dice.random() < 0.1:
                other = dice.choice(every)
                span["links"].append({"trace": other["trace"], "span": other["span"]})
            mine.append(span)
        every += mine
    dice.choice(every)["parent"] = f"{1 << 60:016x}"
    dice.choice(every)["service"] = None
    every += dice.choices(every, k=2)
    dice.shuffle(every)
    return every


def otlp_file(path, spans):
    """The spans as the collector's file exporter writes them."""

    def pairs(facts):
        return [{"key": name, "value": {"stringValue": value}} for name, value in facts.items()]

    def span_of(each):
        span = {
            "traceId": each["trace"],
            "spanId": each["span"],
            "parentSpanId": each["parent"] or "",
            "name": each["name"],
            "kind": each["kind"],
            "startTimeUnixNano": str(each["start"] or 0),
            "endTimeUnixNano": str(each["end"] or 0),
            "attributes": pairs(each["attributes"]),
            "links": [{"traceId": link["trace"], "spanId": link["span"]} for link in each["links"]],
        }
        return span | ({"status": {"code": "STATUS_CODE_ERROR"}} if each["failed"] else {})

    lines = [
        {
            "resourceSpans": [
                {
                    "resource": {
                        "attributes": pairs({"service.name": each["service"]} if each["service"] else {})
                    },
                    "scopeSpans": [{"spans": [span_of(each)]}],
                }
            ]
        }
        for each in spans
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return path


def contents(rows):
    """Events by name, whatever order they are in."""
    return sorted(
        (
            {**row, "attributes": dict(row["attributes"] or {}), "clock": dict(row["clock"] or {})}
            for row in rows
        ),
        key=lambda row: (row["computation"], row["process"], row["seq"]),
    )


def of_frame(events):
    rows = [row.asDict(recursive=True) for row in events.where("_unreadable is null").collect()]
    return contents([{name: row[name] for name in SCHEMA.names} for row in rows])


def of_files(files, out, **options):
    """(events, quarantined records, the summary) of an import."""
    summary = import_files(files, out, **options).summary
    return contents(trace.read(out).to_pylist()), pq.read_table(out / "quarantine").to_pylist(), summary


def same_as_import(events, files, out, **options):
    rows, left_out, summary = of_files(files, out, **options)
    assert of_frame(events) == rows
    told = events.quarantine.collect()
    fields = sorted((row.field or "", row.imported) for row in told)
    assert fields == sorted((row["field"] or "", row["imported"]) for row in left_out)
    repeated = sum(row.reason == REPEATED for row in told)
    assert events.where("_unreadable is not null").count() == len(told) - repeated
    assert summary["events"] == len(rows) and summary["messages"] == sum(row["kind"] in SENDS for row in rows)
    return summary


def shuffled(frame, dice):
    return frame.orderBy(F.rand(dice.randint(0, 1 << 30))).repartition(dice.randint(1, 4))


def opentelemetry(spark, spans):
    """A flat table: snake case, attributes in maps, times as timestamps or numbers."""
    rows = [
        (
            each["trace"], each["span"], each["parent"], each["name"], each["kind"], each["start"],
            each["end"], each["attributes"], [(link["trace"], link["span"]) for link in each["links"]],
            {"service.name": each["service"]} if each["service"] else {}, 2 if each["failed"] else None,
        )
        for each in spans
    ]  # fmt: skip
    schema = (
        "trace_id string, span_id string, parent_span_id string, name string, kind string, "
        "start_time_unix_nano long, end_time_unix_nano long, attributes map<string, string>, "
        "links array<struct<trace_id: string, span_id: string>>, "
        "resource struct<attributes: map<string, string>>, status struct<code: int, message: string>"
    )
    return spark.createDataFrame(
        [(*row[:9], (row[9],), (row[10], "") if row[10] else None) for row in rows], schema
    )


TEMPO = """TraceID binary, TraceIDText string, RootServiceName string, DurationNano long, rs array<struct<
  Resource: struct<ServiceName: string, Cluster: string,
    Attrs: array<struct<Key: string, Value: array<string>>>>,
  ss: array<struct<Scope: struct<Name: string>, Spans: array<struct<
    SpanID: binary, ParentSpanID: binary, Name: string, Kind: int, StatusCode: int,
    StartTimeUnixNano: decimal(20, 0), DurationNano: decimal(20, 0),
    Attrs: array<struct<Key: string, IsArray: boolean, Value: array<string>, ValueInt: array<long>>>,
    Links: array<struct<TraceID: binary, SpanID: binary>>>>>>>>"""


def tempo(spark, spans):
    """A row for each trace, as Tempo's Parquet has it."""
    traces = {}
    for each in spans:
        traces.setdefault(each["trace"], []).append(each)

    def span_of(each):
        return (
            bytes.fromhex(each["span"]),
            bytes.fromhex(each["parent"] or ""),
            each["name"],
            KINDS.index(each["kind"]) + 1,
            2 if each["failed"] else 0,
            Decimal(each["start"] or 0),
            Decimal(each["end"] - each["start"] if each["start"] else 0),
            [(key, False, [value], None) for key, value in each["attributes"].items()],
            [(bytes.fromhex(link["trace"]), bytes.fromhex(link["span"])) for link in each["links"]],
        )

    rows = [
        (
            bytes.fromhex(name), name, "root", 0,
            [((each["service"], None, []), [(("scope",), [span_of(each)])]) for each in mine],
        )
        for name, mine in traces.items()
    ]  # fmt: skip
    return spark.createDataFrame(rows, TEMPO)
