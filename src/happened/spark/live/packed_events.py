"""Events as rows of bytes, one for a bucket of computations and a task: what goes through the shuffle."""

import numpy as np
import pyarrow as pa

from ..tasks import pack_table, packed_by_bucket

PACKED = "bucket int, what string, rows binary"
EVENT_ROWS, UNUSABLE, END = "events", "quarantine", "end"
"""The content of a packed row: events, rows of QUARANTINE, or a mark that the input has ended."""


def packed_rows(events: pa.Table, quarantined: pa.Table, buckets: int) -> pa.RecordBatch:
    """Events by bucket, and rows of QUARANTINE, as rows of PACKED."""
    # Kernels take a second to import, and the processes in which Spark plans a source need none.
    from ...causality.names import encode_names, hashes

    codes, names = encode_names(events["computation"])
    bucket = (hashes(names) % np.uint64(buckets)).astype(np.int32)[codes]
    rows = [(k, EVENT_ROWS, blob) for k, blob in packed_by_bucket(events, bucket)]
    if quarantined.num_rows:
        rows.append((0, UNUSABLE, pack_table(quarantined)))
    return _batch(rows)


def end_of(buckets: int) -> pa.RecordBatch:
    """For each bucket, a mark that the input has ended."""
    return _batch([(k, END, b"") for k in range(buckets)])


def _batch(rows: list[tuple[int, str, bytes]]) -> pa.RecordBatch:
    numbers, kinds, blobs = ([row[k] for row in rows] for k in range(3))
    columns = [pa.array(numbers, pa.int32()), pa.array(kinds, pa.string()), pa.array(blobs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "what", "rows"])
