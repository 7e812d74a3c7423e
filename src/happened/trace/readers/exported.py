"""What `happened export` wrote for other tools, read back: trace events of Perfetto, and tables as CSV.

In both, each event has the row that it had in the trace: as the arguments of a slice, or as columns among
others. The rest is for people and other tools, and is passed over. An empty text in a CSV is none, except for
the message of an event that has one.
"""

import csv
import json
from collections.abc import Iterator

import pyarrow as pa

from ..schema import COLUMNS
from .draft import Options, Parsed, QuarantinedRecord
from .json_documents import records
from .source import Source
from .table_rows import drafted

CSV_BEGINS = "event,computation,process,seq,kind,"
LONGEST_CELL = 1 << 24
"""Characters; more are taken for a quotation mark that is missing."""
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
        usual = csv.field_size_limit(LONGEST_CELL)  # of the whole process: for others it stays what it was
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
    """A row as the JSON object that it stands for."""
    said = []
    for name in (column.name for column in COLUMNS):
        text = cells.get(name, "")
        if text or (name == "message" and cells.get("kind") != "internal"):
            said.append(f"{json.dumps(name)}: {json.dumps(text) if name in TEXTS else text}")
    return "{" + ", ".join(said) + "}"
