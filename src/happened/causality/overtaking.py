"""Early deliveries and lost causes of a computation in progress.

A delivery is known to be early only when a message that it overtook is delivered too; if that message is
never delivered, it is a lost cause (see order). Until then, the delivery waits under each message in flight
that it overtook; and for each message in flight, the first delivery whose message was sent after it is kept.

Bound   messages in flight x deliveries that overtook nothing else. A retired message stops counting as in
        flight, and no delivery waits for it any more.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .computation import Event
from .epochs import Frontier, Stamped, event_keys
from .linearization import Ints
from .questions import Answers
from .questions.order import (
    LOST_CAUSES,
    LOST_TOTALS,
    MOST_PATHS,
    VIOLATIONS,
    deliveries_table,
    early_in_epoch,
    early_row,
    shown_in_epoch,
    steps,
)

NEVER = np.iinfo(np.int64).max  # The seq of a delivery that has not arrived

Slot = tuple[int, ...]  # (sender, seq of the send, destination)

Named = Callable[[Ints, Ints], pa.Array]  # A function: names of messages, from their senders and seqs


class Early(NamedTuple):
    """A delivery that overtook a message."""

    message: str
    sender: int
    sent: int
    dest: int
    seq: int


class Overtaking:
    """names   the names of the computation's processes; the caller may append to this list"""

    def __init__(self, computation: str, names: list[str]) -> None:
        self._computation, self._names = computation, names
        self._waiting: dict[Slot, list[Early]] = {}
        self._overtaken: dict[Slot, str] = {}  # the names of all slots in `_waiting` and `_shown`
        self._told: set[tuple[int, int, str]] = set()  # (dest, seq, order) of the early deliveries reported
        self._shown: dict[Slot, dict[str, Early]] = {}  # message in flight -> first delivery sent after it

    def step(
        self,
        stamped: Stamped,
        frontier: Frontier,
        delivered: Ints,
        later: Ints,
        named: Named,
        answers: Answers,
    ) -> None:
        """Report what this epoch's deliveries show; slots are as in EpochView, with NEVER in `later`."""
        rows: list[dict[str, Any]] = []
        known_to_us = _slot_keys(np.array([*self._overtaken], np.int64).reshape(-1, 3))
        awaited = np.isin(_slot_keys(delivered), known_to_us)
        for *slot, seq in delivered[awaited].tolist():
            name = self._overtaken.pop(tuple(slot), "")
            self._shown.pop(tuple(slot), None)
            for waiting in self._waiting.pop(tuple(slot), ()):
                rows += self._tell(waiting, tuple(slot), name, seq)
        if len(delivered):
            in_order = delivered[np.argsort(stamped.rows(frontier, delivered[:, 2], delivered[:, 3]))]
            self._show(shown_in_epoch(stamped, frontier, in_order, later), named)
            early = early_in_epoch(stamped, frontier, in_order, later)
            known = early[:, 6] != NEVER
            if not known.all():
                slots = np.concatenate([delivered, later])
                rows += self._wait(stamped, frontier, early[~known], slots, named)
            self._tell_known(early[known], named, answers)
        for row in rows:
            answers.totals[f"{row['order_name']}_violations"] += 1
        answers.add("violations", pa.Table.from_pylist(rows, schema=VIOLATIONS))
        # Forget the reports about deliveries that no longer wait.
        still = {(each.dest, each.seq) for waiting in self._waiting.values() for each in waiting}
        self._told = {key for key in self._told if key[:2] in still}

    def _tell_known(self, early: Ints, named: Named, answers: Answers) -> None:
        """Report early deliveries (rows of EARLY, possibly many) whose overtaken messages are delivered."""
        for order, chosen in (("causal", early), ("fifo", early[early[:, 7] > 0])):
            names = [
                pa.repeat(self._computation, len(chosen)),
                pa.array(self._names).take(pa.array(chosen[:, 0])),
            ]
            first, other = named(chosen[:, 1], chosen[:, 2]), named(chosen[:, 4], chosen[:, 5])
            paths: list[Any] = [None] * len(chosen)
            for k, (_, sender, sent, _, p, seq, _, _) in enumerate(chosen[:MOST_PATHS].tolist()):
                paths[k] = steps(self._sends((p, seq, other[k].as_py()), (sender, sent, first[k].as_py())))
            told = [(first, chosen[:, 3]), (other, chosen[:, 6])]
            answers.totals[f"{order}_violations"] += len(chosen)
            answers.add("violations", deliveries_table(VIOLATIONS, order, names, told, paths))

    def _wait(
        self, stamped: Stamped, frontier: Frontier, early: Ints, slots: Ints, named: Named
    ) -> list[dict[str, Any]]:
        """Let deliveries wait for all messages that they overtook; report what is already known."""
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
        """Remember the lost causes that deliveries show, with the first such delivery for each order."""
        lost, first = (named(shown[:, at], shown[:, at + 1]).to_pylist() for at in (2, 4))
        for (fifo, dest, p, at, sender, sent, seq), name, message in zip(
            shown.tolist(), lost, first, strict=True
        ):
            of_slot = self._shown.setdefault((p, at, dest), {})
            of_slot.setdefault("fifo" if fifo else "causal", Early(message, sender, sent, dest, seq))
            self._overtaken[p, at, dest] = name

    def retire(self, slots: Iterable[Slot], answers: Answers) -> None:
        """Give up these slots: report them as lost causes if a message sent after them was delivered."""
        rows = []
        for slot in slots:
            name, process = self._overtaken.pop(slot, ""), self._names[slot[2]]
            self._waiting.pop(slot, None)
            for order, first in sorted(self._shown.pop(slot, {}).items()):
                answers.totals[LOST_TOTALS[order]] += 1
                path = steps(self._sends((*slot[:2], name), (first.sender, first.sent, first.message)))
                delivered = first.message, first.seq, f"{process}#{first.seq}"
                row = (self._computation, order, process, name, *delivered, path)
                rows.append(dict(zip(LOST_CAUSES.names, row, strict=True)))
        answers.add("lost_causes", pa.Table.from_pylist(rows, schema=LOST_CAUSES))

    def end(self, answers: Answers) -> None:
        self.retire(sorted(self._shown), answers)

    def _tell(self, early: Early, slot: Slot, name: str, seq: int) -> list[dict[str, Any]]:
        """One row for each order, about the first message that was seen to be overtaken."""
        rows = []
        for order in ("causal", "fifo"):
            key = (early.dest, early.seq, order)
            if key in self._told or (order == "fifo" and early.sender != slot[0]):
                continue
            self._told.add(key)
            one, other = (
                self._event("deliver", early.dest, *delivery)
                for delivery in ((early.seq, early.message), (seq, name))
            )
            path = self._sends((*slot[:2], name), (early.sender, early.sent, early.message))
            rows.append(early_row(self._computation, order, one, other, path))
        return rows

    def _event(self, kind: str, process: int, seq: int, message: str) -> Event:
        return Event(self._computation, self._names[process], seq, kind, message)

    def _sends(self, *ends: Any) -> list[Event]:
        """The two ends of a causal path, both sends as (process, seq, message). The events between them are
        in earlier batches."""
        return [self._event("send", *end) for end in ends]


def _slot_keys(slots: Ints) -> Ints:
    """Slots as integers, unique for up to 2^12 processes; beyond that, slots with equal keys only cost
    needless comparisons."""
    return event_keys(slots[:, 0] << 12 | slots[:, 2], slots[:, 1])
