"""Early deliveries, lost causes, total orders that cannot exist, and the counts of message fates.

An epoch's early deliveries, and the lost causes that it shows, are kept as integers (EARLY, SHOWN) until all
epochs are done; then the Spark code adds names and paths, and judges total order over the whole computation
(spark.by_epoch.steps).
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ...trace.declared import schema
from ..computation import Computation, Event, event_ids
from ..epochs import Frontier, Stamped, own_columns
from ..linearization import Ints
from ..order import Channels, check_delivery, faults_of_order, first_to_follow, overtaken
from ..reach import causal_path
from ..total_order import total_order
from ..verdict import Cycle, Disagreement
from .question import Answers, Arrays, EpochView, Question, Subject

TOTAL_WITNESSES = 1000
"""Causal order permits any order of concurrent messages: there may be as many disagreements as deliveries."""

MOST_PATHS = 100
"""Number of early deliveries per order, or of lost causes, of a computation that get a causal path."""

STEP = pa.struct(
    [("process", pa.string()), ("seq", pa.int64()), ("kind", pa.string()), ("message", pa.string())]
)
VIOLATIONS = schema(
    "computation string, order_name string, process string, early string, early_seq int64, "
    "early_event string, overtaken string, overtaken_seq int64, overtaken_event string",
    path=pa.list_(STEP),
)
LOST_CAUSES = schema(
    "computation string, order_name string, process string, lost string, delivered string, "
    "delivered_seq int64, delivered_event string",
    path=pa.list_(STEP),
)
"""`process` never delivered `lost`, but delivered `delivered`, which was sent causally after it. The path
leads from the send of `lost` to the send of `delivered`."""

EARLY = [
    *("dest", "early_p", "early_sent", "early_seq"),
    *("overtaken_p", "overtaken_sent", "overtaken_seq", "fifo"),
]
"""A destination; sender, seqs of send and delivery of two messages; whether FIFO is violated as well."""
SHOWN = ["fifo", "dest", "lost_p", "lost_sent", "delivered_p", "delivered_sent", "delivered_seq"]
"""Whether the row is about FIFO order; a destination; sender and seq of a lost send; sender, seqs of send and
delivery of the epoch's first message that was delivered there and sent after the lost one."""

FATES = ("messages", "lost", "duplicated", "misdelivered", "never_sent")
LOST_TOTALS = {"fifo": "fifo_lost_causes", "causal": "lost_causes"}
"""The totals that count the lost causes of each order; `ORDER_violations` counts early deliveries."""


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
        # Without a delivery nothing is early and no loss is shown, so vectors are not needed.
        vectors = subject.vectors if (c.slot_delivery >= 0).any() else np.empty((0, c.width), np.int32)
        for order in LOST_TOTALS:
            faults = faults_of_order(c, vectors, order)
            tell_early(subject, order, faults.early, faults.overtaken, answers)
            tell_lost(subject, order, faults.lost, faults.shown, answers)
        totals["deliveries_judged"] += faults.deliveries
        agreed = total_order(c, TOTAL_WITNESSES)
        totals["total_violations"] += agreed.violations
        rows = []
        for w in agreed.witnesses:
            assert isinstance(w, Disagreement | Cycle)
            rows.append(total_row(w.computation, (w.one, w.other) if isinstance(w, Disagreement) else w.legs))
        answers.add("violations", pa.Table.from_pylist(rows, schema=VIOLATIONS))
        fates = check_delivery([c], examples=0)
        for name in FATES:
            totals[name] += getattr(fates, name)

    def look(self, view: EpochView, stamped: Stamped, frontier: Frontier) -> Arrays:
        last = stamped.arranged.last
        here = view.slots[:, 3] <= last[view.slots[:, 2]]
        delivered = view.slots[here]
        delivered = delivered[np.argsort(stamped.rows(frontier, delivered[:, 2], delivered[:, 3]))]
        return {
            "early": early_in_epoch(stamped, frontier, delivered, view.slots[~here]),
            "shown": shown_in_epoch(stamped, frontier, delivered, view.lost),
        }

    def tell(self, view: EpochView, seen: Sequence[Arrays], answers: Answers) -> None:
        early = np.concatenate([each["early"] for each in seen])
        # Of the rows about one delivery, take the one that shows a FIFO violation as well, else the first.
        order = np.lexsort((-early[:, 7], early[:, 3], early[:, 0]))
        others = (np.diff(early[order][:, [0, 3]], axis=0, prepend=-1) != 0).any(axis=1)
        early = early[np.sort(order[others])]
        answers.totals["causal_violations"] += len(early)
        answers.totals["fifo_violations"] += int(early[:, 7].sum())
        answers.keep("early", pa.table(list(early.T), names=EARLY))
        shown = np.concatenate([each["shown"] for each in seen])
        answers.keep("shown", pa.table(list(shown.T), names=SHOWN))


def early_in_epoch(stamped: Stamped, frontier: Frontier, delivered: Ints, later: Ints) -> Ints:
    """The early deliveries of the epoch, one row of EARLY each; `later` slots are delivered after the epoch.

    Only overtaken messages whose senders are among the columns are noticed. Each sender has a column in one
    block only, so the first block that finds one finds the one that all columns together would find first.
    """
    slots, n = np.concatenate([delivered, later]), stamped.epoch.processes
    send, channels = stamped.rows(frontier, slots[:, 0], slots[:, 1]), Channels.of(slots, n)
    entry = own_columns(n, stamped.columns)
    entry[entry == len(stamped.columns)] = -1
    found = [
        overtaken(stamped.vectors, send, slots, len(delivered), channels, entry, fifo)
        for fifo in (False, True)
    ]
    early = np.flatnonzero(found[0] >= 0)
    # Prefer the FIFO witness, if there is one: it violates causal order too.
    fifo = found[1][early] >= 0
    passed = np.where(fifo, found[1][early], found[0][early])
    told = [slots[early][:, [2, 0, 1, 3]], slots[passed][:, [0, 1, 3]], fifo.astype(np.int64)]
    return np.column_stack(told)


def shown_in_epoch(stamped: Stamped, frontier: Frontier, delivered: Ints, lost: Ints) -> Ints:
    """The lost causes that deliveries of the epoch show, with senders among the columns; a row of SHOWN each.

    A later epoch may show the same ones again: the first delivery of all counts.
    """
    column = own_columns(stamped.epoch.processes, stamped.columns)
    lost = lost[column[lost[:, 0]] < len(stamped.columns)]
    lost = lost[np.isin(lost[:, 2], delivered[:, 2])]
    rows = [np.empty((0, len(SHOWN)), np.int64)]
    if len(lost):
        send = stamped.rows(frontier, delivered[:, 0], delivered[:, 1])
        for fifo in (False, True):
            found = first_to_follow(stamped.vectors, send, delivered, lost, column, fifo)
            at = np.flatnonzero(found >= 0)
            flag = np.full(at.size, int(fifo))
            rows.append(np.column_stack([flag, lost[at][:, [2, 0, 1]], delivered[found[at]][:, [0, 1, 3]]]))
    return np.concatenate(rows)


def tell_early(subject: Subject, order: str, early: Ints, overtaken: Ints, answers: Answers) -> None:
    """Answer that these slots were delivered early, each with a slot that it overtook."""
    c = subject.computation
    told = [(c.messages_of(slots), _delivery_seq(c, slots)) for slots in (early, overtaken)]
    names, paths = c.names_of(c.slot_dest[early]), _paths(subject, overtaken, early)
    answers.totals[f"{order}_violations"] += early.size
    answers.add("violations", deliveries_table(VIOLATIONS, order, names, told, paths))


def tell_lost(subject: Subject, order: str, lost: Ints, shown: Ints, answers: Answers) -> None:
    """Answer that these slots are lost causes, each with the delivery that shows it."""
    c = subject.computation
    told = [(c.messages_of(lost), None), (c.messages_of(shown), _delivery_seq(c, shown))]
    names, paths = c.names_of(c.slot_dest[lost]), _paths(subject, lost, shown)
    answers.totals[LOST_TOTALS[order]] += lost.size
    answers.add("lost_causes", deliveries_table(LOST_CAUSES, order, names, told, paths))


def deliveries_table(
    schema: pa.Schema,
    order: str,
    names: list[pa.Array],
    told: Sequence[tuple[pa.Array, Ints | None]],
    paths: list[Any],
) -> pa.Table:
    """VIOLATIONS or LOST_CAUSES: the computations and processes, two messages with the seqs of their
    deliveries (None: not delivered), and the causal paths."""
    columns = [names[0], pa.repeat(order, len(names[0])), names[1]]
    for message, seq in told:
        columns.append(message)
        if seq is not None:
            seqs = pa.array(seq)
            columns += [seqs, event_ids(names[1], seqs)]
    return pa.table([*columns, pa.array(paths, pa.list_(STEP))], schema=schema)


def _delivery_seq(c: Computation, slots: Ints) -> Ints:
    return c.recorded_seq[c.slot_delivery[slots]].astype(np.int64)


def _paths(subject: Subject, before: Ints, after: Ints) -> list[Any]:
    """For pairs of slots, the causal path from send to send, for the first MOST_PATHS of a computation."""
    c = subject.computation
    owner = c.owner[c.slot_dest[after]]
    order = np.argsort(owner, kind="stable")
    begins = np.flatnonzero(np.diff(owner[order], prepend=-1))
    place = np.arange(owner.size) - np.repeat(begins, np.diff(begins, append=owner.size))
    paths: list[Any] = [None] * owner.size
    for row in order[place < MOST_PATHS].tolist():
        ends = int(c.slot_send[before[row]]), int(c.slot_send[after[row]])
        paths[row] = steps(c.event(e) for e in causal_path(c, subject.vectors, *ends))
    return paths


def total_row(computation: str, legs: Iterable[tuple[Event, Event]]) -> dict[str, Any]:
    """A row for a cycle of total order: `process` has the last leg, the path has all other legs in order."""
    *others, (early, overtaken) = legs
    return early_row(computation, "total", early, overtaken, [event for leg in others for event in leg])


def early_row(
    computation: str, order: str, early: Event, overtaken: Event, path: Iterable[Event]
) -> dict[str, Any]:
    """A row of VIOLATIONS, from an early delivery and one that it overtook."""
    of_early = early.process, early.message, early.seq, early.id
    of_overtaken = overtaken.message, overtaken.seq, overtaken.id
    told = (computation, order, *of_early, *of_overtaken, steps(path))
    return dict(zip(VIOLATIONS.names, told, strict=True))


def steps(path: Iterable[Event]) -> list[dict[str, Any]]:
    return [{"process": e.process, "seq": e.seq, "kind": e.kind, "message": e.message} for e in path]


QUESTION = OrderQuestion()
