"""Any JSON lines or CSV, through a mapping of its fields to ours: `--map process=node,seq=n,time=ts:ms`.

A source field is a name, or names joined by dots for a field within objects. Two kinds of records can be
mapped:

    events   process, and any of seq, kind, message, to, time, label, computation, id, parents, and columns
             of a trace that no reader interprets, control_bytes for one
    spans    span, and any of trace, parent, service, instance, kind, start, end, label, links

`time`, `start` and `end` may give a unit after a colon: ns (the default), us, ms, s, or iso. `kind` of an
event is one of our kinds, or a synonym such as `sent` or `rx`; an event without a message is internal,
whatever its kind says. `to`, `parents` and `links` are lists, or text with commas or spaces between names; a
parent is the `id` of another event. If no field gives a message's destinations, they are the processes that
received it. Unnumbered events are in file order. A record is one line, also in CSV. Unmapped fields become
attributes; a mapped field that a file lacks entirely is reported.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from ...core.errors import TraceFormatError
from ..jsonl import EXPECTED
from ..schema import BY_NAME
from . import table_rows
from .draft import CARRIED, Assembly, Draft, Options, Parsed, QuarantinedRecord, excerpt, left_out
from .json_documents import object_in
from .source import Source
from .span_drafts import Instance, Span, at, known_kind, nanoseconds, span_id

EVENT_FIELDS = (
    "process", "seq", "kind", "message", "to", "time", "label", "computation", "id", "parents", *CARRIED,
)  # fmt: skip
SPAN_FIELDS = (
    "span", "trace", "parent", "service", "instance", "kind", "start", "end", "label", "links", "key",
)  # fmt: skip
UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000, "iso": 0}
WORDS = {
    "send": ("send", "sent", "tx", "publish", "emit", "request"),
    "receive": ("receive", "received", "recv", "rx", "arrive"),
    "deliver": ("deliver", "delivered", "consume", "handle"),
    "internal": ("internal", "local", "event", "step"),
}
KIND_OF = {word: kind for kind, words in WORDS.items() for word in words}


class Mapping:
    """A parsed --map option. TraceFormatError if it is inconsistent."""

    def __init__(self, text: str | None) -> None:
        if not text:
            raise TraceFormatError("say which field is what: --map process=node,seq=n", field="map")
        self.source: dict[str, str] = {}
        self.unit: dict[str, str] = {}
        for pair in text.split(","):
            ours, equals, theirs = pair.partition("=")
            ours, theirs = ours.strip(), theirs.strip()
            if not equals or not theirs or ours not in (*EVENT_FIELDS, *SPAN_FIELDS):
                known = ", ".join(dict.fromkeys((*EVENT_FIELDS, *SPAN_FIELDS)))
                raise TraceFormatError(f"{pair!r} is no OURS=THEIRS with one of {known}", field="map")
            if ours in self.source:
                raise TraceFormatError(f"maps {ours} twice", field="map")
            name, colon, unit = theirs.rpartition(":")
            if colon and unit in UNITS and ours in ("time", "start", "end"):
                theirs, self.unit[ours] = name, unit
            self.source[ours] = theirs
        self.is_spans = "span" in self.source
        if not self.is_spans and "process" not in self.source:
            raise TraceFormatError("maps neither process (for events) nor span (for spans)", field="map")
        allowed = SPAN_FIELDS if self.is_spans else EVENT_FIELDS
        wrong = [ours for ours in self.source if ours not in allowed]
        if wrong:
            kind = "spans" if self.is_spans else "events"
            raise TraceFormatError(
                f"{wrong[0]} is no field of {kind}; those are {', '.join(allowed)}", field="map"
            )

    def find(self, record: dict[str, Any], ours: str, absent: Any = None) -> Any:
        """The record's value for one of our fields, or `absent` if it has none."""
        path = self.source.get(ours)
        if path is None or path in record:
            return absent if path is None else record[path]
        value: Any = record
        for name in path.split("."):
            if not isinstance(value, dict) or name not in value:
                return absent
            value = value[name]
        return value

    def get(self, record: dict[str, Any], ours: str) -> Any:
        """Like `find`, but None for an empty text."""
        value = self.find(record, ours)
        return None if value == "" else value

    def text(self, record: dict[str, Any], ours: str) -> str | None:
        value = self.get(record, ours)
        return value if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False)

    def time(self, record: dict[str, Any], ours: str) -> int | None:
        value, unit = self.get(record, ours), self.unit.get(ours, "ns")
        if value is None:
            return None
        try:
            if unit == "iso":
                return nanoseconds(str(value))
            if isinstance(value, bool):
                raise ValueError
            whole = isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit())
            return int(value) * UNITS[unit] if whole else round(float(value) * UNITS[unit])
        except (ValueError, OverflowError, TypeError) as error:
            raise ValueError(f"{self.source[ours]} is {value!r}, which is no time in {unit}") from error

    def number(self, record: dict[str, Any], ours: str) -> int | None:
        """A whole number, which may be written as text."""
        value = self.get(record, ours)
        if value is None:
            return None
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        is_whole |= isinstance(value, float) and value.is_integer()
        is_whole |= isinstance(value, str) and value.strip().lstrip("-").isdecimal()
        if not is_whole:
            raise ValueError(f"{self.source[ours]} is {value!r}, which is no whole number")
        return int(value)

    def names(self, record: dict[str, Any], ours: str) -> list[str] | None:
        value = self.get(record, ours)
        if value is None:
            return None
        if isinstance(value, str):
            return value.replace(",", " ").split()
        return [str(each) for each in value] if isinstance(value, list) else [str(value)]

    def carried(self, record: dict[str, Any]) -> dict[str, Any]:
        """The columns of the trace that no reader interprets. ValueError for a value of the wrong type."""
        found = {}
        for name in CARRIED:
            value, column = self.get(record, name), BY_NAME[name]
            if value is None:
                continue
            value = self.text(record, name) if pa.types.is_string(column.type) else _from_text(value)
            is_accepted, expected = EXPECTED[name]
            if not is_accepted(value):
                raise ValueError(f"{self.source[name]} is {value!r}, not {expected}")
            found[name] = value
        return found

    def others(self, record: dict[str, Any]) -> dict[str, str]:
        """The unmapped fields, as attributes."""
        mapped = {path.partition(".")[0] for path in self.source.values()} | set(self.source.values())
        return {
            str(name): value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in record.items()
            if name not in mapped and value not in (None, "")
        }


def _from_text(value: Any) -> Any:
    """The value of a CSV field that holds JSON; the text itself if it is not JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def parse(source: Source, options: Options) -> Parsed:
    mapping = Mapping(options.map)
    for number, record in _records(source, mapping):
        if isinstance(record, QuarantinedRecord):
            yield record
            continue
        try:
            yield (_span if mapping.is_spans else event)(mapping, source, number, record)
        except (ValueError, OverflowError, TypeError) as error:
            yield source.quarantined(number, record, None, str(error))


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    """Assemble mapped events; `spans.assemble` does so for mapped spans."""
    every = list(drafts)
    receivers: dict[tuple[str, str | None], set[str]] = {}
    names: dict[tuple[str, str], str] = {}
    position: Counter[tuple[str, str]] = Counter()
    for draft in every:
        place = (draft.computation, draft.process)
        position[place] += 1
        if draft.id is not None:
            seq = position[place] if draft.seq is None else draft.seq
            names[draft.computation, draft.id] = f"{draft.process}#{seq}"
        if draft.kind in ("receive", "deliver"):
            receivers.setdefault((draft.computation, draft.message), set()).add(draft.process)
    for draft in every:
        draft.parents = tuple(names.get((draft.computation, parent), parent) for parent in draft.parents)
        if draft.kind == "send" and draft.to is None:
            draft.to = sorted(receivers.get((draft.computation, draft.message), ()))
    return table_rows.assemble(every, options)


def counts(drafts: list[Draft]) -> dict[str, int]:
    return {"sends": sum(draft.kind == "send" for draft in drafts)}


def _records(source: Source, mapping: Mapping) -> Iterator[tuple[int, dict[str, Any] | QuarantinedRecord]]:
    """Objects of JSON lines, or rows of a CSV with a header, as the first line shows; one record per line."""
    lines = source.lines()
    for number, text in lines:
        read = _json_records if text.lstrip()[:1] in ("{", "[") else _csv_records
        yield from read(source, mapping, chain([(number, text)], lines))


def _json_records(
    source: Source, mapping: Mapping, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, dict[str, Any] | QuarantinedRecord]]:
    """Records of JSON lines. Reports mapped fields that no object has: otherwise a table without its keys
    might seem complete."""
    first: tuple[int, dict[str, Any]] | None = None
    unseen = dict.fromkeys(mapping.source)
    for number, text in lines:
        record = object_in(source, number, text)
        if isinstance(record, dict):
            first = first or (number, record)
            for ours in [ours for ours in unseen if mapping.find(record, ours, unseen) is not unseen]:
                del unseen[ours]
        yield number, record
    if first is not None:
        number, record = first
        for ours in unseen:
            names = excerpt(", ".join(record))
            reason = f"--map names {mapping.source[ours]!r}, which no record has; the first has {names}"
            yield number, left_out(source.file, number, record, ours, reason, imported=True)


def _csv_records(
    source: Source, mapping: Mapping, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, dict[str, Any] | QuarantinedRecord]]:
    """Records of a CSV. Reports mapped fields that the header lacks."""
    header: list[str] | None = None
    for number, text in lines:
        fields = source.fields(number, text)
        if isinstance(fields, QuarantinedRecord):
            yield number, fields
        elif header is None:
            header = [name.strip() for name in fields]
            for ours, theirs in mapping.source.items():
                if theirs not in header:
                    reason = f"--map names {theirs!r}, which is no column; there are {', '.join(header)}"
                    yield number, left_out(source.file, number, text, ours, reason, imported=True)
        elif len(fields) != len(header):
            reason = f"has {len(fields)} fields, not {len(header)}; the line may have been cut"
            yield number, source.quarantined(number, text, None, reason)
        elif fields != header:
            yield number, dict(zip(header, fields, strict=True))


def _needed(mapping: Mapping, record: dict[str, Any], ours: str) -> str:
    value = mapping.text(record, ours)
    if value is None:
        raise ValueError(f"has no {mapping.source.get(ours, ours)}, which is the {ours}")
    return value


def event(mapping: Mapping, source: Source, number: int, record: dict[str, Any]) -> Draft:
    """The draft of an event. ValueError says which fields the record lacks."""
    message, said = mapping.text(record, "message"), mapping.text(record, "kind")
    if message is not None and (said or "").lower() not in KIND_OF:
        known = ", ".join(f"{kind} ({', '.join(words[1:])})" for kind, words in WORDS.items())
        given = f"is {said!r}" if said is not None else f"is missing beside message {message!r}"
        raise ValueError(
            f"{mapping.source.get('kind', 'kind')} {given}, and what was done with a message is {known}"
        )
    kind = KIND_OF.get((said or "").lower(), "internal") if message is not None else "internal"
    attributes = mapping.others(record)
    if kind == "internal" and said is not None:
        attributes["kind"] = said
    return Draft(
        source.file,
        number,
        mapping.text(record, "computation") or source.computation,
        _needed(mapping, record, "process"),
        mapping.text(record, "label"),
        seq=mapping.number(record, "seq"),
        kind=kind,
        message=message if kind != "internal" else None,
        to=mapping.names(record, "to") if kind == "send" else None,
        time=mapping.time(record, "time"),
        attributes=attributes,
        parents=tuple(mapping.names(record, "parents") or ()),
        id=mapping.text(record, "id"),
        carried=mapping.carried(record),
    )


def _span(mapping: Mapping, source: Source, number: int, record: dict[str, Any]) -> Draft:
    trace = mapping.text(record, "trace") or source.computation
    service = mapping.text(record, "service") or mapping.text(record, "instance")
    if service is None:
        raise ValueError("has no service or instance; one of them names the process")
    parent, kind = mapping.text(record, "parent"), known_kind(mapping.text(record, "kind"))
    attributes = mapping.others(record)
    key = mapping.text(record, "key")
    if key is not None:
        attributes["messaging.kafka.message.key"] = key
    return Span(
        trace,
        _needed(mapping, record, "span"),
        Instance(service, at(service, mapping.text(record, "instance") or "")),
        mapping.text(record, "label") or "",
        kind,
        mapping.time(record, "start"),
        mapping.time(record, "end"),
        attributes,
        (span_id(trace, parent),) if parent else (),
        tuple(span_id(trace, link) for link in mapping.names(record, "links") or ()),
        shared=kind == "server",
    ).draft(source.file, number)
