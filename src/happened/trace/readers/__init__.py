"""Readers of foreign logs, one file per format; `import_files` puts what they read into a trace.

A reader is two pure functions and a count, see draft.py: `parse(source, options)` gives drafts of one file,
or, for formats that are `line by line`, of any part of one; `assemble(drafts, options)` makes rows of all
drafts of the computations concerned; `counts(drafts)` says what a file holds of a computation, for people
to compare.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import (
    chrome,
    dag,
    database_histories,
    datadog,
    etcd_raft,
    exported,
    jaeger,
    mapped,
    nezha,
    otel_sdk,
    otlp,
    peterson,
    shiviz,
    spans,
    table_rows,
    tokens,
    xray,
    zipkin,
)
from .draft import QUARANTINE, Assembly, Draft, Options, Parsed, QuarantinedRecord
from .source import Source, open_source

__all__ = [
    "FORMATS",
    "QUARANTINE",
    "Assembly",
    "Draft",
    "Format",
    "Options",
    "QuarantinedRecord",
    "Source",
    "open_source",
]


@dataclass(frozen=True, slots=True)
class Format:
    description: str
    parse: Callable[[Source, Options], Parsed]
    assemble: Callable[[Iterable[Draft], Options], Assembly]
    counts: Callable[[list[Draft]], dict[str, Any]]
    one_computation: bool = False  # a file never holds several
    line_by_line: bool = False  # parse may be given any lines of a file, in any number of pieces
    header: str | None = None  # a word that tells a first line which every piece must be given
    names_computations: bool = False  # records say which computation they belong to, whatever their file
    joins_computations: bool = False  # and those that name each other's records are one


FORMATS: dict[str, Format] = {
    "shiviz": Format(
        "ShiViz and GoVector logs: text with a vector clock per event, found by a regular expression",
        shiviz.parse,
        shiviz.assemble,
        shiviz.counts,
    ),
    "tokens": Format(
        "tracing-library logs: JSON lines with vector clocks and tokens",
        tokens.parse,
        tokens.assemble,
        tokens.counts,
        line_by_line=True,
    ),
    "peterson": Format(
        "ring elections: `node v0,v1,… event args`",
        peterson.parse,
        peterson.assemble,
        peterson.counts,
        line_by_line=True,
    ),
    "etcd-raft": Format(
        "etcd raft traces: JSON lines, messages without ids",
        etcd_raft.parse,
        etcd_raft.assemble,
        etcd_raft.counts,
        line_by_line=True,
    ),
    "otlp": Format(
        "OpenTelemetry spans, OTLP as JSON or protobuf; also of Tempo and Jaeger v2",
        otlp.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "jaeger": Format(
        "Jaeger JSON spans",
        jaeger.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "zipkin": Format(
        "Zipkin JSON spans, v1 and v2",
        zipkin.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "otel-sdk": Format(
        "spans as OpenTelemetry SDKs print and agent frameworks log them, JSON",
        otel_sdk.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "xray": Format(
        "AWS X-Ray segments, JSON",
        xray.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "datadog": Format(
        "Datadog spans, JSON",
        datadog.parse,
        spans.assemble,
        spans.counts,
        names_computations=True,
        joins_computations=True,
    ),
    "chrome": Format(
        "Chrome and Perfetto trace events with flows, JSON",
        chrome.parse,
        spans.assemble,
        spans.counts,
        joins_computations=True,
    ),
    "nezha": Format(
        "span tables, CSV",
        nezha.parse,
        spans.assemble,
        nezha.counts,
        line_by_line=True,
        header="TraceID",
        names_computations=True,
        joins_computations=True,
    ),
    "dag": Format(
        "records with an id and parents: commits, blocks, editing histories (JSON)",
        dag.parse,
        dag.assemble,
        dag.counts,
        one_computation=True,
    ),
    "jsonl": Format(
        "events by our own field names, one JSON object per line",
        table_rows.parse,
        table_rows.assemble,
        table_rows.counts,
        line_by_line=True,
        names_computations=True,
    ),
    "perfetto": Format(
        "trace events that `happened export --to perfetto` wrote",
        exported.parse_perfetto,
        table_rows.assemble,
        table_rows.counts,
        names_computations=True,
    ),
    "csv": Format(
        "the table that `happened export --to csv` wrote",
        exported.parse_csv,
        table_rows.assemble,
        table_rows.counts,
        names_computations=True,
    ),
    "awdit": Format(
        "AWDIT histories of transactions: `r key value`, `w key value`",
        database_histories.parse_awdit,
        database_histories.assemble,
        database_histories.counts,
    ),
    "jepsen": Format(
        "Jepsen histories of operations, JSON",
        database_histories.parse_jepsen,
        database_histories.assemble,
        database_histories.counts,
    ),
    "map": Format(
        "events in any JSON lines or CSV, by --map process=…",
        mapped.parse,
        mapped.assemble,
        mapped.counts,
    ),
    "map-spans": Format(
        "spans in any JSON lines or CSV, by --map span=…",
        mapped.parse,
        spans.assemble,
        spans.counts,
        joins_computations=True,
    ),
}
