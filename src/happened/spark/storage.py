"""Where tasks leave what they made: Parquet parts and arrays, complete or not there.

A path is a directory that the driver and every executor can reach. A part is written under a hidden name
and renamed when it is whole, so that a task that was killed, or ran twice, leaves nothing half.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ..core.errors import CausalityError


def write_part(directory: Path, name: str, table: pa.Table, **options: Any) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with _whole(directory / f"{name}.parquet") as unfinished:
        pq.write_table(table, unfinished, **options)


def write_rows(rows: DataFrame, directory: Path, part: str, work: Path) -> None:
    """Spark's rows as parts of a table that other writers fill too; `work` does not exist yet."""
    rows.write.parquet(str(work))
    directory.mkdir(parents=True, exist_ok=True)
    for number, written in enumerate(sorted(work.glob("*.parquet"))):
        written.rename(directory / f"{part}-{number:05d}.parquet")
    shutil.rmtree(work)


def write_arrays(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def refuse_existing(out: Path) -> None:
    if out.exists():
        raise CausalityError(f"{out} exists already; name another directory, or remove it first")


@contextmanager
def whole_directory(out: Path) -> Iterator[Path]:
    """A directory to fill that becomes `out` only if all goes well."""
    out = out.absolute()  # tasks write there too, and executors have working directories of their own
    refuse_existing(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.{uuid.uuid4().hex}.unfinished")
    unfinished.mkdir()
    try:
        yield unfinished
        os.replace(unfinished, out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
