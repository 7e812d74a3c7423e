"""Keeps the answers of an analysis until nobody needs them, and writes a frame as files for tasks.

SparkKept   Spark keeps the answers (persist), as `frame_answers` packed them, until the Analysis and its
            frames are garbage collected. A frame derived from one of these can still be read afterwards:
            Spark computes the answers again
FileKept    tasks wrote the answers as Parquet in a Workspace. It is removed by `close`, or when the
            interpreter ends; then a frame derived from an answer cannot be read any more

For tasks, a frame is written once, as Parquet parts of a trace, whatever it was derived from.
"""

import atexit
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ..core.errors import CausalityError
from ..trace.schema import QUARANTINE
from ..trace.store import AnyPath, StorePath, any_path, remove_tree
from .event_rows import sort_out_unread
from .frame_answers import leave_tables, table_of
from .laid_frames import lay_down
from .session import is_on_this_machine
from .splits import UNCHECKED
from .storage import partition, read_rows, stream_part, write_part

ROWS_TOGETHER = 100_000
"""Rows of a row group, which combines many of Spark's small batches."""

_kept: "set[Workspace]" = set()


class Workspace:
    """A new directory under `work`, which every executor must reach."""

    def __init__(self, spark: SparkSession, work: "str | Path | StorePath | None") -> None:
        self.folder = _new_folder(spark, work)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._removal = weakref.finalize(self, _remove, self.folder)
        # Not at exit by the finalizer: the libraries that reach a store may have been shut down by then.
        self._removal.atexit = False
        atexit.register(self._removal)

    def keep(self) -> None:
        """From now on only `close`, or the end of the interpreter, removes this directory.

        Frames derived from a frame (a join, a view) still read its files when the frame itself is dropped.
        """
        if self._removal.alive:
            _kept.add(self)

    def close(self) -> None:
        _kept.discard(self)
        atexit.unregister(self._removal)
        self._removal()

    @property
    def is_open(self) -> bool:
        return self._removal.alive


def _new_folder(spark: SparkSession, work: "str | Path | StorePath | None") -> AnyPath:
    if work is None and not is_on_this_machine(spark):
        raise CausalityError(
            "this session runs on other machines: give work=, a directory or URL that this process and "
            "all executors reach, where tasks write intermediate files"
        )
    parent = Path(tempfile.gettempdir()) if work is None else any_path(work)
    return parent.absolute() / f"happened-{uuid.uuid4().hex}"


def _remove(folder: AnyPath) -> None:
    try:
        remove_tree(folder)
    except (OSError, CausalityError):  # the caller is gone, so there is nobody to report the error to
        return


def write_trace(rows: DataFrame, trace: AnyPath, quarantine: AnyPath) -> int:
    """Write rows of a trace (event_rows) as its parts; returns how many could not be read at all.

    Rows for which a reader gave a reason (event_rows.UNREADABLE) are quarantined with that reason.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, unread = partition(), [QUARANTINE.empty_table()]
        written = stream_part(trace / f"part-{number:06d}.parquet", _groups(batches, unread))
        table = pa.concat_tables(unread)
        if table.num_rows:
            write_part(quarantine, f"unread-{number:06d}", table)
        yield pa.RecordBatch.from_pydict({"parts": [int(written > 0)], "unread": [table.num_rows]})

    trace.mkdir(parents=True, exist_ok=True)
    told = rows.mapInArrow(write, "parts long, unread long").collect()
    _refuse_unseen(trace, sum(row["parts"] for row in told))
    if not any(row["parts"] for row in told):
        write_part(trace, "empty", UNCHECKED.empty_table())
    return sum(row["unread"] for row in told)


def _groups(batches: Iterator[pa.RecordBatch], unread: list[pa.Table]) -> Iterator[pa.Table]:
    """The rows in tables of about ROWS_TOGETHER; a row that is not an event is added to `unread` instead."""
    held: list[pa.Table] = []
    for batch in batches:
        table, no_events = sort_out_unread(pa.Table.from_batches([batch]))
        unread.append(no_events)
        if table.num_rows:
            given = [field for field in UNCHECKED if field.name in table.column_names]
            held.append(table.select([field.name for field in given]).cast(pa.schema(given)))
        if sum(each.num_rows for each in held) >= ROWS_TOGETHER:
            yield pa.concat_tables(held).combine_chunks()
            held = []
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _refuse_unseen(trace: AnyPath, parts: int) -> None:
    seen = sum(1 for _ in trace.glob("*.parquet"))
    if seen != parts:
        raise CausalityError(
            f"executors wrote {parts} parts to {trace}, of which this process sees {seen}: give work=, a "
            "directory or URL that this process and all executors reach"
        )


MOST_REPORTED = 256 << 20
"""Bytes of answers that this process fetches from Spark for a report."""


@dataclass
class FileKept:
    spark: SparkSession
    workspace: Workspace
    tables: Mapping[str, pa.Schema]

    @property
    def is_open(self) -> bool:
        return self.workspace.is_open

    def read(self, name: str) -> DataFrame:
        self.workspace.keep()
        return read_rows(self.spark, self.workspace.folder / "answers" / name, self.tables[name])

    @contextmanager
    def folder(self) -> Iterator[AnyPath]:
        yield self.workspace.folder / "answers"

    def close(self) -> None:
        self.workspace.close()


class SparkKept:
    def __init__(self, packed: DataFrame, tables: Mapping[str, pa.Schema]) -> None:
        self._packed, self._tables = packed, tables
        self._forget = forgotten_with(self, packed)

    @property
    def is_open(self) -> bool:
        return self._forget.alive

    def read(self, name: str) -> DataFrame:
        return table_of(self._packed, name, self._tables[name])

    @contextmanager
    def folder(self) -> Iterator[AnyPath]:
        with tempfile.TemporaryDirectory(prefix="happened-") as folder:
            leave_tables(self._packed, Path(folder), dict(self._tables), MOST_REPORTED)
            yield Path(folder)

    def close(self) -> None:
        self._forget()


Kept = FileKept | SparkKept


def laid_down(events: DataFrame, rows: DataFrame, key: object) -> DataFrame:
    """The rows of a frame, shuffled once for all questions about the frame while it exists.

    key   whatever else the rows depend on, to compare; None if it cannot be compared: rows are not shared
    """
    shared = events.__dict__.setdefault("_happened_laid", {})
    if key is None or key not in shared:
        laid = lay_down(rows).persist()
        forgotten_with(events, laid)
        shared[key] = laid
    found: DataFrame = shared[key]
    return found


def forgotten_with(owner: object, persisted: DataFrame) -> "weakref.finalize[..., Any]":
    """Unpersist a frame when its owner is garbage collected, but not at exit, when Spark does it itself."""
    forget = weakref.finalize(owner, _unpersist, persisted)
    forget.atexit = False
    return forget


def _unpersist(frame: DataFrame) -> None:
    with suppress(Exception):  # the session may have ended
        frame.unpersist()
