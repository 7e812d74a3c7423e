"""Convert rows of tables of spans with the readers of the file formats.

A Preset lists the columns of a kind of table, and turns a row into drafts, with the format's own reader.
Columns are recognised by name, ignoring case and underscores, and so are nested fields. A row is one span, or
holds many: OTLP's resourceSpans, Jaeger's traces, Tempo's `rs`.

Attributes are a map, a struct, a list of keys and values, or JSON text. Span events are not read: only a
clock orders them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...core.errors import TraceFormatError
from . import otlp
from .draft import Draft, Parsed, QuarantinedRecord, left_out
from .json_documents import as_object, members, objects_in
from .span_drafts import EPOCH, drafted, nanoseconds, texts
from .span_formats import jaeger_span, zipkin_drafts

Record = dict[str, Any]
MICROSECOND = timedelta(microseconds=1)


class Nanoseconds(int):
    """A time since 1970 or a duration in nanoseconds, converted from a column whose type names its unit."""


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows of a batch in the form of parsed JSON: structs and maps become objects without nulls, bytes
    hexadecimal digits, timestamps and intervals Nanoseconds, decimals numbers, dates ISO text."""
    columns = [_values(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield {name: value for name, value in zip(batch.schema.names, row, strict=True) if value is not None}


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # not through `datetime`, which ends with the year 9999
        scale = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}[column.type.unit]
        return [None if n is None else Nanoseconds(n * scale) for n in column.cast(pa.int64()).to_pylist()]
    convert = _converter(column.type)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that converts a value of this type to a plain one; None if no conversion is needed."""
    if pa.types.is_struct(kind):
        within = {field.name: _converter(field.type) or _same for field in kind}
        return lambda value: {n: within[n](each) for n, each in value.items() if each is not None}
    if pa.types.is_map(kind):
        of_item = _converter(kind.item_type) or _same
        return lambda pairs: {str(_plain(n)): of_item(each) for n, each in pairs if each is not None}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_member = _converter(kind.value_type)
        if of_member is None:
            return None
        return lambda members: [None if each is None else of_member(each) for each in members]
    is_plain = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return None if is_plain else _plain


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return Nanoseconds((moment - EPOCH) // MICROSECOND * 1000)
        case timedelta():
            return Nanoseconds(value // MICROSECOND * 1000)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case date():
            return value.isoformat()
    return value


FILE = "the frame"
ROW = 0
"""The line number of rows of a data frame, which have none."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of table of spans.

    columns   field of its records -> our name for it (see `happened.spark.spans`), or "" if we have none
    spelt     field -> the possible names of its column, normalised by `spelling`
    shapes    sets of names, normalised by `spelling`: a table with all names of one set is of this kind
    drafts    turns a row into drafts
    """

    columns: Mapping[str, str]
    spelt: Mapping[str, tuple[str, ...]]
    shapes: tuple[frozenset[str], ...]
    drafts: Callable[[Record], Parsed]

    @classmethod
    def of(cls, fields: str, shapes: str, drafts: Callable[[Record], Parsed]) -> "Preset":
        """A preset from a text definition: `field=ours/otherspelling field …` and `name+name name+…`."""
        columns, spelt = {}, {}
        for each in fields.split():
            field, _, known = each.partition("=")
            columns[field], *others = known.split("/")
            spelt[field] = (spelling(field), *others)
        return cls(columns, spelt, tuple(frozenset(each.split("+")) for each in shapes.split()), drafts)

    def fields(self, names: Iterable[str]) -> dict[str, str]:
        """For each field of the preset, the first of these column names that stands for it."""
        by_spelling: dict[str, str] = {}
        for name in names:
            by_spelling.setdefault(spelling(name), name)
        found = ((field, next(filter(by_spelling.get, spelt), None)) for field, spelt in self.spelt.items())
        return {field: by_spelling[spelt] for field, spelt in found if spelt is not None}

    def renamed(self, record: Record) -> Record:
        """A record keyed by field names; columns that are no fields are left out."""
        return {field: record[name] for field, name in self.fields(record).items()}


def spelling(name: str) -> str:
    return name.replace("_", "").replace(".", "").lower()


def recognised(names: Iterable[str], mapped: Iterable[str] = ()) -> str:
    """The preset that these columns belong to; `mapped` are our fields that the caller mapped."""
    known = {spelling(name) for name in names}
    for preset, kind in PRESETS.items():
        if any(shape <= known for shape in kind.shapes):
            return preset
    if {"trace", "span"} <= {*mapped} | ({"trace"} & known):
        return OPENTELEMETRY
    raise TraceFormatError(
        f"the frame does not look like spans of {', '.join(PRESETS)}; it has {', '.join(names)}. Say "
        f'preset=, or which column is what: columns={{"trace": "…", "span": "…", "parent": "…", '
        f'"service": "…", "start": "…", "end": "…"}}'
    )


def drafts_of(preset: str, record: Record) -> Iterator[Draft | QuarantinedRecord]:
    """The drafts of a row; unreadable parts are quarantined."""
    try:
        yield from PRESETS[preset].drafts(record)
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        yield left_out(FILE, ROW, record, None, f"cannot be read as a span ({error})")


def _opentelemetry(record: Record) -> Parsed:
    if any(spelling(name) in ("resourcespans", "batches") for name in record):
        for facts, span in otlp.spans_of(_parsed(record)):
            yield from _otlp_span(span, facts)
    else:
        yield from _otlp_span(record, {})


def _otlp_span(record: Any, facts: Mapping[str, str]) -> Parsed:
    """The draft of one span, whose resource is in the row or in an enclosing object."""
    if not isinstance(record, dict):
        yield from otlp.drafts(FILE, ROW, dict(facts), record)
        return
    span = PRESETS[OPENTELEMETRY].renamed(record)
    resource = _parsed(span.pop("resource", None))
    resource = resource.get("attributes", resource) if isinstance(resource, dict) else resource
    mine = dict(facts) | texts(_attributes(resource))
    for field, fact in (("serviceName", "service.name"), ("serviceInstanceId", "service.instance.id")):
        if span.get(field):
            mine[fact] = str(span.pop(field))
    span["attributes"] = _attributes(span.get("attributes"))
    span["links"] = [PRESETS[OPENTELEMETRY].renamed(link) for link in objects_in(_parsed(span.get("links")))]
    status = _parsed(span.get("status"))
    codes = (v for n, v in status.items() if n.lower() == "code") if isinstance(status, dict) else [status]
    code = next(iter(codes), None)
    span["status"] = {"code": f"STATUS_CODE_{code.upper()}" if code in ("Error", "ERROR") else code}
    for name, other in (("startTimeUnixNano", "startTime"), ("endTimeUnixNano", "endTime")):
        if name not in span and other in span:
            span[name] = _since_1970(span[other])
    if "endTimeUnixNano" not in span and "durationNano" in span and span.get("startTimeUnixNano"):
        span["endTimeUnixNano"] = int(span["startTimeUnixNano"]) + int(span.pop("durationNano"))
    yield from otlp.drafts(FILE, ROW, mine, span)


def _since_1970(value: Any) -> Any:
    """A time in nanoseconds, if the value is a time; a number's size shows its unit. Others are unchanged."""
    if isinstance(value, Nanoseconds):
        return int(value)
    try:
        return nanoseconds(value)
    except (ValueError, TypeError, OverflowError):
        return value


def _tempo(record: Record) -> Parsed:
    """A trace as Tempo's Parquet has it: TraceID, rs: [{Resource, ss: [{Spans}]}]."""
    row = {spelling(name): value for name, value in record.items()}
    trace = row.get("traceidtext") or row.get("traceid")
    for resource in row.get("rs") or ():
        around = {spelling(name): value for name, value in resource.items()}
        told = around.get("resource") or {}
        facts = {name: str(told[field]) for field, name in TEMPO_FACTS.items() if told.get(field)}
        facts |= texts(_attributes(told.get("Attrs")))
        for scope in around.get("ss") or ():
            for span in scope.get("Spans") or scope.get("spans") or ():
                more = {name: span[field] for field, name in TEMPO_COLUMNS.items() if field in span}
                attributes = more | _attributes(span.get("Attrs"))
                yield from _otlp_span({"traceId": trace, **span, "Attrs": attributes}, facts)


TEMPO_FACTS = {
    "ServiceName": "service.name",
    "Cluster": "cluster",
    "Namespace": "namespace",
    "Pod": "pod",
    "Container": "container",
    "K8sClusterName": "k8s.cluster.name",
    "K8sNamespaceName": "k8s.namespace.name",
    "K8sPodName": "k8s.pod.name",
    "K8sContainerName": "k8s.container.name",
}
TEMPO_COLUMNS = {"HttpMethod": "http.method", "HttpUrl": "http.url", "HttpStatusCode": "http.status_code"}
TEMPO_VALUES = (
    "Value", "ValueInt", "ValueDouble", "ValueBool", "ValueUnsupported", "ValueArray", "ValueKVList",
)  # fmt: skip


def _jaeger(record: Record) -> Parsed:
    for span, holder in members(record, {}, ("data", "spans")):
        if isinstance(span, dict):
            span = _renamed_span(PRESETS[JAEGER], span, ("process",), ("startTime", "duration"))
            references = objects_in(_parsed(span.get("references")))
            span["references"] = [PRESETS[JAEGER].renamed(each) for each in references]
        yield from drafted(FILE, ROW, span, jaeger_span, holder.get("processes"))


def _zipkin(record: Record) -> Parsed:
    for span, _ in members(record, {}, ("traces", "data")):
        if isinstance(span, dict):
            places = ("localEndpoint", "remoteEndpoint")
            span = _renamed_span(PRESETS[ZIPKIN], span, places, ("timestamp", "duration"))
        yield from zipkin_drafts(FILE, ROW, span)


def _renamed_span(
    kind: Preset, record: Record, places: tuple[str, ...], times: tuple[str, ...]
) -> dict[str, Any]:
    """A span with the field names of its format; the first value of `places` says where it ran."""
    span = kind.renamed(record)
    for name in places:
        place = _parsed(span.get(name))
        if isinstance(place, dict):
            span[name] = kind.renamed(place)
    if span.get("serviceName"):
        span[places[0]] = as_object(span.get(places[0])) | {"serviceName": span.pop("serviceName")}
    span["tags"] = _parsed(span.get("tags"))
    for name in times:
        if name in span:
            span[name] = _microseconds(span[name])
    return span


def _microseconds(value: Any) -> Any:
    if isinstance(value, Nanoseconds):
        return value // 1000
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _parsed(value: Any) -> Any:
    """The value of JSON text; anything else unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _attributes(value: Any) -> Record:
    """Attributes by name: of a map or struct, JSON text, or a list of keys with values of OTLP or Tempo."""
    value = _parsed(value)
    if isinstance(value, dict):
        return value
    found: Record = {}
    for each in objects_in(value):
        key = each.get("key", each.get("Key"))
        values = [each[name] for name in ("value", *TEMPO_VALUES) if each.get(name) not in (None, [])]
        if key is not None and values:
            found[str(key)] = _one(values[0])
    return found


def _one(value: Any) -> Any:
    """The value of OTLP's {"stringValue": …}, or of Tempo's list with one element."""
    if isinstance(value, dict):
        return next(iter(value.values()), "")
    return value[0] if isinstance(value, list) and len(value) == 1 else value


OPENTELEMETRY, JAEGER, ZIPKIN, TEMPO = "opentelemetry", "jaeger", "zipkin", "tempo"

PRESETS: dict[str, Preset] = {
    TEMPO: Preset.of("TraceID=trace TraceIDText rs", "traceid+rs", _tempo),
    JAEGER: Preset.of(
        "traceID=trace spanID=span parentSpanID=parent operationName=label startTime=start duration=duration "
        "tags=attributes references=links/refs serviceName=service/processservicename process=resource "
        "processID refType spans processes data",
        "traceid+spans traceid+spanid+references traceid+spanid+process traceid+spanid+processid "
        "traceid+spanid+operationname+starttime+duration",
        _jaeger,
    ),
    OPENTELEMETRY: Preset.of(
        "traceId=trace spanId=span parentSpanId=parent/parentid name=label/spanname kind=kind/spankind "
        "startTimeUnixNano=start endTimeUnixNano=end startTime=/start endTime=/end "
        "durationNano=duration/durationnanos/durationns attributes=attributes/spanattributes/attrs "
        "links=links resource=resource/resourceattributes serviceName=service serviceInstanceId=instance "
        "status=status/statuscode resourceSpans=/batches",
        "traceid+spanid resourcespans batches",
        _opentelemetry,
    ),
    ZIPKIN: Preset.of(
        "traceId=trace id=span parentId=parent name=label kind=kind timestamp=start duration=duration "
        "tags=attributes serviceName=service localEndpoint=resource remoteEndpoint shared annotations "
        "binaryAnnotations ipv4 ipv6 port",
        "traceid+id",
        _zipkin,
    ),
}
"""Presets by name, in the order in which `recognised` tries them."""
