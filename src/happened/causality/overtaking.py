"""Early deliveries and lost causes of a computation that is still going on.

Whether a delivery was early shows only when the message that it overtook is delivered as well; if that never
happens, the message is a lost cause (see order). Until then the delivery waits, under each message that it
overtook and that is still in flight.

Bound   deliveries x messages that they overtook. A message that is retired from flight is waited for no more.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .epochs import Frontier, Stamped
from .linearization import Ints
from .questions.order import LOST_CAUSES, VIOLATIONS, early_in_epoch

NEVER = np.iinfo(np.int64).max
"""The seq of a delivery that has not been seen."""

Slot = tuple[int, int, int]
"""(sender, seq of the send, destination)"""

Named = Callable[[int, int], str]
"""The name of the message that a process sent at a seq."""


class Early(NamedTuple):
    """A delivery that overtook something."""

    message: str
    sender: int
    sent: int
    dest: int
    seq: int


class Overtaking:
    def __init__(self) -> None:
        self._waiting: dict[Slot, list[Early]] = {}
        self._overtaken: dict[Slot, str] = {}
        self._told: set[tuple[int, int, str]] = set()  # (dest, seq, order) of the early ones told

    def step(
        self, stamped: Stamped, frontier: Frontier, delivered: Ints, later: Ints, named: Named
    ) -> list[dict[str, Any]]:
        """Rows of VIOLATIONS, with process numbers for names; slots as in EpochView, NEVER for the later."""
        rows: list[dict[str, Any]] = []
        if self._waiting:
            for sender, sent, dest, seq in delivered.tolist():
                name = self._overtaken.pop((sender, sent, dest), "")
                for early in self._waiting.pop((sender, sent, dest), ()):
                    rows += self._tell(early, (sender, sent, dest), name, seq)
        if not len(delivered):
            return rows
        of_dest = delivered[np.argsort(stamped.rows(frontier, delivered[:, 2], delivered[:, 3]))]
        slots = np.concatenate([delivered, later])
        for dest, sender, sent, seq in early_in_epoch(stamped, frontier, of_dest, later)[:, :4].tolist():
            early = Early(named(sender, sent), sender, sent, dest, seq)
            (row,) = stamped.rows(frontier, np.array([sender]), np.array([sent]))
            known = stamped.vectors[row]
            passed = slots[(slots[:, 2] == dest) & (slots[:, 3] > seq) & (slots[:, 1] <= known[slots[:, 0]])]
            for p, at, _, found in passed.tolist():
                if found == NEVER:
                    self._waiting.setdefault((p, at, dest), []).append(early)
                    self._overtaken[p, at, dest] = named(p, at)
                else:
                    rows += self._tell(early, (p, at, dest), named(p, at), found)
        return rows

    def retire(self, slots: Iterable[Slot]) -> list[dict[str, Any]]:
        """These will never be delivered: rows of LOST_CAUSES."""
        rows: list[dict[str, Any]] = []
        for slot in slots:
            name = self._overtaken.pop(slot, "")
            waiting = sorted(self._waiting.pop(slot, ()), key=lambda early: early.seq)
            for order in ("causal", "fifo"):
                shown = next((e for e in waiting if order == "causal" or e.sender == slot[0]), None)
                if shown is not None:
                    rows.append(
                        {
                            "order_name": order,
                            "process": slot[2],
                            "lost": name,
                            "delivered": shown.message,
                            "delivered_seq": shown.seq,
                            "path": _ends(slot, name, shown),
                        }
                    )
        return rows

    def end(self) -> list[dict[str, Any]]:
        return self.retire(list(self._waiting))

    def _tell(self, early: Early, slot: Slot, name: str, seq: int) -> list[dict[str, Any]]:
        """One row for each order, of the first message that was seen to be overtaken."""
        rows = []
        for order in ("causal", "fifo"):
            key = (early.dest, early.seq, order)
            if key in self._told or (order == "fifo" and early.sender != slot[0]):
                continue
            self._told.add(key)
            rows.append(
                {
                    "order_name": order,
                    "process": early.dest,
                    "early": early.message,
                    "early_seq": early.seq,
                    "overtaken": name,
                    "overtaken_seq": seq,
                    "path": _ends(slot, name, early),
                }
            )
        return rows

    def forget_told(self) -> None:
        """Drop what no waiting delivery needs any more; called once a batch."""
        waiting = {(early.dest, early.seq) for each in self._waiting.values() for early in each}
        self._told = {key for key in self._told if key[:2] in waiting}


def _ends(slot: Slot, name: str, early: Early) -> list[tuple[int, int, str]]:
    """The ends of the causal path: the two sends. What lies between them is in earlier batches."""
    return [(slot[0], slot[1], name), (early.sender, early.sent, early.message)]


def violations_table(rows: list[dict[str, Any]], computation: str, names: list[str]) -> pa.Table:
    return pa.Table.from_pylist([_named(row, computation, names) for row in rows], schema=VIOLATIONS)


def lost_causes_table(rows: list[dict[str, Any]], computation: str, names: list[str]) -> pa.Table:
    return pa.Table.from_pylist([_named(row, computation, names) for row in rows], schema=LOST_CAUSES)


def _named(row: dict[str, Any], computation: str, names: list[str]) -> dict[str, Any]:
    process = names[row["process"]]
    events = {
        name.replace("_seq", "_event"): f"{process}#{value}"
        for name, value in row.items()
        if name.endswith("_seq")
    }
    path = [
        {"process": names[p], "seq": seq, "kind": "send", "message": message}
        for p, seq, message in row["path"]
    ]
    return row | events | {"computation": computation, "process": process, "path": path}
