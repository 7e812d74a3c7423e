"""Where tasks leave what they made: Parquet parts and arrays, whole or not there (see trace.atomic).

A path is a directory that the driver and every executor can reach.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ..trace.atomic import whole_file


def write_part(directory: Path, name: str, table: pa.Table, **options: Any) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with whole_file(directory / f"{name}.parquet") as unfinished:
        pq.write_table(table, unfinished, **parquet_settings(table.schema) | options)


def parquet_settings(schema: pa.Schema) -> dict[str, Any]:
    """How a table is stored: small; no dictionary is tried for clocks, seqs, times and ids, which hardly
    recur."""
    recurring = [
        field.name
        for field in schema
        if not (pa.types.is_list(field.type) or pa.types.is_int64(field.type) or field.name.endswith("event"))
    ]
    return {"compression": "zstd", "use_dictionary": recurring}


def write_rows(rows: DataFrame, directory: Path, part: str, work: Path) -> None:
    """Spark's rows as parts of a table that other writers fill too; `work` does not exist yet."""
    rows.write.parquet(str(work))
    directory.mkdir(parents=True, exist_ok=True)
    for number, written in enumerate(sorted(work.glob("*.parquet"))):
        written.rename(directory / f"{part}-{number:05d}.parquet")
    shutil.rmtree(work)


def write_arrays(path: Path, **arrays: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}
