"""A computation in progress: events come in batches, in any order, some twice; each is stamped once.

A batch is an epoch, and the frontier is the state between batches (see epochs). An event is *held* until
every event before it on its process, the send of the message it delivers and its recorded causes are present.
So the admitted events always form a consistent cut, and their timestamps are those of the whole computation.

Promises   after `finish`, every event has been reported once, with the same timestamp, immediate predecessors
           and early deliveries as an analysis of the whole computation gives, whatever the batches were; and
           the totals are those on which that analysis's judgement rests.
Bound      state: a vector for each process and each message in flight, the held events, and the names of the
           last `remember` messages that arrived everywhere. These rules bound the state, at a price:
  retire   an event held through `retire` batches is released without its missing send or causes, which are
           quarantined; if events before it on its process are missing, the event itself is quarantined. A
           message in flight for `retire` batches counts as lost: a later delivery of it has no cause, and
           deliveries that overtook it are no longer reported as early.
  remember a message delivered again after `remember` others finished counts as one whose send is missing. If
           a message has been delivered at all its destinations, a later delivery at another process counts as
           a repetition.
  recent   a recorded cause must be among the last `recent` events of its process when its effect arrives
           (fewer if there are many processes, MOST_KEPT); an older cause is quarantined, and its effect is
           stamped without it.

Receives count as deliveries only on the caller's request: a delivery may still come at any time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace.schema import KINDS, SCHEMA
from .computation import DELIVER, RECEIVE, SEND, UNORDERED
from .epochs import Epoch, Frontier, event_keys, stamp
from .linearization import Ints, admissible, find, offsets_of
from .marks import mark_epoch, no_marks
from .names import flatten
from .overtaking import NEVER, Overtaking
from .questions import Answers, EpochView
from .questions.predecessors import tell_edges
from .questions.stamp import QUESTION as STAMP

NOTHING, FORGOTTEN, UNKNOWN = -1, -2, -3
"""Instead of the message that an event delivers: none; a finished message; a message not sent yet."""

MOST_KEPT = 4_000_000  # Entries of the vectors that are kept in case a recorded cause names their events

COLUMNS = ("process", "seq", "kind", "message", "to", "relevant", "causes")
TEXT = pa.string()

HELD_TOO_LONG = "was held too long: events before it are missing, or wait for it"
RECEIVED_ONLY = (
    "has receives and no deliveries, and what was told of it takes no receive for a delivery; stream it with "
    "--receives (receives=True)"
)


@dataclass(frozen=True)
class Rules:
    """How much state is kept, and for how long."""

    retire: int = 100  # batches for which an event may be held, or a message be in flight
    remember: int = 100_000  # number of remembered names of finished messages
    recent: int = 64  # number of events of each process that recorded causes may name
    receives: bool = False  # whether receives count as deliveries
    relevant_only: bool = False  # whether predecessors are reported among marked events only, not among all


class _Rows(NamedTuple):
    """Candidate events of a batch by process, then seq; `since` is the batch in which each arrived."""

    table: pa.Table
    process: Ints
    seq: Ints
    kind: Ints
    since: Ints

    @property
    def sends(self) -> Ints:
        """The indices of sends."""
        named = pc.is_valid(self.table["message"]).to_numpy()
        return np.flatnonzero(np.isin(self.kind, (SEND, UNORDERED)) & named)


class _Edges(NamedTuple):
    """Edges: the index of the effect among the rows, and its cause as (process, seq)."""

    effect: Ints
    process: Ints
    seq: Ints

    @classmethod
    def joined(cls, *parts: "_Edges") -> "_Edges":
        return cls(*(np.concatenate(each).astype(np.int64) for each in zip(*parts, strict=True)))


class _Flying(NamedTuple):
    """Messages in flight, and the destinations of each.

    names, sender, seq, since   one entry for each message; `since` is the batch of its send
    slot_message, slot_dest     one entry for each slot
    """

    names: pa.Array
    sender: Ints
    seq: Ints
    since: Ints
    ordered: Ints  # whether judgements of order include the message
    slot_message: Ints
    slot_dest: Ints
    slot_done: Ints  # whether the message was delivered at this destination

    def only(self, kept: Ints) -> "_Flying":
        """The messages selected by a mask."""
        slots = kept[self.slot_message]
        of_message = (each[kept] for each in self[1:5])
        number = (np.cumsum(kept) - 1)[self.slot_message[slots]]
        names = self.names.filter(pa.array(kept))
        return _Flying._make([names, *of_message, number, self.slot_dest[slots], self.slot_done[slots]])

    def slots(self, which: Ints, seq: Ints | int) -> Ints:
        """(sender, seq, destination, seq of the delivery) of these slots."""
        message = self.slot_message[which]
        columns = [self.sender[message], self.seq[message], self.slot_dest[which]]
        return np.column_stack([*columns, np.broadcast_to(seq, which.shape)]).astype(np.int64)

    def edges(self, source: Ints, *, ordered: bool) -> _Edges:
        """Edges from sends into deliveries, for messages that were sent ordered, or for unordered ones."""
        delivers = np.flatnonzero(source >= 0)
        delivers = delivers[self.ordered[source[delivers]] == ordered]
        return _Edges(delivers, self.sender[source[delivers]], self.seq[source[delivers]])

    def named(self) -> Callable[[Ints, Ints], pa.Array]:
        """A function that gives the names of messages by process and seq of their sends."""
        keys = event_keys(self.sender, self.seq)
        order = np.argsort(keys)
        keys = keys[order]
        return lambda sender, seq: self.names.take(
            pa.array(order[np.searchsorted(keys, event_keys(sender, seq))])
        )


def _none_flying() -> _Flying:
    zero, no = np.empty(0, np.int64), np.empty(0, bool)
    return _Flying(pa.array([], TEXT), zero, zero, zero, no, zero, zero, no)


@dataclass
class LiveComputation:
    name: str
    rules: Rules = field(default_factory=Rules)
    names: list[str] = field(default_factory=list)
    epochs: int = 0
    events: int = 0
    listed: int = 0  # how many of `names` the caller has already written

    def __post_init__(self) -> None:
        self._number: dict[str, int] = {}
        self._frontier = Frontier.beginning(0)
        self._marks = no_marks(0)
        self._flying = _none_flying()
        self._finished = pa.array([], TEXT)
        self._held = SCHEMA.empty_table().select(COLUMNS)
        self._held_since = np.empty(0, np.int64)
        self._overtaking = Overtaking(self.name, self.names)
        self._arrivals: set[str] = set()  # kinds of arrivals seen so far

    @classmethod
    def of(cls, name: str, rules: Rules, names: Iterable[str]) -> "LiveComputation":
        """A computation in which these processes are already known, in this order."""
        live = cls(name, rules)
        for each in names:
            live._know(pa.array([each], TEXT))
        return live

    @property
    def held(self) -> int:
        return int(self._held.num_rows)

    @property
    def in_flight(self) -> int:
        return len(self._flying.names)

    def step(self, arrived: pa.Table, batch: int) -> Answers:
        """Process a batch and report every event whose past is complete. TraceFormatError if the events
        contradict each other."""
        return self._advance(arrived, batch, self.rules.retire)

    def finish(self, batch: int) -> Answers:
        """End the computation: report the remaining events without waiting for events that never arrived."""
        answers = self._advance(self._held.slice(0, 0), batch, -1)
        self._overtaking.end(answers)
        if self._arrivals == {"receive"} and not self.rules.receives:
            answers.quarantine([(self.name, RECEIVED_ONLY)])
        return answers

    def _advance(self, arrived: pa.Table, batch: int, retire: int) -> Answers:
        answers = Answers()
        self._arrivals.update({*pc.unique(arrived["kind"]).to_pylist()} & {"receive", "deliver"})
        rows = self._candidates(arrived, batch, answers)
        old = batch - rows.since > retire
        flying = self._with_sends(rows, batch)
        source, fills = self._matched(rows, flying)
        edges, reasons = self._edges(rows, flying, source)
        blocked = (source == UNKNOWN) & ~old
        blocked[[place for place, missing, _ in reasons if missing and not old[place]]] = True
        admitted = self._admitted(rows, _Edges.joined(edges, flying.edges(source, ordered=False)), blocked)
        self._quarantine(answers, rows, ((place, why) for place, _, why in reasons if admitted[place]))
        self._without_sends(rows, np.flatnonzero(admitted & (source == UNKNOWN)), retire, answers)
        held = ~admitted & ~old
        self._held, self._held_since = rows.table.filter(pa.array(held)), rows.since[held]
        gone = np.flatnonzero(~admitted & old).tolist()
        self._quarantine(answers, rows, ((place, HELD_TOO_LONG) for place in gone))
        self._tell(rows, edges, admitted, (flying, source, fills), answers)
        self._retire(batch, retire, answers)
        return answers

    # Arriving rows.

    def _candidates(self, arrived: pa.Table, batch: int, answers: Answers) -> _Rows:
        """The held and the new events, without events reported before; duplicates are dropped."""
        table = pa.concat_tables([self._held, arrived.select(COLUMNS)]).combine_chunks()
        since = np.concatenate([self._held_since, np.full(arrived.num_rows, batch)])
        members, _ = flatten(table["to"])
        causes, _ = flatten(table["causes"])
        self._know(table["process"], members, pc.struct_field(causes, "process"))
        process, seq = self._codes(table["process"]), table["seq"].to_numpy().astype(np.int64)
        keys = event_keys(process, seq)
        order = np.argsort(keys, kind="stable")
        new = (np.diff(keys[order], prepend=-1) != 0) & (seq > self._frontier.last[process])[order]
        answers.totals["duplicates"] += int(order.size - new.sum())
        order = order[new]
        table = table.take(pa.array(order))
        kind = pc.index_in(table["kind"], value_set=pa.array(KINDS, TEXT)).to_numpy().astype(np.int64)
        return _Rows(table, process[order], seq[order], kind, since[order])

    def _know(self, *columns: pa.Array | pa.ChunkedArray) -> None:
        """Give new processes an index and widen the vectors."""
        found = {name for column in columns for name in pc.unique(column).to_pylist()} - {None}
        for name in sorted(found - self._number.keys()):
            self._number[name] = len(self.names)
            self.names.append(name)
        more = len(self.names) - self._frontier.last.size
        if more:
            self._frontier = self._frontier.widened(more, self._frontier.vectors.shape[1])
            self._marks = self._marks.widened(more, self._marks.vectors.shape[1] - 1)

    def _codes(self, column: pa.Array | pa.ChunkedArray) -> Ints:
        """Indices of processes, -1 for null."""
        codes = pc.index_in(column, value_set=pa.array(self.names, TEXT))
        found: Ints = pc.fill_null(codes, -1).to_numpy().astype(np.int64)
        return found

    def _with_sends(self, rows: _Rows, batch: int) -> _Flying:
        """The messages in flight after admitting these sends."""
        at, old = rows.sends, self._flying
        sends = rows.table.select(["message", "to"]).take(pa.array(at))
        names = sends["message"].combine_chunks()
        known = pc.is_in(names, value_set=pa.concat_arrays([old.names, self._finished]))
        if pc.any(known).as_py() or len(pc.unique(names)) < len(names):
            counts = pc.value_counts(names).to_pylist()
            again = [each["values"] for each in counts if each["counts"] > 1] or names.filter(
                known
            ).to_pylist()
            raise TraceFormatError(f"{again[0]!r} is sent twice: a message has one send; rename the other")
        members, of = flatten(sends["to"])
        n = len(self.names) + 1
        pairs = np.unique(of * n + self._codes(members) + 1)
        pairs = pairs[pairs % n > 0]  # drops nulls, which are no destinations
        more = (
            rows.process[at], rows.seq[at], np.full(at.size, batch), rows.kind[at] == SEND,
            len(old.names) + pairs // n, pairs % n - 1, np.zeros(pairs.size, bool),
        )  # fmt: skip
        columns = (np.concatenate(each) for each in zip(old[1:], more, strict=True))
        return _Flying(pa.concat_arrays([old.names, names]), *columns)

    def _matched(self, rows: _Rows, flying: _Flying) -> tuple[Ints, Ints]:
        """For each row, the message that it delivers and follows, or NOTHING, FORGOTTEN or UNKNOWN; and the
        slot whose first delivery it is, or -1."""
        source = np.full(rows.seq.size, NOTHING)
        fills = np.full(rows.seq.size, -1, np.int64)
        deliveries = (rows.kind == DELIVER) | ((rows.kind == RECEIVE) & self.rules.receives)
        at = np.flatnonzero(deliveries & pc.is_valid(rows.table["message"]).to_numpy())
        names = rows.table["message"].take(pa.array(at))
        found = pc.fill_null(pc.index_in(names, value_set=flying.names), -1).to_numpy().astype(np.int64)
        finished = pc.is_in(names, value_set=self._finished).to_numpy()
        source[at] = np.where(found >= 0, found, np.where(finished, FORGOTTEN, UNKNOWN))
        at, found = at[found >= 0], found[found >= 0]
        if not (at.size and flying.slot_dest.size):
            return source, fills
        n = len(self.names)
        slots, wanted = flying.slot_message * n + flying.slot_dest, found * n + rows.process[at]
        order = np.argsort(slots, kind="stable")
        place = find(slots[order], wanted)
        first = np.zeros(at.size, bool)
        first[np.unique(wanted, return_index=True)[1]] = True  # rows are sorted by process and seq
        first &= (place >= 0) & ~flying.slot_done[order[place]]
        fills[at[first]] = order[place[first]]
        return source, fills

    def _edges(
        self, rows: _Rows, flying: _Flying, source: Ints
    ) -> tuple[_Edges, list[tuple[int, bool, str]]]:
        """The edges whose causes are present; and, for each other edge, (index of the effect, whether to wait
        for the cause, reason)."""
        reasons: list[tuple[int, bool, str]] = []
        edges = flying.edges(source, ordered=True)
        causes, effect = flatten(rows.table["causes"])
        if len(causes):
            process = self._codes(pc.struct_field(causes, "process"))
            seq = pc.fill_null(pc.struct_field(causes, "seq"), 0).to_numpy().astype(np.int64)
            wanted = event_keys(np.maximum(process, 0), seq)
            here = (find(event_keys(rows.process, rows.seq), wanted) >= 0) & (process >= 0)
            past = (process >= 0) & (seq > 0) & (seq <= self._frontier.last[process])
            past &= self._frontier.rows(np.maximum(process, 0), seq) >= 0
            edges = _Edges.joined(edges, _Edges(*(each[here | past] for each in (effect, process, seq))))
            own = process == rows.process[effect]  # implied by process order if earlier; else unsatisfiable
            for k in np.flatnonzero(~here & ~past & ~(own & (seq < rows.seq[effect]) & (seq > 0))).tolist():
                cause = pc.struct_field(causes, "process")[k].as_py()
                forgotten = process[k] >= 0 and 0 < seq[k] <= self._frontier.last[process[k]]
                why = "which is forgotten" if forgotten else "which is not in the trace"
                reasons.append((int(effect[k]), not forgotten, f"names the cause {cause}#{seq[k]}, {why}"))
        order = np.argsort(edges.effect, kind="stable")
        return _Edges(*(each[order].astype(np.int64) for each in edges)), reasons

    # Waiting rows.

    def _admitted(self, rows: _Rows, edges: _Edges, blocked: Ints) -> Ints:
        """Which rows can be admitted: their causes are reported or admitted, and so are the sends of
        unordered messages they deliver. Such a send is no cause, but it alone shows that its message is
        unordered."""
        starts = np.searchsorted(rows.process, np.arange(len(self.names) + 1))
        expected = np.arange(rows.seq.size) - starts[rows.process] + self._frontier.last[rows.process] + 1
        new = edges.seq > self._frontier.last[edges.process]
        keys = event_keys(rows.process, rows.seq)
        causes = np.searchsorted(keys, event_keys(edges.process[new], edges.seq[new]))
        none = np.full(rows.seq.size, -1, np.int64)
        blocked = blocked | (expected != rows.seq)
        return admissible(starts, rows.process, none, edges.effect[new], causes, blocked)

    def _without_sends(self, rows: _Rows, places: Ints, retire: int, answers: Answers) -> None:
        """Release deliveries without their sends. At the end of the trace these were never sent, which is
        part of the verdict; before it, their sends may still come."""
        messages = rows.table["message"].take(pa.array(places)).to_pylist()
        if retire < 0:
            different = len({*zip(rows.process[places].tolist(), messages, strict=True)})
            answers.totals["never_sent"] += different
            answers.totals["duplicated"] += places.size - different
            return
        told = (f"delivers {name!r}, whose send has not come: stamped without it" for name in messages)
        self._quarantine(answers, rows, zip(places.tolist(), told, strict=True))

    def _quarantine(self, answers: Answers, rows: _Rows, reasons: Iterable[tuple[int, str]]) -> None:
        """Quarantine the events at these indices, each with its reason."""
        events = ((f"{self.names[rows.process[at]]}#{rows.seq[at]}", why) for at, why in reasons)
        answers.quarantine((self.name, f"{event} {why}") for event, why in events)

    # Reports.

    def _tell(
        self,
        rows: _Rows,
        edges: _Edges,
        admitted: Ints,
        matched: tuple[_Flying, Ints, Ints],
        answers: Answers,
    ) -> None:
        flying, source, fills = matched
        fills = np.where(admitted, fills, -1)
        first = np.flatnonzero(fills >= 0)
        judged = first[flying.ordered[flying.slot_message[fills[first]]]]
        delivered = flying.slots(fills[judged], rows.seq[judged])
        answers.totals["deliveries_judged"] += len(delivered)
        self._count_astray(rows, flying, source, admitted & (fills < 0), answers)
        flying.slot_done[fills[first]] = True
        sent = np.ones(len(flying.names), bool)
        sent[len(self._flying.names) :] = admitted[rows.sends]
        left = np.bincount(flying.slot_message, ~flying.slot_done, minlength=sent.size)
        slots = np.bincount(flying.slot_message, minlength=sent.size)
        after = flying.only(sent & ((left > 0) | (slots == 0)))
        done = flying.names.filter(pa.array(sent & (left == 0) & (slots > 0)))
        if admitted.any():
            later = np.flatnonzero(~after.slot_done & after.ordered[after.slot_message])
            self._stamp(rows, edges, admitted, after, answers, (delivered, after.slots(later, NEVER), flying))
        answers.totals["messages"] += int(sent[len(self._flying.names) :].sum())
        self._flying = after
        self._finished = pa.concat_arrays([self._finished, done])[-self.rules.remember :]

    def _count_astray(
        self, rows: _Rows, flying: _Flying, source: Ints, others: Ints, answers: Answers
    ) -> None:
        """Count deliveries that are not the first at a destination. A finished message was delivered
        everywhere; its destinations are forgotten."""
        at, n = np.flatnonzero(others & (source >= 0)), len(self.names)
        slots, wanted = flying.slot_message * n + flying.slot_dest, source[at] * n + rows.process[at]
        addressed = int(np.isin(wanted, slots).sum())
        answers.totals["duplicated"] += addressed + int((others & (source == FORGOTTEN)).sum())
        answers.totals["misdelivered"] += at.size - addressed

    def _stamp(
        self,
        rows: _Rows,
        edges: _Edges,
        admitted: Ints,
        after: _Flying,
        answers: Answers,
        judged: tuple[Ints, Ints, _Flying],
    ) -> None:
        """Stamp the admitted events, and judge their order by the slots that they delivered, the slots not
        yet delivered, and the messages of these slots."""
        here = admitted[edges.effect]
        offsets = offsets_of(np.bincount(edges.effect[here], minlength=rows.seq.size)[admitted])
        at, number = rows.process[admitted], rows.seq[admitted]
        names = tuple(self.names)
        epoch = Epoch(len(names), at, number, offsets, edges.process[here], edges.seq[here], names)
        kept = self._kept(epoch, after)
        chosen = None
        if self.rules.relevant_only:
            relevant = rows.table["relevant"].to_numpy()[admitted]
            chosen = np.column_stack([at[relevant], number[relevant]])
        none = np.empty((0, 4), np.int64)
        view = EpochView(self.name, names, self.epochs, epoch, none[:, 0], kept, chosen, none, none, none)
        before = self._frontier
        stamped, self._frontier = stamp(epoch, before, *kept)
        STAMP.stamped(view, stamped, before, answers)
        found, self._marks = mark_epoch(epoch, view.relevant, self._marks, *kept, stamped.arranged)
        order = np.argsort(found[0], kind="stable")
        effects, causes, seqs = (each[order] for each in found)
        tell_edges(view, effects, causes, seqs, answers)
        delivered, later, flying = judged
        self._overtaking.step(stamped, before, delivered, later, flying.named(), answers)
        self.events += epoch.events
        self.epochs += 1

    def _kept(self, epoch: Epoch, flying: _Flying) -> tuple[Ints, Ints]:
        """The events that later events may follow, besides each process's last one."""
        last = self._frontier.last.copy()
        np.maximum.at(last, epoch.process, epoch.seq)
        process = np.concatenate([self._frontier.process, epoch.process])
        seq = np.concatenate([self._frontier.seq, epoch.seq])
        recent = seq > last[process] - min(self.rules.recent, MOST_KEPT // epoch.processes**2)
        sender, sent = flying.sender[flying.ordered], flying.seq[flying.ordered]
        return np.concatenate([sender, process[recent]]), np.concatenate([sent, seq[recent]])

    def _retire(self, batch: int, retire: int, answers: Answers) -> None:
        """Count messages as lost after they were in flight for `retire` batches."""
        flying = self._flying
        stays = batch - flying.since <= retire
        if stays.all():
            return
        lost = np.flatnonzero(~flying.slot_done & ~stays[flying.slot_message])
        self._overtaking.retire(map(tuple, flying.slots(lost, NEVER)[:, :3].tolist()), answers)
        answers.totals["lost"] += lost.size
        self._flying = flying.only(stays)
