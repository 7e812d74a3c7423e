"""A trace's Parquet files in pieces that tasks read themselves, so that rows need not cross the JVM."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..trace.reader import read_part
from ..trace.store import any_path, arrow_source

ROWS_AT_ONCE = 500_000


class Piece(NamedTuple):
    """Some row groups of a file, ROWS_AT_ONCE rows or one group at the least; `path` may be a URL."""

    path: str
    groups: list[int]

    def read(self) -> pa.Table:
        """Read its rows, with the columns of trace.SCHEMA."""
        return read_part(any_path(self.path), self.groups)

    def computations(self) -> pa.ChunkedArray:
        """The computation of each row."""
        file = pq.ParquetFile(arrow_source(any_path(self.path)))
        if "computation" in file.schema_arrow.names:
            column = file.read_row_groups(self.groups, columns=["computation"])["computation"]
            return pc.fill_null(column.cast(pa.string()), "")
        rows = sum(file.metadata.row_group(group).num_rows for group in self.groups)
        return pa.chunked_array([pa.repeat("", rows)])


def pieces_of(files: Sequence[str]) -> list[Piece]:
    pieces = []
    for path in files:
        metadata = pq.read_metadata(arrow_source(any_path(path)))
        groups: list[int] = []
        rows = 0
        for group in range(metadata.num_row_groups):
            groups.append(group)
            rows += metadata.row_group(group).num_rows
            if rows >= ROWS_AT_ONCE:
                pieces.append(Piece(path, groups))
                groups, rows = [], 0
        if groups:
            pieces.append(Piece(path, groups))
    return pieces
