"""Write parts of tables as Parquet: the one function for Spark tasks and single processes."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .atomic import whole_file
from .store import AnyPath


def write_part(directory: AnyPath, name: str, table: pa.Table, **options: Any) -> None:
    """Write a table as the part with this name, atomically."""
    directory.mkdir(parents=True, exist_ok=True)
    with whole_file(directory / f"{name}.parquet") as unfinished:
        pq.write_table(table, unfinished, **parquet_settings(table.schema) | options)


def parquet_settings(schema: pa.Schema) -> dict[str, Any]:
    """Settings for small files; clocks, seqs, times and ids get no dictionary, since their values hardly
    recur."""
    recurring = [
        field.name
        for field in schema
        if not (pa.types.is_list(field.type) or pa.types.is_int64(field.type) or field.name.endswith("event"))
    ]
    return {"compression": "zstd", "use_dictionary": recurring}
