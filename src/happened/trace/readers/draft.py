"""Drafts: what a reader makes of single foreign records, before it determines any order.

Reading has two steps, so that one process and many Spark tasks can share the code:

    parse     one file, or some lines of it  ->  drafts, and what could not be understood
    assemble  all drafts of a computation    ->  rows of the trace, and contradictory records

A draft names its causes as its source does (`id`, `parents`, `links`, or a vector clock); an assembled row
names them by process and seq. Nothing is dropped silently: every omission, of a line or of one cause of an
event, is a QuarantinedRecord row.
"""

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import starmap
from operator import attrgetter
from typing import Any

import pyarrow as pa

from ..declared import schema
from ..schema import SCHEMA

QUARANTINE = schema("file string, line int64?, field string?, reason string, text string?, imported bool")
"""Lines count from 1; of a JSON document, `line` is the number of the record."""

_IDS = pa.field("ids", pa.list_(pa.string()), nullable=False)
PACKED = schema("computation string, file string, line int64, drafts binary").insert(3, _IDS)
"""Drafts in transit from parsing tasks to assembling tasks: each row has some drafts of one computation, by
the line of the first. Only the grouping columns are separate: splitting the drafts into columns would cost
more than parsing.
"""

EXCERPT = 200
"""Number of characters of the offending text that are kept."""

Row = dict[str, Any]
"""One event, keyed by the column names of trace.SCHEMA."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """Something that was left out of the trace, with its place and the reason.

    If `imported` is set, only a part of a record was left out (a cause, say), and its event is in the trace.
    """

    file: str
    line: int | None
    field: str | None
    reason: str
    text: str | None = None
    imported: bool = False

    def __str__(self) -> str:
        place = self.file + (f":{self.line}" if self.line is not None else "")
        about = f"field {self.field!r}: " if self.field is not None else ""
        return f"{place}: {about}{self.reason}"


@dataclass(slots=True)
class Draft:
    file: str
    line: int  # where the record begins, from 1; in JSON documents the number of the record
    computation: str
    process: str
    label: str | None = None
    seq: int | None = None  # the event's number in the source, if it has one
    kind: str = "internal"
    message: str | None = None
    to: list[str] | None = None
    time: int | None = None  # nanoseconds
    end: int | None = None  # end time of a span
    took: int | None = None  # nanoseconds, for a piece of a span without a start time
    clock: dict[str, int] | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    relevant: bool = True  # logged events count as relevant
    carried: Row = field(default_factory=dict)  # columns of the trace that no reader interprets
    id: str | None = None
    parents: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  # causes other than parents: span links, FOLLOWS_FROM
    shared: bool = False  # the server's half of a span whose id the client recorded too
    channel: str | None = None  # of a span: messages that a queue keeps in order, see span_drafts.py
    absent: bool = False  # makes no event; references to it mean its parents

    @property
    def place(self) -> str:
        """The record's place; rows of a table, which have no number, have line 0."""
        return f"as record {self.line} of {self.file}" if self.line else f"in {self.file}"

    def quarantined(self, field: str | None, reason: str, *, imported: bool = True) -> QuarantinedRecord:
        text = f"{self.process}: {self.label or self.id or ''}"[:EXCERPT]
        return QuarantinedRecord(self.file, self.line, field, reason, text, imported)

    def row(self, process: str, seq: int, causes: Iterable[tuple[str, int]] | None = None) -> Row:
        place = {"line": str(self.line)} if self.id is None else {}
        return {
            "computation": self.computation,
            "process": process,
            "seq": seq,
            "kind": self.kind,
            "message": self.message,
            "to": self.to,
            "time": self.time,
            "relevant": self.relevant,
            "causes": [{"process": p, "seq": s} for p, s in causes] if causes else None,
            "clock": self.clock,
            "label": self.label,
            "attributes": place | self.attributes or None,
            **self.carried,
        }


Parsed = Iterator[Draft | QuarantinedRecord]


@dataclass(slots=True)
class Assembly:
    """The result of assembling the drafts of one import: rows in the order of their drafts, and omissions.

    facts   counts of the decisions that the reader made; the summary adds them up
    """

    rows: list[Row] = field(default_factory=list)
    quarantined: list[QuarantinedRecord] = field(default_factory=list)
    facts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options for an import; each reader uses those that concern it."""

    regex: str | None = None  # shiviz: with groups host, clock and event
    delimiter: str | None = None  # shiviz: matches the line before each run; group `trace` names it
    parsers: str | None = None  # shiviz: a file of such expressions, by name of the log
    match: str = "unique"  # etcd-raft: pair equal messages `unique`ly or in `fifo` order
    map: str | None = None  # map, map-spans: the meaning of fields, as in process=node,seq=n
    together: bool = False  # the files are parts of one computation, not one each
    clock_order: bool = False  # spans: each process's clock orders all of its events


def storable(parsed: Parsed) -> Parsed:
    """The drafts that a table can store; drafts with times beyond 64 bits or invalid Unicode are
    quarantined."""
    for each in parsed:
        if isinstance(each, Draft):
            for name in ("time", "end", "took"):
                value = getattr(each, name)
                if value is not None and not -(1 << 63) <= value < 1 << 63:
                    if "span" in each.attributes and _is_unicode(each):  # its children become its parents'
                        where = (each.file, each.line, each.computation, "")
                        yield Draft(*where, id=each.id, parents=each.parents, absent=True)
                    each = QuarantinedRecord(
                        each.file, each.line, name, "in nanoseconds is beyond 64 bits", each.label
                    )
                    break
        if not _is_unicode(each):
            if isinstance(each, Draft) and each.absent:  # the record itself is quarantined already
                continue
            reason = "holds half a character (a lone surrogate); write it as UTF-8"
            each = QuarantinedRecord(each.file, each.line, None, reason)
        yield each


def _is_unicode(each: Draft | QuarantinedRecord) -> bool:
    try:
        "".join(_texts(each) if isinstance(each, Draft) else (each.reason, each.text or "")).encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(draft: Draft) -> tuple[str, ...]:
    return (
        *(draft.computation, draft.process, draft.label or "", draft.message or "", draft.id or ""),
        *(*(draft.to or ()), *draft.parents, *draft.links, *(draft.clock or ())),
        *(*draft.attributes, *draft.attributes.values()),
        json.dumps(draft.carried, ensure_ascii=False) if draft.carried else "",
    )


FIELDS = tuple(each.name for each in fields(Draft))
CARRIED = tuple(name for name in SCHEMA.names if name not in (*FIELDS, "causes"))
"""Columns of the trace that are in `Draft.carried`, since drafts have no fields for them."""
packed: Callable[[Draft], tuple[Any, ...]] = attrgetter(*FIELDS)
"""A draft as plain values, which are fast to write and read; Draft(*values) restores it."""


def packed_table(drafts: Iterable[Draft]) -> pa.Table:
    """A table of consecutive drafts of a file."""
    rows = [
        (
            *(name, of[0].file, of[0].line, [each.id for each in of if each.id and not each.absent]),
            pickle.dumps([packed(draft) for draft in of], 5),
        )
        for name, of in by_computation(drafts).items()
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(PACKED)
    return pa.table(
        [pa.array(each, of.type) for each, of in zip(columns, PACKED, strict=True)], schema=PACKED
    )


def unpacked_drafts(batch: pa.RecordBatch) -> Iterator[Draft]:
    """The drafts of rows that `packed_table` made; their computation is the column's."""
    names = batch.column("computation").to_pylist()
    for computation, data in zip(names, batch.column("drafts").to_pylist(), strict=True):
        for draft in starmap(Draft, pickle.loads(data)):
            draft.computation = computation
            yield draft


def left_out(
    file: str, line: int | None, record: object, field: str | None, reason: str, *, imported: bool = False
) -> QuarantinedRecord:
    """A record of the reason why a record or part was left out; `record` is its text or parsed value."""
    text = record if isinstance(record, str) else json.dumps(record, default=str)
    return QuarantinedRecord(file, line, field, reason, excerpt(text), imported)


def table_of(quarantined: Iterable[QuarantinedRecord]) -> pa.Table:
    return pa.Table.from_pylist([asdict(each) for each in quarantined], schema=QUARANTINE)


def excerpt(text: str) -> str:
    """The beginning of a text, joined to one line."""
    return " ⏎ ".join(text.strip().splitlines())[:EXCERPT]


def by_computation(drafts: Iterable[Draft]) -> dict[str, list[Draft]]:
    groups: dict[str, list[Draft]] = {}
    for draft in drafts:
        groups.setdefault(draft.computation, []).append(draft)
    return groups
