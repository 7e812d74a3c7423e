"""How large each computation is, and whether one split holds it: what decides where it is analysed.

In    the splits of a trace
Out   Survey: the large computations, by name. store/elsewhere: the names of all that no split holds whole.
      Rows that are no events, as parts of the table `quarantine`
Cost  one scan of the columns that tell events from other rows; then names and counts, by buckets of names

The names stay on disk, but for those of large computations, which are few by definition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ..causality.names import hashes
from ..causality.written import MOST_CELLS, sizes_of
from ..trace import SCHEMA
from ..trace.store import AnyPath
from .splits import TELLING, Groups, Split
from .storage import read_parts, write_part
from .tasks import on_tasks

NAMES_PER_BUCKET = 500_000

MOST_FILES = 16
"""Opening a file takes as long as reading thousands of rows of it."""

COUNTED = pa.schema(
    [
        ("computation", pa.string()),
        ("events", pa.int64()),
        ("processes", pa.int64()),
        ("delivers", pa.int64()),
        ("split", pa.int64()),
    ]
)


class Large(NamedTuple):
    """A computation to be cut into epochs.

    handover  the kind of row that hands a message to the application in it
    splits    that have rows of it
    """

    name: str
    events: int
    handover: str
    splits: list[int]


@dataclass(frozen=True)
class Survey:
    splits: list[Split]
    large: list[Large]
    crossing_events: int  # of computations that are not large and lie in several splits
    elsewhere: AnyPath
    quarantined: int


def survey(
    spark: SparkSession, splits: Sequence[Split], store: AnyPath, quarantine: AnyPath, threshold: int
) -> Survey:
    """A computation is large if it has more than `threshold` events, or too many for its processes.

    The rows of a split of many small files are left together in one, for whoever reads them next.
    """
    scattered = [len(split.pieces) > MOST_FILES for split in splits]

    def count(number: int) -> tuple[int, int]:
        events, quarantined = splits[number].read(SCHEMA.names if scattered[number] else TELLING)
        if scattered[number]:
            write_part(store / "together", f"{number:06d}", events)
        if quarantined.num_rows:
            write_part(quarantine, f"rows-{number:06d}", quarantined)
        counted = sizes_of(events)
        table = counted.append_column("split", pa.repeat(number, counted.num_rows))
        write_part(store / "counted", f"{number:06d}", table.cast(COUNTED))
        return counted.num_rows, quarantined.num_rows

    counts = on_tasks(spark, len(splits), count)
    gathered = [
        Split((Groups(store / "together" / f"{number:06d}.parquet", None, {}),), split.rows)
        if scattered[number]
        else split
        for number, split in enumerate(splits)
    ]
    buckets = sum(names for names, _ in counts) // NAMES_PER_BUCKET + 1

    def decide(bucket: int) -> tuple[list[Large], int]:
        table = read_parts(store / "counted", COUNTED).combine_chunks()
        if buckets > 1:
            home = hashes(table["computation"].combine_chunks()) % np.uint64(buckets)
            table = table.filter(pa.array(home == bucket))
        added = [("events", "sum"), ("processes", "sum"), ("delivers", "sum"), ("split", "list")]
        sizes = table.group_by("computation").aggregate(added)
        cells = pc.multiply(sizes["events_sum"].cast(pa.float64()), sizes["processes_sum"].cast(pa.float64()))
        large = pc.or_(pc.greater(sizes["events_sum"], threshold), pc.greater(cells, float(MOST_CELLS)))
        crossing = pc.and_(pc.invert(large), pc.greater(pc.list_value_length(sizes["split_list"]), 1))
        theirs = sizes.filter(pc.or_(large, crossing)).select(["computation"])
        flags = large.filter(pc.or_(large, crossing))
        write_part(store / "elsewhere", f"{bucket:06d}", theirs.append_column("large", flags))
        found = [
            Large(
                row["computation"],
                row["events_sum"],
                "deliver" if row["delivers_sum"] else "receive",
                sorted(row["split_list"]),
            )
            for row in sizes.filter(large).to_pylist()
        ]
        return found, pc.sum(sizes["events_sum"].filter(crossing)).as_py() or 0

    decided = on_tasks(spark, buckets if splits else 0, decide)
    return Survey(
        gathered,
        sorted(large for found, _ in decided for large in found),
        sum(events for _, events in decided),
        store / "elsewhere",
        sum(rows for _, rows in counts),
    )
