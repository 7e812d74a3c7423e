"""Readers of foreign logs; `import_files` writes what they read as a trace.

A reader consists of three pure functions, see draft.py: `parse(source, options)` gives the drafts of one file
or, for formats that are `line_by_line`, of any part of one; `assemble(drafts, options)` makes rows from all
drafts of some computations; `counts(drafts)` gives a file's counts for a computation, for people to compare.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from . import (
    chrome,
    clocked,
    dag,
    database_histories,
    mapped,
    message_logs,
    otlp,
    shiviz,
    span_formats,
    spans,
    table_rows,
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
    one_computation: bool = False  # a file never holds several computations
    line_by_line: bool = False  # parse accepts any lines of a file, in any number of pieces
    header: str | None = None  # a word that marks a first line which every piece needs
    names_computations: bool = False  # records name their computation
    joins_computations: bool = False  # records that name each other's records join their computations


Parse = Callable[[Source, Options], Parsed]


def _of(description: str, reader: Any, parse: Parse | None = None, **facts: Any) -> Format:
    """The format that a module reads; `parse` selects the function if the module reads several formats."""
    return Format(description, parse or reader.parse, reader.assemble, reader.counts, **facts)


# Spans name their trace, and rows of a trace name their computation.
_spans = partial(_of, reader=spans, names_computations=True, joins_computations=True)
_rows = partial(_of, reader=table_rows, names_computations=True)
_history = partial(_of, reader=database_histories)

FORMATS: dict[str, Format] = {
    "shiviz": _of(
        "ShiViz and GoVector logs: text with a vector clock per event, found by a regular expression", shiviz
    ),
    "tokens": Format(
        "tracing-library logs: JSON lines with vector clocks and tokens",
        message_logs.parse_tokens,
        message_logs.assemble_tokens,
        message_logs.count_tokens,
        line_by_line=True,
    ),
    "peterson": Format(
        "ring elections: `node v0,v1,… event args`",
        message_logs.parse_ring,
        message_logs.assemble_ring,
        clocked.counts,
        line_by_line=True,
    ),
    "etcd-raft": Format(
        "etcd raft traces: JSON lines, messages without ids",
        message_logs.parse_raft,
        message_logs.assemble_raft,
        message_logs.count_raft,
        line_by_line=True,
    ),
    "otlp": _spans(
        "OpenTelemetry spans, OTLP as JSON or protobuf; also of Tempo and Jaeger v2", parse=otlp.parse
    ),
    "jaeger": _spans("Jaeger JSON spans", parse=span_formats.parse_jaeger),
    "zipkin": _spans("Zipkin JSON spans, v1 and v2", parse=span_formats.parse_zipkin),
    "otel-sdk": _spans(
        "spans as OpenTelemetry SDKs print and agent frameworks log them, JSON", parse=otlp.parse_printed
    ),
    "xray": _spans("AWS X-Ray segments, JSON", parse=span_formats.parse_xray),
    "datadog": _spans("Datadog spans, JSON", parse=span_formats.parse_datadog),
    "chrome": _spans(
        "Chrome and Perfetto trace events with flows, JSON", parse=chrome.parse, names_computations=False
    ),
    "nezha": replace(
        _spans("span tables, CSV", parse=span_formats.parse_nezha, line_by_line=True, header="TraceID"),
        counts=partial(spans.counts, place="pod"),
    ),
    "dag": _of(
        "records with an id and parents: commits, blocks, editing histories (JSON)", dag, one_computation=True
    ),
    "jsonl": _rows("events by our own field names, one JSON object per line", line_by_line=True),
    "perfetto": _rows(
        "trace events that `happened export --to perfetto` wrote", parse=table_rows.parse_perfetto
    ),
    "csv": _rows("the table that `happened export --to csv` wrote", parse=table_rows.parse_csv),
    "awdit": _history(
        "AWDIT histories of transactions: `r key value`, `w key value`", parse=database_histories.parse_awdit
    ),
    "jepsen": _history("Jepsen histories of operations, JSON", parse=database_histories.parse_jepsen),
    "map": _of("events in any JSON lines or CSV, by --map process=…", mapped),
    "map-spans": _spans(
        "spans in any JSON lines or CSV, by --map span=…", parse=mapped.parse, names_computations=False
    ),
}
