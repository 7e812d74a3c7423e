"""The cost account of a simulated run: what each transmission carried and how long each message waited.

A transmission is one message on its way to one destination. Its control information is counted in entries and
units (as the protocol groups them), in bytes as encoded, and in the byte model of Jang, Park, Cho & Yoon
(1997), 4-byte clocks and 2-byte process ids, to compare curves with published ones. Transmissions are added
to totals in batches; if the ledger has a file, each is also a row of it.
"""

from array import array
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 65536


class Transmission(NamedTuple):
    """One message put on the link to one destination; times are in ns of virtual time."""

    sender: int
    clock: int
    to: int
    sent: int
    arrival: int  # the arrival of its first copy
    copies: int
    entries: int
    units: int
    control_bytes: int  # as encoded
    model_bytes: int  # in the model of Jang et al. (1997)
    tracking_entries: int = 0  # event identifiers that a tracker's piggyback carries
    tracking_bytes: int = 0  # as encoded
    added: int = 0  # 0: first-hand, an application message from its sender to a destination; else 1


SCHEMA = pa.schema([(name, pa.int64()) for name in Transmission._fields])
MEASURES = ("entries", "units", "control_bytes", "model_bytes", "tracking_entries", "tracking_bytes")


class Ledger:
    """The cost account of one run."""

    def __init__(self, file: Path | None = None) -> None:
        self._table: pq.ParquetWriter | None = None
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._table = pq.ParquetWriter(file, SCHEMA, compression="zstd")
        self._columns = {name: array("q") for name in Transmission._fields}
        self._rows = self._columns["sender"]
        self._transmissions = 0
        self._added = 0
        self._sum = dict.fromkeys(MEASURES, 0)
        self._max = dict.fromkeys(MEASURES, 0)
        self._messages = 0
        self._log_units = array("q")
        self._held = array("q")
        self._waits = array("q")
        self._late = array("q")

    def close(self) -> None:
        """Write the remaining rows; a ledger without a file need not be closed."""
        self._fold()
        if self._table is not None:
            self._table.close()

    def multicast(self, log_units: int | None) -> None:
        """Count a sent message, and the units in its sender's log if the machine tells them."""
        self._messages += 1
        if log_units is not None:
            self._log_units.append(log_units)

    def transmission(self, made: Transmission) -> None:
        for column, value in zip(self._columns.values(), made, strict=True):
            column.append(value)
        if len(self._rows) >= BATCH_ROWS:
            self._fold()

    def arrival(self, held: int) -> None:
        """Count an arrival; `held`: how many messages its receiver holds back afterwards."""
        self._held.append(held)

    def delivery(self, wait: int, late: int) -> None:
        """Count a delivery. `wait`: time since arrival; `late`: time since the earliest possible arrival."""
        self._waits.append(wait)
        self._late.append(late)

    def totals(self) -> dict[str, Any]:
        """Counts; for sizes and times (in seconds) the mean, the maximum, and p99 where it tells more."""
        self._fold()
        sent = self._transmissions
        return {
            "messages": self._messages,
            "transmissions": sent,
            "added": self._added,
            "arrivals": len(self._held),
            "deliveries": len(self._waits),
            **{name: {"mean": self._sum[name] / max(sent, 1), "max": self._max[name]} for name in MEASURES},
            "log_units": _spread(self._log_units) if self._log_units else None,
            "held": _spread(self._held),
            "wait": _spread_of_times(self._waits),
            "late": _spread_of_times(self._late),
        }

    def _fold(self) -> None:
        batch = {name: np.array(column) for name, column in self._columns.items()}
        rows = len(self._rows)
        self._transmissions += rows
        self._added += int(batch["added"].sum())
        for name in MEASURES if rows else ():
            self._sum[name] += int(batch[name].sum())
            self._max[name] = max(self._max[name], int(batch[name].max()))
        if self._table is not None:
            self._table.write_batch(pa.record_batch(list(batch.values()), schema=SCHEMA))
        for column in self._columns.values():
            del column[:]


def _spread(values: "array[int]", p99: bool = False) -> dict[str, float]:
    found = np.array(values) if values else np.zeros(1, dtype=np.int64)
    tail = {"p99": float(np.percentile(found, 99))} if p99 else {}
    return {"mean": float(found.mean()), **tail, "max": int(found.max())}


def _spread_of_times(values: "array[int]") -> dict[str, float]:
    return {name: value / 1e9 for name, value in _spread(values, p99=True).items()}
