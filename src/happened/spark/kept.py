"""The answers of an analysis are kept until nobody needs them: by Spark, or as files under `work`.

SparkKept   Spark keeps them (persist), as `frame_answers` packed them, until the Analysis and the frames that
            it gave are gone. A frame derived from one of these gives the same answers after that, too, by
            computing them again
FileKept    tasks left them as Parquet under `work`. They are removed by `close`, or when the interpreter
            ends; then a frame derived from one cannot be read any more
"""

import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ..trace.store import AnyPath
from .frame_answers import leave_tables, table_of
from .laid_frames import lay_down
from .workspace import Workspace, read_table

MOST_REPORTED = 256 << 20
"""Bytes of answers that this process fetches from Spark for a report."""


class FileKept:
    def __init__(self, spark: SparkSession, workspace: Workspace, tables: Mapping[str, pa.Schema]) -> None:
        self._spark, self._workspace, self._tables = spark, workspace, tables

    @property
    def is_open(self) -> bool:
        return self._workspace.is_open

    def read(self, name: str) -> DataFrame:
        self._workspace.keep()
        return read_table(self._spark, self._workspace.folder / "answers" / name, self._tables[name])

    @contextmanager
    def folder(self) -> Iterator[AnyPath]:
        yield self._workspace.folder / "answers"

    def close(self) -> None:
        self._workspace.close()


class SparkKept:
    def __init__(self, packed: DataFrame, tables: Mapping[str, pa.Schema]) -> None:
        self._packed, self._tables = packed, tables
        self._forget = _forgotten_with(self, packed)

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
    """The rows of a frame, laid out once for all questions that are asked of it as long as it lives.

    key   what else the rows depend on; None if that cannot be compared, and the rows are not shared
    """
    shared = events.__dict__.setdefault("_happened_laid", {})
    if key is None or key not in shared:
        laid = lay_down(rows).persist()
        _forgotten_with(events, laid)
        shared[key] = laid
    found: DataFrame = shared[key]
    return found


def _forgotten_with(owner: object, persisted: DataFrame) -> "weakref.finalize[..., Any]":
    """Unpersist a frame when its owner is collected; but not when the interpreter ends, because Spark ends
    with it."""
    forget = weakref.finalize(owner, _unpersist, persisted)
    forget.atexit = False
    return forget


def _unpersist(frame: DataFrame) -> None:
    with suppress(Exception):  # the session may have ended
        frame.unpersist()
