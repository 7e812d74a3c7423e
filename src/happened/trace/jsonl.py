"""Traces as JSON lines: one event per line, an object with the schema's field names.

`causes` is a list of {"process": …, "seq": …}, `clock` and `attributes` are objects; absent fields get the
column's default, mostly null. Blank lines are skipped. An unknown field is an error: other information
belongs in `attributes`.
"""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa

from ..core.errors import TraceFormatError
from .atomic import whole_file
from .schema import COLUMNS, DEFAULTS, REQUIRED, SCHEMA, Column
from .store import AnyPath, StorePath, any_path
from .writer import table_from_rows

BATCH_ROWS = 65536
PLURALS = {"string": "strings", "integer": "integers", "number": "numbers", "true or false": "true or false"}

Accepts = Callable[[Any], bool]


def accepts(kind: pa.DataType) -> Accepts:
    """A test whether a non-null JSON value has this type."""
    types = pa.types
    if types.is_string(kind):
        return lambda value: isinstance(value, str)
    if types.is_integer(kind):
        fitting = range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1)
        return lambda value: type(value) is int and value in fitting
    if types.is_boolean(kind):
        return lambda value: isinstance(value, bool)
    if types.is_floating(kind):
        return lambda value: type(value) in (int, float)
    if types.is_list(kind):
        is_member = accepts(kind.value_type)
        return lambda value: isinstance(value, list) and all(map(is_member, value))
    if types.is_map(kind):
        is_item = accepts(kind.item_type)
        return lambda value: isinstance(value, dict) and all(map(is_item, value.values()))
    within = {field.name: accepts(field.type) for field in kind}
    return lambda value: (
        isinstance(value, dict)
        and value.keys() == within.keys()
        and all(is_field(value[name]) for name, is_field in within.items())
    )


def described(column: Column) -> str:
    """The type of a column in words: "an integer (nanoseconds)"."""
    noun = _noun(column.type)
    article = "" if noun == "true or false" else "an " if noun[0] in "aeiou" else "a "
    return f"{article}{noun}" + (f" ({column.unit})" if column.unit else "")


def _noun(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_list(kind) or types.is_map(kind):
        what, of = ("list", kind.value_type) if types.is_list(kind) else ("object", kind.item_type)
        member = _noun(of)
        return f"{what} of {PLURALS.get(member, member)}"
    if types.is_struct(kind):
        return "{" + ", ".join(f'"{field.name}": {_noun(field.type)}' for field in kind) + "}"
    if types.is_string(kind):
        return "string"
    if types.is_boolean(kind):
        return "true or false"
    return "integer" if types.is_integer(kind) else "number"


def _is_unicode(value: Any) -> bool:
    """Whether all strings in a value can be encoded as UTF-8: JSON allows lone surrogates, UTF-8 does not."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


EXPECTED: dict[str, tuple[Accepts, str]] = {
    column.name: (accepts(column.type), described(column)) for column in COLUMNS
}


def read_jsonl(path: AnyPath) -> tuple[pa.Table, list[int]]:
    """The events, and the line number of each."""
    batches = []
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for line, text in enumerate(lines_of(path), start=1):
        if not text.strip():
            continue
        rows.append(event_from_json(text, str(path), line))
        lines.append(line)
        if len(rows) == BATCH_ROWS:
            batches.append(table_from_rows(rows))
            rows = []
    batches.append(table_from_rows(rows))
    return pa.concat_tables(batches), lines


def lines_of(path: AnyPath) -> Iterator[bytes]:
    """The lines of a file, unpacked if its name ends in .gz."""
    try:
        with path.open("rb") as raw:
            yield from gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceFormatError(f"cannot be unpacked ({error}); compress it again", file=str(path)) from error


def write_jsonl(table: pa.Table, path: str | os.PathLike[str] | StorePath) -> None:
    """One line per event, in table order, null fields left out."""
    with whole_file(any_path(path)) as unfinished, unfinished.open("w", encoding="utf-8") as out:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                event = {name: value for name, value in row.items() if value is not None}
                out.write(json.dumps(event, ensure_ascii=False) + "\n")


def event_from_json(text: bytes, file: str, line: int, needs: Collection[str] = REQUIRED) -> dict[str, Any]:
    """One line as a row with defaults filled in; TraceFormatError if the line is not an event."""
    try:
        event = json.loads(text)
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"is not UTF-8: {error.reason}", file=file, line=line) from error
    except json.JSONDecodeError as error:
        cut = "the file ends inside it: " if not text.endswith(b"\n") else ""
        what = error.msg.removesuffix(" at")
        reason = f"not a JSON object ({cut}{what} at column {error.colno}); repair or remove the line"
        if line == 1:
            reason += ", or make a trace of another system's log with `happened import`"
        raise TraceFormatError(reason, file=file, line=line) from error
    except (ValueError, RecursionError) as error:  # too many digits, or too deep nesting
        raise TraceFormatError(f"not an event ({error}); remove the line", file=file, line=line) from error
    if (b"\\u" in text or not text.isascii()) and not _is_unicode(event):
        reason = "holds a lone surrogate, half of a character; repair or remove the line"
        raise TraceFormatError(reason, file=file, line=line)
    if not isinstance(event, dict):
        raise TraceFormatError("not a JSON object; each line holds one event", file=file, line=line)
    for name, value in event.items():
        if name not in EXPECTED:
            reason = f"is no field of a trace; put it in `attributes`. Known: {', '.join(SCHEMA.names)}"
            raise TraceFormatError(reason, file=file, line=line, field=name)
        is_accepted, expected = EXPECTED[name]
        if value is not None and not is_accepted(value):
            raise TraceFormatError(f"is {value!r}, not {expected}", file=file, line=line, field=name)
    for name in needs:
        if event.get(name) is None:
            raise TraceFormatError("is missing; every event needs one", file=file, line=line, field=name)
    return DEFAULTS | {name: value for name, value in event.items() if value is not None}
