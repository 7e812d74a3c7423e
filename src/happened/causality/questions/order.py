"""Deliveries that came too early, total orders that cannot be, lost causes, and what became of messages.

Of an epoch, the early deliveries and the lost causes it shows are kept as integers (EARLY, SHOWN) until all
epochs are done; the Spark room then gives them their names and paths, and judges total order over the whole
computation (spark.by_epoch.steps).
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ..computation import Computation, Event, event_ids
from ..delivery import check_delivery
from ..epochs import Frontier, Stamped, own_columns
from ..linearization import Ints
from ..order import Channels, early_deliveries, faults_of_order, first_to_follow
from ..total_order import total_order
from ..verdict import Cycle, Disagreement, Witness
from ..witness import causal_path
from .question import Answers, Arrays, EpochView, Question, Subject

TOTAL_WITNESSES = 1000
"""Causal order leaves concurrent messages in any order, so disagreements can be as many as deliveries."""

MOST_PATHS = 100
"""Of a computation, early deliveries in an order, or lost causes, that come with a causal path."""

STEP = pa.struct(
    [("process", pa.string()), ("seq", pa.int64()), ("kind", pa.string()), ("message", pa.string())]
)
VIOLATIONS = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("order_name", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("early", pa.string(), nullable=False),
        pa.field("early_seq", pa.int64(), nullable=False),
        pa.field("early_event", pa.string(), nullable=False),
        pa.field("overtaken", pa.string(), nullable=False),
        pa.field("overtaken_seq", pa.int64(), nullable=False),
        pa.field("overtaken_event", pa.string(), nullable=False),
        pa.field("path", pa.list_(STEP)),
    ]
)
LOST_CAUSES = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("order_name", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("lost", pa.string(), nullable=False),
        pa.field("delivered", pa.string(), nullable=False),
        pa.field("delivered_seq", pa.int64(), nullable=False),
        pa.field("delivered_event", pa.string(), nullable=False),
        pa.field("path", pa.list_(STEP)),
    ]
)
"""`process` never delivered `lost`, and delivered `delivered`, which was sent causally after it. The path
leads from the one send to the other."""

EARLY = [
    "dest",
    "early_p",
    "early_sent",
    "early_seq",
    "overtaken_p",
    "overtaken_sent",
    "overtaken_seq",
    "fifo",
]
"""A destination; sender, seqs of send and delivery of two messages; whether FIFO is violated too."""
SHOWN = ["fifo", "dest", "lost_p", "lost_sent", "delivered_p", "delivered_sent", "delivered_seq"]
"""Whether FIFO order is meant; a destination; sender and seq of a lost send; sender, seqs of send and of
delivery of the first message of the epoch that was delivered there and sent after it."""

FATES = ("messages", "lost", "duplicated", "misdelivered", "never_sent")


class OrderQuestion(Question):
    name = "order"
    help = "deliveries that came too early, with witnesses; messages lost, duplicated or misdelivered"
    tables: ClassVar = {"violations": VIOLATIONS, "lost_causes": LOST_CAUSES}
    totals = (
        "messages", "fifo_violations", "causal_violations", "total_violations", "lost", "duplicated",
        "misdelivered", "never_sent", "deliveries_judged", "lost_causes", "fifo_lost_causes",
    )  # fmt: skip

    def whole(self, subject: Subject, answers: Answers) -> None:
        c, totals = subject.computation, answers.totals
        # Without a delivery nothing is early or shows a loss, and nobody needs vectors.
        vectors = subject.vectors if (c.slot_delivery >= 0).any() else np.empty((0, c.width), np.int32)
        for order, lost_causes in (("fifo", "fifo_lost_causes"), ("causal", "lost_causes")):
            faults = faults_of_order(c, vectors, order)
            totals[f"{order}_violations"] += faults.early.size
            totals[lost_causes] += faults.lost.size
            answers.add("violations", early_table(subject, order, faults.early, faults.overtaken))
            answers.add("lost_causes", lost_table(subject, order, faults.lost, faults.shown))
        totals["deliveries_judged"] += faults.deliveries
        agreed = total_order(c, TOTAL_WITNESSES)
        totals["total_violations"] += agreed.violations
        answers.add("violations", _total_table(agreed.witnesses))
        fates = check_delivery([c], examples=0)
        for name in FATES:
            totals[name] += getattr(fates, name)

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        last = stamped.arranged.last
        here = view.slots[:, 3] <= last[view.slots[:, 2]]
        delivered = view.slots[here]
        if not len(delivered):
            return {
                "early": np.empty((0, len(EARLY)), np.int64),
                "shown": np.empty((0, len(SHOWN)), np.int64),
            }
        delivered = delivered[np.argsort(stamped.rows(frontier, delivered[:, 2], delivered[:, 3]))]
        return {
            "early": early_in_epoch(stamped, frontier, delivered, view.slots[~here]),
            "shown": shown_in_epoch(stamped, frontier, delivered, view.lost),
        }

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        early = _first_of_each(np.concatenate([each["early"] for each in seen]))
        answers.totals["causal_violations"] += len(early)
        answers.totals["fifo_violations"] += int(early[:, 7].sum())
        answers.keep("early", pa.table(list(early.T), names=EARLY))
        shown = np.concatenate([each["shown"] for each in seen])
        answers.keep("shown", pa.table(list(shown.T), names=SHOWN))


def _first_of_each(early: Ints) -> Ints:
    """Of the rows about one delivery, the one that shows that FIFO is violated too, else the first."""
    order = np.lexsort((-early[:, 7], early[:, 3], early[:, 0]))
    others = (np.diff(early[order][:, [0, 3]], axis=0, prepend=-1) != 0).any(axis=1)
    first: Ints = early[np.sort(order[others])]
    return first


def early_in_epoch(stamped: Stamped, frontier: Frontier, delivered: Ints, later: Ints) -> Ints:
    """The early deliveries of the epoch, one row of EARLY each; `later` slots are delivered after it.

    Only overtaken messages whose senders are among the columns are seen. A sender has a column in one block
    alone, so that the first block that sees one sees the first of all.
    """
    slots = np.concatenate([delivered, later])
    source, seq, dest = slots[:, 0], slots[:, 1], slots[:, 2]
    channels = Channels.of(dest, source, seq, stamped.epoch.processes)
    send = stamped.rows(frontier, source, seq)
    column = own_columns(stamped.epoch.processes, stamped.columns)[channels.sender]
    column[column == len(stamped.columns)] = -1
    found = [
        early_deliveries(
            len(delivered), send, dest, channels.of_slot, seq, stamped.vectors, channels.queue,
            channels.ends, column, channels.of_dest, fifo,
        )
        for fifo in (False, True)
    ]  # fmt: skip
    early = np.flatnonzero(found[0] >= 0)
    # The FIFO witness where there is one: it violates causal order too.
    fifo = found[1][early] >= 0
    passed = np.where(fifo, found[1][early], found[0][early])
    return np.column_stack(
        [dest[early], slots[early][:, [0, 1, 3]], slots[passed][:, [0, 1, 3]], fifo.astype(np.int64)]
    )


def shown_in_epoch(stamped: Stamped, frontier: Frontier, delivered: Ints, lost: Ints) -> Ints:
    """The lost causes that deliveries of the epoch show, one row of SHOWN each, of senders among the columns.

    A later epoch may show them again: the first delivery of all counts.
    """
    column = own_columns(stamped.epoch.processes, stamped.columns)
    lost = lost[column[lost[:, 0]] < len(stamped.columns)]
    lost = lost[np.isin(lost[:, 2], delivered[:, 2])]
    rows = [np.empty((0, len(SHOWN)), np.int64)]
    if len(lost):
        send = stamped.rows(frontier, delivered[:, 0], delivered[:, 1])
        for fifo in (False, True):
            found = first_to_follow(
                stamped.vectors, send, delivered[:, 2], delivered[:, 0], stamped.epoch.processes,
                lost[:, 2], lost[:, 0], lost[:, 1], column[lost[:, 0]], fifo,
            )  # fmt: skip
            at = np.flatnonzero(found >= 0)
            flag = np.full(at.size, int(fifo))
            rows.append(np.column_stack([flag, lost[at][:, [2, 0, 1]], delivered[found[at]][:, [0, 1, 3]]]))
    return np.concatenate(rows)


def early_table(subject: Subject, order: str, early: Ints, overtaken: Ints) -> pa.Table:
    c = subject.computation
    computation, process = c.names_of(c.slot_dest[early])
    early_seq, overtaken_seq = (pa.array(_delivery_seq(c, slots)) for slots in (early, overtaken))
    columns = [
        computation,
        pa.repeat(order, early.size),
        process,
        _messages(c, early),
        early_seq,
        event_ids(process, early_seq),
        _messages(c, overtaken),
        overtaken_seq,
        event_ids(process, overtaken_seq),
        _paths(subject, overtaken, early),
    ]
    return pa.table(columns, schema=VIOLATIONS)


def lost_table(subject: Subject, order: str, lost: Ints, shown: Ints) -> pa.Table:
    c = subject.computation
    computation, process = c.names_of(c.slot_dest[lost])
    seq = pa.array(_delivery_seq(c, shown))
    columns = [
        computation,
        pa.repeat(order, lost.size),
        process,
        _messages(c, lost),
        _messages(c, shown),
        seq,
        event_ids(process, seq),
        _paths(subject, lost, shown),
    ]
    return pa.table(columns, schema=LOST_CAUSES)


def _delivery_seq(c: Computation, slots: Ints) -> Ints:
    return c.recorded_seq[c.slot_delivery[slots]].astype(np.int64)


def _messages(c: Computation, slots: Ints) -> pa.Array:
    return c.names.take(pa.array(c.message_codes[c.slot_message[slots]]))


def _paths(subject: Subject, before: Ints, after: Ints) -> pa.Array:
    """The causal paths between the sends of two slots each, for the first MOST_PATHS of a computation."""
    c = subject.computation
    owner = c.owner[c.slot_dest[after]]
    order = np.argsort(owner, kind="stable")
    begins = np.flatnonzero(np.diff(owner[order], prepend=-1))
    place = np.arange(owner.size) - np.repeat(begins, np.diff(begins, append=owner.size))
    paths: list[Any] = [None] * owner.size
    for row in order[place < MOST_PATHS].tolist():
        ends = int(c.slot_send[before[row]]), int(c.slot_send[after[row]])
        paths[row] = _steps(c.event(e) for e in causal_path(c, subject.vectors, *ends))
    return pa.array(paths, pa.list_(STEP))


def _total_table(witnesses: Iterable[Witness]) -> pa.Table:
    rows = []
    for w in witnesses:
        assert isinstance(w, Disagreement | Cycle)
        rows.append(total_row(w.computation, (w.one, w.other) if isinstance(w, Disagreement) else w.legs))
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)


def total_row(computation: str, legs: Iterable[tuple[Event, Event]]) -> dict[str, Any]:
    """A cycle of total order: `process` has the last leg, and the path those before it, one by one."""
    *others, (early, overtaken) = legs
    return _row(computation, "total", early, overtaken, [event for leg in others for event in leg])


def _row(
    computation: str, order: str, early: Event, overtaken: Event, path: Iterable[Event]
) -> dict[str, Any]:
    return {
        "computation": computation,
        "order_name": order,
        "process": early.process,
        "early": early.message,
        "early_seq": early.seq,
        "early_event": early.id,
        "overtaken": overtaken.message,
        "overtaken_seq": overtaken.seq,
        "overtaken_event": overtaken.id,
        "path": _steps(path),
    }


def _steps(path: Iterable[Event]) -> list[dict[str, Any]]:
    return [{"process": e.process, "seq": e.seq, "kind": e.kind, "message": e.message} for e in path]


QUESTION = OrderQuestion()
