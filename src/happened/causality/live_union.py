"""Many small computations in progress, processed together by the kernels of the batch job.

In     the stored rows of the computations concerned, and newly arrived rows, in any order, some twice
Out    tables and totals with the answers that are new since the last batch; the rows to store
State  every row of a computation, with the batch in which it was reported, or -1 while it is held
Cost   events of the computations concerned, times their processes: the batch kernels run once over the union
       of them. A computation that has become too large for this moves to `LiveComputation`

An event is held until every event before it on its process, the send of the message it delivers and its
recorded causes are present. The events that are not held form a consistent cut, so the kernels' answers about
them hold for the whole computation. Only answers about events held until now are reported; an early delivery
is reported once the message it overtook is delivered too.

A row that arrives twice is used once, and the duplicate is counted. Of two different rows of one event, and
of two sends of one message, the first stays and the other is quarantined by name; within a batch the smaller
one stays, so that a repeated batch decides the same.
"""

from collections.abc import Callable, Collection
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..trace.declared import schema
from ..trace.schema import KINDS, SCHEMA
from .analysis import without_causes
from .computation import DELIVER, RECEIVE, SEND, UNORDERED, Computation, unite
from .epochs import event_keys
from .linearization import MISDELIVERED, NEVER_SENT, REPEATED, Ints, admissible, find
from .live import HELD_TOO_LONG, RECEIVED_ONLY, Rules
from .names import codes_of, encode_names, flatten
from .order import faults_of_order
from .predecessors import computation_predecessors, edges_table
from .questions import Answers, Subject
from .questions.order import tell_early, tell_lost
from .questions.stamp import stamps_table

COLUMNS = ("computation", "process", "seq", "kind", "message", "to", "relevant", "causes")
"""The columns of an event that are used."""

EVENTS = pa.schema([SCHEMA.field(name) for name in COLUMNS])
KEPT = EVENTS.append(pa.field("told", pa.int32())).append(pa.field("early", pa.int8()))
"""A stored row: `told` is the batch in which it was reported, -1 while it is held; `early` has a bit for each
order in which its delivery was reported as early."""

PROCESSES = schema("computation string, process string, p int32")
"""Processes in the order in which they became known; entry p of a clock is about process p."""

ORDERS = {"fifo": 1, "causal": 2}  # The bit of each order in `early`

TWICE = (
    "is here twice with different contents: the row that came first counts, and this one is left out; number "
    "the events of a process 1, 2, …"
)
QUESTIONS = ("stamp", "predecessors", "order")
FATES = {"duplicated": REPEATED, "misdelivered": MISDELIVERED, "never_sent": NEVER_SENT}
NOTHING = -1
HELD = -1


class Advanced(NamedTuple):
    """The effect of a batch on some computations.

    answers   tables and totals as for questions; totals include `duplicates`, and `held` as the change in the
              number of held rows
    open      names of the computations that can still give answers when they end: they have held rows or
              undelivered messages
              message is undelivered
    """

    answers: Answers
    kept: pa.Table  # rows of KEPT, by computation
    open: pa.Array


def advance(
    kept: pa.Table,
    arrived: pa.Table,
    number: int,
    rules: Rules,
    *,
    last: bool = False,
    questions: Collection[str] = QUESTIONS,
) -> Advanced:
    """Process the rows of some computations that arrived in batch `number`; `kept` has all their stored rows.
    `last`: no more rows will come, so report the rest without waiting for missing rows."""
    answers = Answers()
    more = [*arrived.select(COLUMNS).columns, np.full(arrived.num_rows, HELD, np.int32)]
    more.append(np.zeros(arrived.num_rows, np.int8))
    table = pa.concat_tables([kept, pa.table(more, schema=KEPT)]).combine_chunks()
    answers.totals["held"] -= pc.sum(pc.equal(kept["told"], HELD)).as_py() or 0
    rows = _UnionRows(_without_repetitions(table, kept.num_rows, answers), rules)
    again = rows.sent_again()
    if again.any():
        names, one = rows.table["message"], "which is sent twice: a message has one send; rename the other"
        answers.quarantine(rows.about(again, lambda at: f"sends {names[at].as_py()!r}, {one}"))
        rows = _UnionRows(rows.table.filter(pa.array(~again)), rules)
    admitted = rows.admitted(last, answers)
    told = rows.told
    new = admitted & (told == HELD)
    if last:
        answers.quarantine(rows.about(~admitted, lambda place: HELD_TOO_LONG))
    told = np.where(new, number, told).astype(np.int32)
    early = rows.table["early"].to_numpy().copy()
    concerned = np.zeros(rows.computations, bool)
    concerned[rows.computation[new]] = True
    waits = np.zeros(rows.computations, bool)
    waits[rows.computation[~admitted]] = True
    chosen = np.flatnonzero(admitted & (last | concerned[rows.computation]))
    if chosen.size:
        flags = early[chosen]
        teller = _Teller(answers, number, told[chosen], new[chosen], flags, rules, last, questions)
        undelivered = teller.tell(rows.for_kernels(chosen))
        early[chosen] = flags
        waits |= np.fromiter((name in undelivered for name in rows.names), bool, rows.computations)
    waits |= ~concerned  # not processed in this batch: possibly still open
    if not rules.receives:
        received, delivered = (
            np.bincount(rows.computation, rows.kind == kind, minlength=rows.computations) > 0
            for kind in (RECEIVE, DELIVER)
        )
        received_only = received & ~delivered
        waits |= received_only
        if last:
            answers.quarantine((name, RECEIVED_ONLY) for name in compress(rows.names, received_only))
    answers.totals["held"] += 0 if last else int((~admitted).sum())
    after = pa.table([*rows.table.select(COLUMNS).columns, told, early.astype(np.int8)], schema=KEPT)
    return Advanced(answers, after, pa.array([*compress(rows.names, waits)], pa.string()))


def _without_repetitions(table: pa.Table, kept: int, answers: Answers) -> pa.Table:
    """The rows by computation, process and seq, each event once; the first `kept` rows were stored."""
    (computation,), _ = codes_of(table["computation"])
    (process,), names = codes_of(table["process"])
    seq = table["seq"].to_numpy()
    owner = computation * max(len(names), 1) + process
    order = np.lexsort((seq, owner))  # stable: stored rows come first
    same = (np.diff(owner[order], prepend=-1) == 0) & (np.diff(seq[order], prepend=-1) == 0)
    if not same.any():
        return table.take(pa.array(order))
    first = np.maximum.accumulate(np.where(same, -1, np.arange(order.size)))
    stays = np.where(same, -1, order)
    reasons: list[tuple[str, str]] = []
    for begin in np.unique(first[same]).tolist():
        end = begin + 1
        while end < order.size and same[end]:
            end += 1
        group = order[begin:end]
        content = table.select(COLUMNS).take(pa.array(group)).to_pylist()
        chosen = 0 if group[0] < kept else min(range(len(group)), key=lambda k: repr(content[k]))
        stays[begin] = group[chosen]
        different = [row for row in content if repr(row) != repr(content[chosen])]
        answers.totals["duplicates"] += len(group) - 1 - len(different)
        reasons += [(row["computation"], f"{row['process']}#{row['seq']} {TWICE}") for row in different]
    answers.quarantine(reasons)
    return table.take(pa.array(stays[stays >= 0]))


class _UnionRows:
    """Rows of many computations as integers, sorted by computation, process and seq; each event once."""

    def __init__(self, table: pa.Table, rules: Rules) -> None:
        self.table = table
        self.receives = rules.receives
        (self.computation,), self.names = codes_of(table["computation"])
        self.computations = len(self.names)
        (process,), self.process_names = codes_of(table["process"])
        self._key = self.computation * max(len(self.process_names), 1) + process
        self.starts = np.flatnonzero(np.diff(self._key, prepend=-1))
        self.process = np.cumsum(np.diff(self._key, prepend=-1) != 0) - 1
        self.seq = table["seq"].to_numpy()
        self.told = table["told"].to_numpy()
        self.kind = pc.index_in(table["kind"], value_set=pa.array(KINDS)).to_numpy().astype(np.int64)
        codes, messages = encode_names(pa.chunked_array(table["message"]))
        self._message = np.where(codes >= 0, self.computation * (len(messages) + 1) + codes, NOTHING)

    def about(self, chosen: Ints, why: Callable[[int], str]) -> list[tuple[str, str]]:
        """(computation, reason) for each of these rows, for the quarantine."""
        return [
            (self.names[self.computation[at]], f"{self.table['process'][at]}#{self.seq[at]} {why(at)}")
            for at in np.flatnonzero(chosen).tolist()
        ]

    def _sends(self) -> Ints:
        """Indices of sends by message; for one message, reported ones first, then by process and seq."""
        at = np.flatnonzero(np.isin(self.kind, (SEND, UNORDERED)) & (self._message >= 0))
        return at[np.lexsort((at, self.told[at] == HELD, self._message[at]))]

    def sent_again(self) -> Ints:
        """Whether each row is a send of a message that an earlier send in `_sends` has already sent."""
        at = self._sends()
        again = np.zeros(self.seq.size, bool)
        again[at[np.diff(self._message[at], prepend=-1) == 0]] = True
        return again

    def admitted(self, last: bool, answers: Answers) -> Ints:
        """Which rows can be admitted: everything that they wait for is admitted. With `last`, no row waits
        for absent rows, nor for an unordered send: it carries no edge, and a process that delivers the
        message before its own send of it would wait for ever."""
        blocked = self.seq != np.arange(self.seq.size) - self.starts[self.process] + 1
        source = np.full(self.seq.size, NOTHING, np.int64)
        delivers = (self.kind == DELIVER) | ((self.kind == RECEIVE) & self.receives)
        at = np.flatnonzero(delivers & (self._message >= 0))
        sends = self._sends()
        found = find(self._message[sends], self._message[at])
        source[at[found >= 0]] = sends[found[found >= 0]]
        if last:
            source[(source >= 0) & (self.kind[source] == UNORDERED)] = NOTHING
        else:
            blocked[at[found < 0]] = True
        effects, causes = self._causes(blocked, last, answers)
        chains = np.append(self.starts, self.seq.size)
        return admissible(chains, self.process, source, effects, causes, blocked)

    def _causes(self, blocked: Ints, last: bool, answers: Answers) -> tuple[Ints, Ints]:
        """The recorded causes that are present, as (effects, causes). A row with an absent cause is blocked;
        with `last`, the cause is quarantined and removed from the row instead."""
        causes, effect = flatten(self.table["causes"])
        if not len(causes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        processes = pa.array(self.process_names, pa.string())
        process = pc.index_in(pc.struct_field(causes, "process"), value_set=processes)
        code = pc.fill_null(process, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        seq = pc.fill_null(pc.struct_field(causes, "seq"), 0).to_numpy(zero_copy_only=False)
        keys = self.computation[effect] * max(len(self.process_names), 1) + code
        chain = find(self._key[self.starts], keys)
        at = find(event_keys(self.process, self.seq), event_keys(chain, np.clip(seq, 0, 2**40 - 1)))
        at = np.where((code >= 0) & (chain >= 0), at, NOTHING)
        absent = at == NOTHING
        if not last:
            blocked[effect[absent]] = True
        elif absent.any():
            self.table = without_causes(self.table, absent, answers)
        return effect[~absent], at[~absent]

    def for_kernels(self, chosen: Ints) -> pa.Table:
        """These rows in the form that the batch job takes. Arrivals that count as deliveries become
        deliveries, and other receives do not stay receives: the batch job counts receives as deliveries in a
        computation without deliveries, and here a delivery may still come."""
        table = self.table.select(COLUMNS).take(pa.array(chosen))
        received = pa.array(self.kind[chosen] == RECEIVE)
        columns = {name: table[name] for name in COLUMNS}
        columns["kind"] = pc.if_else(received, "deliver" if self.receives else "internal", table["kind"])
        if not self.receives:
            columns["message"] = pc.if_else(received, pa.scalar(None, pa.string()), table["message"])
        return pa.table(columns, schema=EVENTS)


class _Teller(NamedTuple):
    """Runs the kernels over a consistent cut and reports the answers that are new."""

    answers: Answers
    number: int  # number of the batch
    told: Ints  # for each row, the batch in which it was reported
    new: Ints
    early: Ints  # for each row, the orders in which it was reported as early; updated here
    rules: Rules
    last: bool
    questions: Collection[str]

    def tell(self, table: pa.Table) -> set[str]:
        """Report answers, and return the names of the computations that have undelivered messages."""
        undelivered: set[str] = set()
        for c in unite(table):
            subject, new = Subject(c, table), self.new[c.row]
            self._count(subject, new)
            if "stamp" in self.questions:
                self._stamp(subject, new)
            if "predecessors" in self.questions:
                relevant = c.relevant if self.rules.relevant_only else np.ones(c.events, bool)
                effects, causes = computation_predecessors(c, subject.vectors, relevant)
                here = new[effects]
                self.answers.totals["reduction_edges"] += int(here.sum())
                self.answers.add("predecessors", edges_table(c, effects[here], causes[here]))
            if "order" in self.questions:
                self._judge(subject)
            lost = np.concatenate([c.slot_dest[c.slot_delivery < 0], c.aside.dest[c.aside.delivery < 0]])
            self.answers.totals["lost"] += lost.size if self.last else 0
            undelivered.update(c.computation_names[k] for k in np.unique(c.owner[lost]).tolist())
        return undelivered

    def _count(self, subject: Subject, new: Ints) -> None:
        c, totals, count = subject.computation, self.answers.totals, int(new.sum())
        events = np.bincount(c.owner[c.process], minlength=len(c.computation_names))
        before = events - np.bincount(c.owner[c.process], new, minlength=events.size).astype(np.int64)
        ordered = int(subject.vectors[new].sum(dtype=np.int64)) - count
        pairs = int((events * (events - 1) // 2 - before * (before - 1) // 2).sum())
        totals["events"] += count
        totals["computations"] += int(((before == 0) & (events > 0)).sum())
        totals["ordered_pairs"] += ordered
        totals["concurrent_pairs"] += pairs - ordered
        totals["messages"] += int(new[c.send[c.send >= 0]].sum())
        totals["deliveries_judged"] += int(new[c.slot_delivery[c.slot_delivery >= 0]].sum())
        for name, fate in FATES.items():
            totals[name] += int((new & (c.fate == fate)).sum())

    def _stamp(self, subject: Subject, new: Ints) -> None:
        """Report stamps; clock entries are in the order in which processes became known, then by name."""
        c, vectors = subject.computation, subject.vectors
        known, every = self._known(c), np.arange(c.processes)
        number = np.empty(c.processes, np.int64)
        number[np.lexsort((every, known, c.owner))] = every
        number -= c.first
        if (number != every - c.first).any():
            entries = np.tile(np.arange(c.width), (len(c.computation_names), 1))
            entries[c.owner, number] = every - c.first
            vectors = np.take_along_axis(vectors, entries[c.owner[c.process]], axis=1)
        self.answers.add("stamps", stamps_table(c, vectors, "full").filter(pa.array(new[c.chain])))
        fresh = np.flatnonzero(known == self.number)
        columns = [*c.names_of(fresh), pa.array(number[fresh].astype(np.int32))]
        self.answers.add("processes", pa.table(columns, schema=PROCESSES))

    def _known(self, c: Computation) -> Ints:
        """The batch in which each process was first reported, by its event or a message to it."""
        known = np.full(c.processes, np.iinfo(np.int64).max)
        told = self.told[c.row].astype(np.int64)
        np.minimum.at(known, c.process, told)
        np.minimum.at(known, c.slot_dest, told[c.slot_send])
        np.minimum.at(known, c.aside.dest, told[c.send[c.aside.message]])
        return known

    def _judge(self, subject: Subject) -> None:
        c = subject.computation
        for order, bit in ORDERS.items():
            faults = faults_of_order(c, subject.vectors, order)
            rows = c.row[c.slot_delivery[faults.early]]
            fresh = self.early[rows] & bit == 0
            self.early[rows] |= bit
            tell_early(subject, order, faults.early[fresh], faults.overtaken[fresh], self.answers)
            if self.last:
                tell_lost(subject, order, faults.lost, faults.shown, self.answers)
