"""Recognise the format of a file by its beginning; None if that would be a guess."""

import json
import re
from typing import Any

from ..store import AnyPath
from . import shiviz
from .message_logs import RING_LINE
from .otlp_protobuf import is_protobuf
from .source import beginning, first_bytes
from .table_rows import CSV_BEGINS

AWDIT_STEP = re.compile(r"[rw] \S+ \S+")

# The first of these fields that is present decides; more specific fields come first.
BY_FIELDS = (
    ({"TracerIdentity", "VectorClock"}, "tokens"),
    ({"event", "tag"}, "etcd-raft"),
    ({"resourceSpans"}, "otlp"),
    ({"batches"}, "otlp"),
    ({"traceID", "spans"}, "jaeger"),
    ({"happenedTrace", "traceEvents"}, "perfetto"),
    ({"traceEvents"}, "chrome"),
    ({"ph", "ts", "pid"}, "chrome"),
    ({"context", "parent_id"}, "otel-sdk"),
    ({"context.trace_id", "context.span_id"}, "otel-sdk"),
    ({"SpanContext", "SpanKind"}, "otel-sdk"),
    ({"trace_id", "started_at", "parent_id"}, "otel-sdk"),
    ({"trace_id", "span_id", "start_time"}, "otel-sdk"),
    ({"Traces"}, "xray"),
    ({"trace_id", "id", "start_time", "name"}, "xray"),
    ({"trace_id", "span_id", "service"}, "datadog"),
    ({"traceId", "localEndpoint"}, "zipkin"),
    ({"traceId", "annotations"}, "zipkin"),
    ({"traceId", "id"}, "zipkin"),
    ({"process", "kind"}, "jsonl"),
    ({"process", "type", "value"}, "jepsen"),
    ({"id", "parents"}, "dag"),
    ({"GenesisID", "Blocks"}, "dag"),
    ({"txns"}, "dag"),
)


def detect(path: AnyPath) -> str | None:
    if is_protobuf(first_bytes(path)):
        return "otlp"
    text = beginning(path).lstrip()
    if text[:1] in ("{", "["):
        names = _field_names(text)
        return next((format for fields, format in BY_FIELDS if fields <= names), None)
    first = text.partition("\n")[0]
    if first.startswith("TraceID,SpanID,"):
        return "nezha"
    if first.startswith(CSV_BEGINS):
        return "csv"
    if AWDIT_STEP.fullmatch(first.strip()):
        return "awdit"
    if RING_LINE.fullmatch(first.rstrip()):
        return "peterson"
    if shiviz.begins_with_regex(text):
        return "shiviz"
    govector = shiviz.compile_javascript(shiviz.GOVECTOR)
    # From its second line on, a log with the event before its clock looks the same: the first line decides.
    return "shiviz" if govector.match(text) else None


def _field_names(text: str) -> set[str]:
    """The fields of the first record."""
    record: Any
    try:
        record, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        # The document is cut off here, or nested too deeply to parse: use all field names that occur in its
        # beginning.
        return set(re.findall(r'"(\w+)"\s*:', text))
    while isinstance(record, list) and record:
        record = record[0]
    for name in ("data", "traces"):
        if isinstance(record, dict) and isinstance(record.get(name), list) and record[name]:
            record = record[name][0]
    for name in ("result", "trace"):
        if isinstance(record, dict) and isinstance(record.get(name), dict):
            record = record[name]
    return set(record) if isinstance(record, dict) else set()
