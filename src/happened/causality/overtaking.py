"""Early deliveries and lost causes of a computation that is still going on.

Whether a delivery was early shows only when the message that it overtook is delivered as well; if that never
happens, the message is a lost cause (see order). A delivery of which it is not known yet waits under each
message that it overtook and that is still in flight; of each of those, the first delivery that was sent after
it is kept.

Bound   messages in flight x deliveries that overtook nothing else. A message that is retired from flight is
        waited for no more.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .computation import event_ids
from .epochs import Frontier, Stamped, event_keys
from .linearization import Ints
from .questions.order import EARLY, LOST_CAUSES, MOST_PATHS, VIOLATIONS, early_in_epoch, shown_in_epoch

NEVER = np.iinfo(np.int64).max
"""The seq of a delivery that has not been seen."""

Slot = tuple[int, int, int]
"""(sender, seq of the send, destination)"""

Named = Callable[[Ints, Ints], pa.Array]
"""The names of the messages that processes sent at some seqs."""


class Early(NamedTuple):
    """A delivery that overtook something."""

    message: str
    sender: int
    sent: int
    dest: int
    seq: int


class Violations(NamedTuple):
    """Early deliveries: many as integers with the names of their messages, the others as rows."""

    early: Ints  # as EARLY
    first: pa.Array | None  # names of the early messages
    other: pa.Array | None  # and of the overtaken ones
    rows: list[dict[str, Any]]

    def counts(self) -> dict[str, int]:
        of = {"causal": len(self.early), "fifo": int(self.early[:, 7].sum())}
        return {order: n + sum(row["order_name"] == order for row in self.rows) for order, n in of.items()}

    def table(self, computation: str, names: list[str]) -> pa.Table:
        told = [_named(row, computation, names) for row in self.rows]
        parts = [pa.Table.from_pylist(told, schema=VIOLATIONS)]
        fifo = np.flatnonzero(self.early[:, 7])
        for order, at in (("causal", np.arange(len(self.early))), ("fifo", fifo)):
            if at.size:
                parts.append(self._of(order, at, computation, names))
        return pa.concat_tables(parts)

    def _of(self, order: str, at: Ints, computation: str, names: list[str]) -> pa.Table:
        assert self.first is not None and self.other is not None
        early = self.early[at]
        process = pa.array(names, pa.string()).take(pa.array(early[:, 0]))
        first, other = (pa.array(early[:, column]) for column in (3, 6))
        messages = self.first.take(pa.array(at)), self.other.take(pa.array(at))
        paths: list[Any] = [None] * at.size
        for k, (_, sender, sent, _, p, seq, _, _) in enumerate(early[:MOST_PATHS].tolist()):
            ends = (p, seq, messages[1][k].as_py()), (sender, sent, messages[0][k].as_py())
            paths[k] = [_step(end, names) for end in ends]
        columns = [
            pa.repeat(computation, at.size),
            pa.repeat(order, at.size),
            process,
            messages[0],
            first,
            event_ids(process, first),
            messages[1],
            other,
            event_ids(process, other),
            pa.array(paths, VIOLATIONS.field("path").type),
        ]
        return pa.table(columns, schema=VIOLATIONS)


class Overtaking:
    def __init__(self) -> None:
        self._waiting: dict[Slot, list[Early]] = {}
        self._overtaken: dict[Slot, str] = {}  # the names of all slots in `_waiting` and `_shown`
        self._told: set[tuple[int, int, str]] = set()  # (dest, seq, order) of the early ones told
        self._shown: dict[Slot, dict[str, Early]] = {}  # of what is in flight, the first to be sent after it

    def step(
        self, stamped: Stamped, frontier: Frontier, delivered: Ints, later: Ints, named: Named
    ) -> Violations:
        """What deliveries of this epoch show; slots as in EpochView, with NEVER for those of `later`."""
        rows: list[dict[str, Any]] = []
        known_to_us = _slot_keys(np.array([*self._overtaken], np.int64).reshape(-1, 3))
        awaited = np.isin(_slot_keys(delivered), known_to_us)
        for sender, sent, dest, seq in delivered[awaited].tolist():
            slot = (sender, sent, dest)
            name = self._overtaken.pop(slot, "")
            self._shown.pop(slot, None)
            for waiting in self._waiting.pop(slot, ()):
                rows += self._tell(waiting, slot, name, seq)
        if not len(delivered):
            return Violations(np.empty((0, len(EARLY)), np.int64), None, None, rows)
        in_order = delivered[np.argsort(stamped.rows(frontier, delivered[:, 2], delivered[:, 3]))]
        self._show(shown_in_epoch(stamped, frontier, in_order, later), named)
        early = early_in_epoch(stamped, frontier, in_order, later)
        known = early[:, 6] != NEVER
        if not known.all():
            slots = np.concatenate([delivered, later])
            rows += self._wait(stamped, frontier, early[~known], slots, named)
        early = early[known]
        first, other = (named(early[:, at], early[:, at + 1]) for at in (1, 4))
        return Violations(early, first, other, rows)

    def _wait(
        self, stamped: Stamped, frontier: Frontier, early: Ints, slots: Ints, named: Named
    ) -> list[dict[str, Any]]:
        """Let deliveries wait for all that they overtook; what is known of it already is told."""
        rows: list[dict[str, Any]] = []
        slots = slots[np.argsort(slots[:, 2], kind="stable")]
        begins = np.searchsorted(slots[:, 2], np.arange(stamped.epoch.processes + 1))
        sends = stamped.rows(frontier, early[:, 1], early[:, 2]).tolist()
        names = named(early[:, 1], early[:, 2]).to_pylist()
        for (dest, sender, sent, seq), send, name in zip(early[:, :4].tolist(), sends, names, strict=True):
            here = slots[begins[dest] : begins[dest + 1]]
            passed = here[(here[:, 3] > seq) & (here[:, 1] <= stamped.vectors[send][here[:, 0]])]
            each = Early(name, sender, sent, dest, seq)
            overtaken = named(passed[:, 0], passed[:, 1]).to_pylist()
            for (p, at, _, found), message in zip(passed.tolist(), overtaken, strict=True):
                if found == NEVER:
                    self._waiting.setdefault((p, at, dest), []).append(each)
                    self._overtaken[p, at, dest] = message
                else:
                    rows += self._tell(each, (p, at, dest), message, found)
        return rows

    def _show(self, shown: Ints, named: Named) -> None:
        lost, first = (named(shown[:, at], shown[:, at + 1]).to_pylist() for at in (2, 4))
        for (fifo, dest, p, at, sender, sent, seq), name, message in zip(
            shown.tolist(), lost, first, strict=True
        ):
            of_slot = self._shown.setdefault((p, at, dest), {})
            of_slot.setdefault("fifo" if fifo else "causal", Early(message, sender, sent, dest, seq))
            self._overtaken[p, at, dest] = name

    def retire(self, slots: Iterable[Slot]) -> list[dict[str, Any]]:
        """These will never be delivered: rows of LOST_CAUSES."""
        rows: list[dict[str, Any]] = []
        for slot in slots:
            name = self._overtaken.pop(slot, "")
            self._waiting.pop(slot, None)
            for order, first in sorted(self._shown.pop(slot, {}).items()):
                rows.append(
                    {
                        "order_name": order,
                        "process": slot[2],
                        "lost": name,
                        "delivered": first.message,
                        "delivered_seq": first.seq,
                        "path": _ends(slot, name, first),
                    }
                )
        return rows

    def end(self) -> list[dict[str, Any]]:
        return self.retire(sorted(self._shown))

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


def _slot_keys(slots: Ints) -> Ints:
    """Slots as single numbers, for processes below 2^12 without collisions; a slot with the key of another is
    looked at in vain."""
    return event_keys(slots[:, 0] << 12 | slots[:, 2], slots[:, 1])


def _ends(slot: Slot, name: str, early: Early) -> list[tuple[int, int, str]]:
    """The ends of the causal path: the two sends. What lies between them is in earlier batches."""
    return [(slot[0], slot[1], name), (early.sender, early.sent, early.message)]


def lost_causes_table(rows: list[dict[str, Any]], computation: str, names: list[str]) -> pa.Table:
    return pa.Table.from_pylist([_named(row, computation, names) for row in rows], schema=LOST_CAUSES)


def _named(row: dict[str, Any], computation: str, names: list[str]) -> dict[str, Any]:
    process = names[row["process"]]
    events = {
        name.replace("_seq", "_event"): f"{process}#{value}"
        for name, value in row.items()
        if name.endswith("_seq")
    }
    path = [_step(end, names) for end in row["path"]]
    return row | events | {"computation": computation, "process": process, "path": path}


def _step(end: tuple[int, int, str], names: list[str]) -> dict[str, Any]:
    p, seq, message = end
    return {"process": names[p], "seq": seq, "kind": "send", "message": message}
