"""Append events to a directory of Parquet parts.

Promises   a part appears under its final name only when complete, so if a process dies, a readable prefix of
           its trace remains; a writer holds at most `batch_rows` rows in memory
Leaves out the checks that need the whole trace (gaps in seq, two sends of one message): `read` makes them
"""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import pyarrow as pa

from ..core.errors import TraceFormatError
from .parts import write_part
from .schema import DEFAULTS, REQUIRED, SCHEMA
from .store import StorePath, any_path
from .validation import validate_rows

COLUMNS = frozenset(SCHEMA.names)


class TraceWriter:
    def __init__(
        self, directory: str | os.PathLike[str] | StorePath, *, batch_rows: int = 65536, prefix: str = "part"
    ):
        if batch_rows < 1:
            raise ValueError(f"batch_rows is {batch_rows}; a part holds at least one row")
        self._directory = any_path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        if any(self._directory.glob(f"{prefix}-*.parquet")):
            raise TraceFormatError(
                f"already holds a trace with the prefix {prefix!r}; write elsewhere, remove it, "
                "or choose another prefix",
                file=str(self._directory),
            )
        self._batch_rows = batch_rows
        self._prefix = prefix
        self._parts = 0
        self._rows: list[dict[str, Any]] = []
        self._closed = False

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, row: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Add one event; a mapping, keywords, or both. Absent columns are null, `relevant` is False."""
        event = {**DEFAULTS, **(row or {}), **columns}
        if self._closed:
            raise ValueError(f"the trace in {self._directory} is closed")
        if not event.keys() <= COLUMNS:
            unknown = min(event.keys() - COLUMNS)
            raise TraceFormatError("is no column of a trace; put it in `attributes`", field=unknown)
        for name in REQUIRED:
            if event.get(name) is None:
                raise TraceFormatError("is missing; every event needs one", field=name)
        self._rows.append(event)
        if len(self._rows) >= self._batch_rows:
            self.flush()

    def flush(self) -> None:
        """Write the events appended so far as a part, so that they can be read."""
        if self._rows:
            rows, self._rows = self._rows, []
            table = table_from_rows(rows)
            validate_rows(table)
            self._write(table)

    def close(self) -> None:
        """Flush; a trace without events becomes one empty part."""
        if self._closed:
            return
        self._closed = True
        self.flush()
        if self._parts == 0:
            self._write(SCHEMA.empty_table())

    def _write(self, table: pa.Table) -> None:
        write_part(self._directory, f"{self._prefix}-{self._parts:06d}", table, use_dictionary=True)
        self._parts += 1


def table_from_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """A table of SCHEMA; absent columns have their defaults."""
    columns = []
    for field in SCHEMA:
        absent = DEFAULTS.get(field.name)
        try:
            columns.append(pa.array([row.get(field.name, absent) for row in rows], type=field.type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TraceFormatError(f"does not fit {field.type}: {error}", field=field.name) from error
    return pa.table(columns, schema=SCHEMA)
