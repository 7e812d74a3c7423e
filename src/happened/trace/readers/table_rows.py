"""Our own generic JSON lines: one event per line, by the field names of the trace (see trace/jsonl.py).

Without `seq`, the events of a process are in file order. Rows that are no events, repeat an event's name or
send a message a second time are quarantined; the remaining events are renumbered without gaps, and causes
that do not exist are left out.
"""

import csv
import json
from collections.abc import Iterable, Iterator

import pyarrow as pa

from ...core.errors import TraceFormatError
from ..jsonl import event_from_json
from ..schema import COLUMNS, KINDS, SENDS
from .cycles import break_circles
from .draft import CARRIED, Assembly, Draft, Options, Parsed, QuarantinedRecord, Row, by_computation
from .json_documents import records
from .source import Source


def parse(source: Source, options: Options) -> Parsed:
    for number, text in source.lines():
        yield drafted(source, number, text)


def drafted(source: Source, number: int, text: str) -> Draft | QuarantinedRecord:
    """The event that a JSON object tells of, by the field names of the trace."""
    try:
        row = event_from_json(text.encode(), source.file, number, needs=("process", "kind"))
        _check(row)
    except TraceFormatError as error:
        return source.quarantined(number, text, error.field, error.reason)
    causes = row.pop("causes", None) or ()
    carried = {name: row.pop(name) for name in CARRIED if name in row}
    return Draft(
        source.file,
        number,
        parents=tuple(_id(cause["process"], cause["seq"]) for cause in causes),
        carried=carried,
        **{"attributes": {}} | row,
    )


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    result = Assembly()
    for group in by_computation(drafts).values():
        kept = _distinct(group, result)
        seq: dict[str, int] = {}
        place: dict[str | None, tuple[str, int]] = {}
        for draft in sorted(kept, key=lambda draft: draft.seq or 0):
            seq[draft.process] = seq.get(draft.process, 0) + 1
            place[draft.id] = (draft.process, seq[draft.process])
        rows = []
        for draft in kept:
            for id in draft.parents:
                if id not in place:
                    reason = f"names {id}, which is not among the rows read; imported without"
                    result.quarantined.append(draft.quarantined("causes", reason))
            rows.append(draft.row(*place[draft.id], [place[id] for id in draft.parents if id in place]))
        break_circles(rows, kept, result)
        result.rows += rows
    return result


def counts(drafts: list[Draft]) -> dict[str, int]:
    return {}


def _id(process: str, seq: int) -> str:
    return f"{process}#{seq}"


def _check(row: Row) -> None:
    """Check one row as `trace.validation` checks a table, so that a bad row leaves the others alone."""
    if row["kind"] not in KINDS:
        raise TraceFormatError(f"{row['kind']!r} is none of {', '.join(KINDS)}", field="kind")
    if row["kind"] != "internal" and row.get("message") is None:
        raise TraceFormatError(f"is missing; a {row['kind']} says which message", field="message")
    if row["kind"] in SENDS and row.get("to") is None:
        raise TraceFormatError("is missing; a send lists its destinations", field="to")
    if row.get("seq") is not None and row["seq"] < 1:
        raise TraceFormatError("is below 1; number the events of a process from 1", field="seq")


def _distinct(drafts: list[Draft], result: Assembly) -> list[Draft]:
    """Keep each event and each send once; an event's id is the name its source gave it."""
    kept: list[Draft] = []
    events: dict[str, Draft] = {}
    sent: dict[str | None, Draft] = {}
    position: dict[str, int] = {}
    for draft in drafts:
        position[draft.process] = position.get(draft.process, 0) + 1
        draft.seq = position[draft.process] if draft.seq is None else draft.seq
        draft.id = _id(draft.process, draft.seq)
        first = events.setdefault(draft.id, draft)
        if first is not draft:
            reason = (
                f"{draft.id} is on {_line(first, draft)} too: an event twice, or two processes of one name"
            )
            result.quarantined.append(draft.quarantined("seq", reason, imported=False))
        elif draft.kind in SENDS and (first := sent.setdefault(draft.message, draft)) is not draft:
            reason = f"{draft.message} is sent on {_line(first, draft)} too; give each send its own"
            result.quarantined.append(draft.quarantined("message", reason, imported=False))
        else:
            kept.append(draft)
    return kept


def _line(first: Draft, again: Draft) -> str:
    return f"line {first.line}" + ("" if first.file == again.file else f" of {first.file}")


# The output of `happened export` for other tools: trace events of Perfetto, and tables as CSV. In both, an
# event includes its row of the trace: as the arguments of a slice, or as columns among others. All other data
# is skipped. An empty text in a CSV means null, except for the message of an event that has a message.

CSV_BEGINS = "event,computation,process,seq,kind,"
LONGEST_CELL = 1 << 24
"""Characters; a longer cell is taken for one with a missing quotation mark."""
TEXTS = frozenset(column.name for column in COLUMNS if pa.types.is_string(column.type))


def parse_perfetto(source: Source, options: Options) -> Parsed:
    for number, event, _ in records(source, ("traceEvents",)):
        if isinstance(event, QuarantinedRecord):
            yield event
        elif not isinstance(event, dict) or not isinstance(event.get("ph"), str):
            reason = "is no trace event: it has no phase"
            yield source.quarantined(number, event, "ph", reason)
        elif event["ph"] == "X":
            yield drafted(source, number, json.dumps(event.get("args")))


def parse_csv(source: Source, options: Options) -> Parsed:
    rows = csv.reader((text for _, text in source.numbered), strict=True)
    columns: list[str] = []
    for number, cells in _numbered(source, rows):
        if isinstance(cells, QuarantinedRecord):
            yield cells
        elif not columns:
            columns = cells
        elif len(cells) != len(columns):
            reason = f"has {len(cells)} cells, not {len(columns)}; the file may have been cut"
            yield source.quarantined(number, ",".join(cells), None, reason)
        else:
            yield drafted(source, number, _json(dict(zip(columns, cells, strict=True))))


def _numbered(
    source: Source, rows: Iterator[list[str]]
) -> Iterator[tuple[int, list[str] | QuarantinedRecord]]:
    """Every row that is not empty, by the line that it begins on."""
    number = 1
    while True:
        usual = csv.field_size_limit(LONGEST_CELL)  # the limit is global: restore it afterwards
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, QuarantinedRecord(source.file, number, None, f"is not CSV ({error})")
            cells = []
        finally:
            csv.field_size_limit(usual)
        if cells:
            yield number, cells
        number = rows.line_num + 1  # type: ignore[attr-defined]


def _json(cells: dict[str, str]) -> str:
    """A row converted back to a JSON object."""
    said = []
    for name in (column.name for column in COLUMNS):
        text = cells.get(name, "")
        if text or (name == "message" and cells.get("kind") != "internal"):
            said.append(f"{json.dumps(name)}: {json.dumps(text) if name in TEXTS else text}")
    return "{" + ", ".join(said) + "}"
