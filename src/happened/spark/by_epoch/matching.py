"""The edges of a computation matched where its events lie, so that only what crosses files is joined.

In    Parquet files of a trace; the computation's processes, numbered
Out   edges as `edges.message_edges` and `edges.cause_edges` give them, and the totals of `edges.fates`;
      or None, where a delivery has no send that its destination was left waiting for: one never sent, astray
      or doubled across files. Then the shuffle join of `edges` decides, which needs no such luck.
Cost  one scan by tasks that read the files themselves, and a join of the messages in flight between files

A trace written as it happened has few of those; one file per process has nothing but.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ...causality.linearization import Ints
from ...trace import SCHEMA
from ..pieces import Piece, pieces_of
from ..schemas import only_row
from ..storage import write_part
from ..tasks import on_tasks

EDGES = pa.schema(
    [
        ("source", pa.int32()),
        ("source_seq", pa.int64()),
        ("target", pa.int32()),
        ("target_seq", pa.int64()),
        ("sent", pa.int64()),
        ("gap", pa.int64()),
        ("slot", pa.bool_()),
    ]
)
WAITING = pa.schema([("message", pa.string()), *((name, EDGES.field(name).type) for name in EDGES.names[:3])])
WAITING = WAITING.append(pa.field("sent", pa.int64()))
ARRIVED = pa.schema(
    [
        ("message", pa.string()),
        ("target", pa.int32()),
        ("target_seq", pa.int64()),
        ("given", pa.int64()),
        ("copies", pa.int64()),
    ]
)
COLUMNS = ["computation", "process", "seq", "kind", "message", "to", "time", "causes"]


def match_in_files(
    spark: SparkSession,
    files: Sequence[str],
    computation: str,
    names: tuple[str, ...],
    kind: str,
    store: Path,
) -> dict[str, int] | None:
    """Write store/edges and return the totals of the messages' fates.

    Returns None where the files do not suffice (see above); the caller then joins by a shuffle.
    """
    pieces = pieces_of(files)

    def match(number: int) -> dict[str, int]:
        return dict(_Part(pieces[number], computation, names, kind).write(store, f"part-{number:05d}"))

    totals: Counter[str] = Counter()
    for found in on_tasks(spark, len(pieces), match):
        totals += Counter(found)
    waiting = spark.read.parquet(str(store / "waiting"))
    arrived = spark.read.parquet(str(store / "arrived")).groupBy("message", "target")
    first = arrived.agg(
        F.min(F.struct("target_seq", "given")).alias("first"), F.sum("copies").alias("copies")
    )
    met = waiting.join(first, ["message", "target"], "full_outer").persist()
    try:
        if not met.where(F.col("source").isNull()).isEmpty():
            return None
        counts = met.agg(
            F.count(F.when(F.col("first").isNull(), 1)).alias("lost"),
            F.count("first").alias("deliveries_judged"),
            F.coalesce(F.sum(F.col("copies") - 1), F.lit(0)).alias("duplicated"),
        )
        fates = Counter(only_row(counts).asDict())
        met.select(
            "source",
            "source_seq",
            "target",
            F.col("first.target_seq").alias("target_seq"),
            "sent",
            (F.col("first.given") - F.col("sent")).alias("gap"),
            F.lit(True).alias("slot"),
        ).write.mode("append").parquet(str(store / "edges"))
    finally:
        met.unpersist()
    return dict(totals + fates)


class _Part:
    """Some row groups' events of the computation, matched among themselves."""

    def __init__(self, piece: Piece, computation: str, names: tuple[str, ...], kind: str) -> None:
        file = pq.ParquetFile(piece.path)
        present = file.schema_arrow.names
        table = file.read_row_groups(piece.groups, columns=[name for name in COLUMNS if name in present])
        types = [(name, SCHEMA.field(name).type) for name in table.column_names]
        table = table.cast(pa.schema(types))  # other writers have narrower integers and dictionaries
        if "computation" in present:
            table = table.filter(pc.equal(pc.fill_null(table["computation"], ""), computation))
        self.table = table.combine_chunks()
        self.names = pa.array(names, pa.string())
        self.process = self._index(self.table["process"])
        self.seq = self.table["seq"].to_numpy()
        self.time = self._column("time", pa.int64())
        kinds = self.table["kind"]
        self.is_send = pc.equal(kinds, "send").to_numpy()
        self.is_given = pc.equal(kinds, kind).to_numpy()
        message = self._column("message", pa.string()).dictionary_encode()
        encoded = message.combine_chunks() if isinstance(message, pa.ChunkedArray) else message
        self.message = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
        self.messages = encoded.dictionary

    def _column(self, name: str, kind: pa.DataType) -> Any:
        if name in self.table.column_names:
            return self.table[name].cast(kind)
        return pa.nulls(self.table.num_rows, kind)

    def _index(self, column: Any) -> Ints:
        index: Ints = pc.index_in(column, value_set=self.names).to_numpy().astype(np.int64)
        return index

    def write(self, store: Path, part: str) -> Counter[str]:
        n = len(self.names)
        sends = np.flatnonzero(self.is_send)
        send_of = np.full(len(self.messages), -1, np.int64)
        send_of[self.message[sends]] = sends
        slot_keys = self._slots(n)
        keys, first, copies = self._first_deliveries(n)
        at = np.minimum(np.searchsorted(keys, slot_keys), max(keys.size - 1, 0))
        met = (keys[at] == slot_keys) if keys.size else np.zeros(slot_keys.size, bool)
        stray = np.ones(keys.size, bool)
        stray[at[met]] = False
        sent_here = send_of[keys // n] >= 0
        astray, elsewhere = np.flatnonzero(stray & sent_here), np.flatnonzero(stray & ~sent_here)
        here = at[met]
        edges = [
            self._edges(send_of[slot_keys[met] // n], first[here], slot=True),
            self._edges(send_of[keys[astray] // n], first[astray], slot=False),
            self._causes(),
        ]
        write_part(store / "edges", part, pa.concat_tables(edges))
        self._write_waiting(store, part, slot_keys[~met], send_of, n)
        self._write_arrived(store, part, keys[elsewhere], first[elsewhere], copies[elsewhere], n)
        return Counter(
            messages=sends.size,
            deliveries_judged=here.size,
            misdelivered=astray.size,
            duplicated=int((copies[here] - 1).sum() + (copies[astray] - 1).sum()),
        )

    def _slots(self, n: int) -> Ints:
        """message · n + destination of everything addressed here, once each."""
        to = self._column("to", pa.list_(pa.string()))
        owner = pc.list_parent_indices(to).to_numpy().astype(np.int64)
        members = self._index(pc.list_flatten(to))
        sent = self.is_send[owner]
        return np.unique(self.message[owner[sent]] * n + members[sent])

    def _first_deliveries(self, n: int) -> tuple[Ints, Ints, Ints]:
        """For each message · n + destination delivered here: the row of its first delivery, and how many."""
        given = np.flatnonzero(self.is_given)
        keys = self.message[given] * n + self.process[given]
        order = np.lexsort((self.seq[given], keys))
        distinct, at, copies = np.unique(keys[order], return_index=True, return_counts=True)
        return distinct, given[order[at]], copies

    def _edges(self, source: Ints, target: Ints, *, slot: bool) -> pa.Table:
        sent = self.time.take(pa.array(source))
        columns = [
            pa.array(self.process[source].astype(np.int32)),
            pa.array(self.seq[source]),
            pa.array(self.process[target].astype(np.int32)),
            pa.array(self.seq[target]),
            sent,
            pc.subtract(self.time.take(pa.array(target)), sent),
            pa.repeat(slot, source.size),
        ]
        return pa.table(columns, schema=EDGES)

    def _causes(self) -> pa.Table:
        if "causes" not in self.table.column_names:
            return EDGES.empty_table()
        causes = self.table["causes"]
        effect = pc.list_parent_indices(causes).to_numpy().astype(np.int64)
        flat = pc.list_flatten(causes)
        known = pc.is_in(pc.struct_field(flat, "process"), value_set=self.names)
        effect, flat = effect[known.to_numpy(zero_copy_only=False)], flat.filter(known)
        columns = [
            pa.array(self._index(pc.struct_field(flat, "process")).astype(np.int32)),
            pc.struct_field(flat, "seq").cast(pa.int64()),
            pa.array(self.process[effect].astype(np.int32)),
            pa.array(self.seq[effect]),
            pa.nulls(effect.size, pa.int64()),
            pa.nulls(effect.size, pa.int64()),
            pa.repeat(False, effect.size),
        ]
        return pa.table(columns, schema=EDGES)

    def _write_waiting(self, store: Path, part: str, slots: Ints, send_of: Ints, n: int) -> None:
        source = send_of[slots // n]
        columns = [
            self.messages.take(pa.array(slots // n)),
            pa.array(self.process[source].astype(np.int32)),
            pa.array(self.seq[source]),
            pa.array((slots % n).astype(np.int32)),
            self.time.take(pa.array(source)),
        ]
        write_part(store / "waiting", part, pa.table(columns, schema=WAITING))

    def _write_arrived(self, store: Path, part: str, keys: Ints, rows: Ints, copies: Ints, n: int) -> None:
        columns = [
            self.messages.take(pa.array(keys // n)),
            pa.array((keys % n).astype(np.int32)),
            pa.array(self.seq[rows]),
            self.time.take(pa.array(rows)),
            pa.array(copies),
        ]
        write_part(store / "arrived", part, pa.table(columns, schema=ARRIVED))
