"""A computation as it happens: its events come in batches, in any order, some twice, and are stamped once.

A batch is an epoch, and the frontier is what is kept between batches (see epochs). An event is *held* until
every event before it on its process, the send of the message it delivers and its recorded causes are there;
so the admitted events always form a consistent cut, and their timestamps are those of the whole computation.

Promises   after `finish`, every event has been told once, with the same timestamp, immediate predecessors and
           early deliveries that a look at the whole computation gives, whatever the batches were; and the
           totals are those that the judgement of the whole rests on.
Bound      state: a vector for each process and each message in flight, what is held, the names of the last
           `remember` messages that have arrived everywhere. By these rules it stays bounded, at this price:
  retire   an event that was held through `retire` batches is let go: without the send or the causes that did
           not come, which are quarantined; if events before it on its process are missing, it is quarantined
           itself. A message that is in flight for `retire` batches counts as lost: a delivery after that
           follows nothing, and deliveries that overtook it are no longer told as early.
  remember a message that is delivered again after so many others were finished is taken for one whose send
           has not come. One delivered where it was not addressed, after it was delivered everywhere it was,
           is taken for a repetition.
  recent   a recorded cause must be among the last so many events of its process when its effect arrives (of
           fewer where there are many processes, MOST_KEPT); an older one is quarantined, and its effect is
           stamped without it.

Receives count as deliveries only if the caller says so: nobody can know whether a delivery is still to come.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace.schema import KINDS, QUARANTINE, SCHEMA
from .computation import DELIVER, RECEIVE, SEND, UNORDERED
from .epochs import Epoch, Frontier, Stamped, event_keys, stamp
from .in_flight import Flying, names_of, undelivered
from .linearization import Ints, linearize
from .marks import mark_epoch, no_marks
from .names import flatten
from .overtaking import Overtaking, lost_causes_table
from .questions import Answers, EpochView
from .questions.predecessors import tell_edges
from .questions.stamp import QUESTION as STAMP

NOTHING, FORGOTTEN, UNKNOWN = -1, -2, -3
"""Of an event, instead of the message it delivers: none; one that is finished; one not sent yet."""

MOST_KEPT = 4_000_000
"""Entries of the vectors that are kept for recorded causes."""

COLUMNS = ("process", "seq", "kind", "message", "to", "relevant", "causes")
TEXT = pa.string()


RECEIVED_ONLY = (
    "has receives and no deliveries, and what was told of it takes no receive for a delivery; stream it with "
    "--receives (receives=True)"
)


@dataclass(frozen=True)
class Rules:
    """What is kept, and for how long.

    retire         batches that an event may be held, and a message in flight
    remember       names of finished messages
    recent         events of each process that recorded causes may name
    receives       whether receives stand for deliveries
    relevant_only  whether predecessors are told among marked events, and not among all
    """

    retire: int = 100
    remember: int = 100_000
    recent: int = 64
    receives: bool = False
    relevant_only: bool = False


class _Rows(NamedTuple):
    """Candidates of a batch by process, then seq; `since` is the batch in which each came."""

    table: pa.Table
    process: Ints
    seq: Ints
    kind: Ints
    since: Ints


class _Edges(NamedTuple):
    """Into each effect, by its place among the rows, a cause (process, seq)."""

    effect: Ints
    process: Ints
    seq: Ints

    def and_these(self, more: "_Edges") -> "_Edges":
        return _Edges(*map(np.concatenate, zip(self, more, strict=True))) if more.effect.size else self


@dataclass
class LiveComputation:
    name: str
    rules: Rules = field(default_factory=Rules)
    names: list[str] = field(default_factory=list)
    epochs: int = 0
    events: int = 0
    listed: int = 0  # of `names`, how many the caller has written down

    def __post_init__(self) -> None:
        self._number: dict[str, int] = {}
        self._frontier = Frontier.beginning(0)
        self._marks = no_marks(0)
        self._flying = Flying.none()
        self._finished = pa.array([], TEXT)
        self._held = SCHEMA.empty_table().select(COLUMNS)
        self._held_since = np.empty(0, np.int64)
        self._overtaking = Overtaking()
        self._arrivals: set[str] = set()  # kinds of arrivals that were there

    @classmethod
    def of(cls, name: str, rules: Rules, names: Iterable[str]) -> "LiveComputation":
        """One in which these processes are known, in this order."""
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
        """End the computation: report what is left, without the events that never arrived."""
        answers = self._advance(self._held.slice(0, 0), batch, -1)
        self._lose(self._overtaking.end(), answers)
        if self._arrivals == {"receive"} and not self.rules.receives:
            self._quarantine(answers, RECEIVED_ONLY)
        return answers

    def _advance(self, arrived: pa.Table, batch: int, retire: int) -> Answers:
        answers = Answers()
        self._arrivals.update({*pc.unique(arrived["kind"]).to_pylist()} & {"receive", "deliver"})
        rows = self._candidates(arrived, batch, answers)
        old = batch - rows.since > retire
        flying = self._with_sends(rows, batch)
        source, is_first = self._matched(rows, flying)
        edges, reasons = self._edges(rows, flying, source)
        blocked = (source == UNKNOWN) & ~old
        blocked[[place for place, missing, _ in reasons if missing and not old[place]]] = True
        awaited = edges.and_these(_sends(flying, source, ordered=False))
        admitted = self._admitted(rows, awaited, blocked)
        for place, _, reason in reasons:
            if admitted[place]:
                self._quarantine(answers, reason)
        self._without_sends(rows, np.flatnonzero(admitted & (source == UNKNOWN)), retire, answers)
        self._hold(rows, admitted, old, answers)
        self._tell(rows, edges, admitted, (flying, source, is_first), answers)
        self._retire(batch, retire, answers)
        return answers

    # What arrives.

    def _candidates(self, arrived: pa.Table, batch: int, answers: Answers) -> _Rows:
        """The held and the new events, without those reported before; duplicates are dropped."""
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
            self._frontier = _widened(self._frontier, more, self._frontier.vectors.shape[1])
            self._marks = _widened(self._marks, more, self._marks.vectors.shape[1] - 1)

    def _codes(self, column: pa.Array | pa.ChunkedArray) -> Ints:
        """Numbers of processes, -1 for null."""
        codes = pc.index_in(column, value_set=pa.array(self.names, TEXT))
        found: Ints = pc.fill_null(codes, -1).to_numpy().astype(np.int64)
        return found

    def _with_sends(self, rows: _Rows, batch: int) -> Flying:
        """The messages in flight after admitting these sends."""
        at = _at_sends(rows)
        sends = rows.table.select(["message", "to"]).take(pa.array(at))
        names = sends["message"].combine_chunks()
        known = pc.is_in(names, value_set=pa.concat_arrays([self._flying.names, self._finished]))
        if pc.any(known).as_py() or len(pc.unique(names)) < len(names):
            raise TraceFormatError(f"{_twice(names, known)}: a message has one send; rename the other")
        members, of = flatten(sends["to"])
        n, before, old = len(self.names) + 1, len(self._flying.names), self._flying
        pairs = np.unique(of * n + self._codes(members) + 1)
        pairs = pairs[pairs % n > 0]  # a null is no destination
        return Flying(
            pa.concat_arrays([old.names, names]),
            np.concatenate([old.sender, rows.process[at]]),
            np.concatenate([old.seq, rows.seq[at]]),
            np.concatenate([old.since, np.full(at.size, batch)]),
            np.concatenate([old.ordered, rows.kind[at] == SEND]),
            np.concatenate([old.slot_message, before + pairs // n]),
            np.concatenate([old.slot_dest, pairs % n - 1]),
            np.concatenate([old.slot_done, np.zeros(pairs.size, bool)]),
        )

    def _matched(self, rows: _Rows, flying: Flying) -> tuple[Ints, Ints]:
        """Of each row the message that it delivers and follows, or NOTHING, FORGOTTEN or UNKNOWN; and the
        slot of which it is the first delivery, or -1."""
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
        slot = order[np.minimum(np.searchsorted(slots[order], wanted), slots.size - 1)]
        addressed = slots[slot] == wanted
        first = np.zeros(at.size, bool)
        first[np.unique(wanted, return_index=True)[1]] = True  # rows are by process and seq
        first &= addressed & ~flying.slot_done[slot]
        fills[at[first]] = slot[first]
        return source, fills

    def _edges(self, rows: _Rows, flying: Flying, source: Ints) -> tuple[_Edges, list[tuple[int, bool, str]]]:
        """The edges whose causes are there, and (place of the effect, whether to wait for it, reason) of the
        others."""
        reasons: list[tuple[int, bool, str]] = []
        parts = [_sends(flying, source, ordered=True)]
        causes, effect = flatten(rows.table["causes"])
        if len(causes):
            process = self._codes(pc.struct_field(causes, "process"))
            seq = pc.fill_null(pc.struct_field(causes, "seq"), 0).to_numpy().astype(np.int64)
            here = self._present(rows, process, seq)
            past = (process >= 0) & (seq > 0) & (seq <= self._frontier.last[process])
            past &= self._frontier.rows(np.maximum(process, 0), seq) >= 0
            parts.append(_Edges(*(each[here | past] for each in (effect, process, seq))))
            own = process == rows.process[effect]  # implied, if it is before; else nothing can meet it
            for k in np.flatnonzero(~here & ~past & ~(own & (seq < rows.seq[effect]) & (seq > 0))).tolist():
                cause = pc.struct_field(causes, "process")[k].as_py()
                forgotten = process[k] >= 0 and 0 < seq[k] <= self._frontier.last[process[k]]
                why = "which is forgotten" if forgotten else "which is not in the trace"
                told = f"names the cause {cause}#{seq[k]}, {why}"
                reasons.append((int(effect[k]), not forgotten, f"{self._event(rows, effect[k])} {told}"))
        joined = _Edges(*(np.concatenate(each).astype(np.int64) for each in zip(*parts, strict=True)))
        order = np.argsort(joined.effect, kind="stable")
        return _Edges(*(each[order] for each in joined)), reasons

    def _present(self, rows: _Rows, process: Ints, seq: Ints) -> Ints:
        """Whether each of these events is among the rows."""
        keys, wanted = event_keys(rows.process, rows.seq), event_keys(np.maximum(process, 0), seq)
        at = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        found: Ints = (keys[at] == wanted) & (process >= 0)
        return found

    # What waits.

    def _admitted(self, rows: _Rows, edges: _Edges, blocked: Ints) -> Ints:
        """Which rows have all that they wait for among those told and those admitted: their causes, and the
        sends of unordered messages. These cause nothing, and only they say so."""
        starts = np.searchsorted(rows.process, np.arange(len(self.names) + 1))
        expected = np.arange(rows.seq.size) - starts[rows.process] + self._frontier.last[rows.process] + 1
        waits = np.flatnonzero(blocked | (expected != rows.seq))
        new = edges.seq > self._frontier.last[edges.process]
        keys = event_keys(rows.process, rows.seq)
        causes = np.searchsorted(keys, event_keys(edges.process[new], edges.seq[new]))
        # What must not be admitted waits for itself.
        effects = np.concatenate([edges.effect[new], waits])
        causes = np.concatenate([causes, waits])
        order = np.argsort(effects, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(effects, minlength=rows.seq.size))])
        _, position = linearize(
            np.array([0, len(self.names)]), starts.astype(np.int64), rows.process,
            np.full(rows.seq.size, -1, np.int64), offsets.astype(np.int64), causes[order].astype(np.int64),
        )  # fmt: skip
        admitted: Ints = position >= 0
        return admitted

    def _hold(self, rows: _Rows, admitted: Ints, old: Ints, answers: Answers) -> None:
        held = ~admitted & ~old
        self._held, self._held_since = rows.table.filter(pa.array(held)), rows.since[held]
        for place in np.flatnonzero(~admitted & old).tolist():
            why = "was held too long: events before it are missing, or wait for it"
            self._quarantine(answers, f"{self._event(rows, place)} {why}")

    def _without_sends(self, rows: _Rows, places: Ints, retire: int, answers: Answers) -> None:
        """Deliveries that were let go without their sends: at the end of the trace there are none, which is
        part of the verdict; before it they may be on their way."""
        if retire < 0:
            messages = rows.table["message"].take(pa.array(places)).to_pylist()
            different = len({*zip(rows.process[places].tolist(), messages, strict=True)})
            answers.totals["never_sent"] += different
            answers.totals["duplicated"] += places.size - different
            return
        for place in places.tolist():
            message = rows.table["message"][place].as_py()
            told = f"delivers {message!r}, whose send has not come: stamped without it"
            self._quarantine(answers, f"{self._event(rows, place)} {told}")

    def _event(self, rows: _Rows, place: int) -> str:
        return f"{self.names[rows.process[place]]}#{rows.seq[place]}"

    def _quarantine(self, answers: Answers, reason: str) -> None:
        row = {"computation": self.name, "reason": reason}
        answers.add("quarantine", pa.Table.from_pylist([row], schema=QUARANTINE))
        answers.totals["quarantined"] += 1

    # What is told.

    def _tell(
        self, rows: _Rows, edges: _Edges, admitted: Ints, matched: tuple[Flying, Ints, Ints], answers: Answers
    ) -> None:
        flying, source, fills = matched
        fills = np.where(admitted, fills, -1)
        first = np.flatnonzero(fills >= 0)
        delivered = _delivered(flying, rows, first[flying.ordered[flying.slot_message[fills[first]]]], fills)
        answers.totals["deliveries_judged"] += len(delivered)
        self._count_astray(rows, flying, source, admitted & (fills < 0), answers)
        flying.slot_done[fills[fills >= 0]] = True
        sent = np.ones(len(flying.names), bool)
        sent[len(self._flying.names) :] = admitted[_at_sends(rows)]
        left = np.bincount(flying.slot_message, ~flying.slot_done, minlength=sent.size)
        slots = np.bincount(flying.slot_message, minlength=sent.size)
        after = flying.only(sent & ((left > 0) | (slots == 0)))
        done = flying.names.filter(pa.array(sent & (left == 0) & (slots > 0)))
        if admitted.any():
            view, stamped, before = self._stamp(rows, edges, admitted, after, answers)
            found = self._overtaking.step(stamped, before, delivered, undelivered(after), names_of(flying))
            self._overtaking.forget_told()
            answers.add("violations", found.table(self.name, self.names))
            for order, count in found.counts().items():
                answers.totals[f"{order}_violations"] += count
            self.events += view.epoch.events
            self.epochs += 1
        answers.totals["messages"] += int(sent[len(self._flying.names) :].sum())
        self._flying = after
        self._finished = pa.concat_arrays([self._finished, done])[-self.rules.remember :]

    def _count_astray(
        self, rows: _Rows, flying: Flying, source: Ints, others: Ints, answers: Answers
    ) -> None:
        """Deliveries that are not the first where they were addressed. What is finished was delivered
        everywhere, and to whom is forgotten."""
        at = np.flatnonzero(others & (source >= 0))
        forgotten = int((others & (source == FORGOTTEN)).sum())
        if not at.size + forgotten:
            return
        n = len(self.names)
        slots, wanted = flying.slot_message * n + flying.slot_dest, source[at] * n + rows.process[at]
        addressed = int(np.isin(wanted, slots).sum())
        answers.totals["duplicated"] += addressed + forgotten
        answers.totals["misdelivered"] += at.size - addressed

    def _stamp(
        self, rows: _Rows, edges: _Edges, admitted: Ints, flying: Flying, answers: Answers
    ) -> tuple[EpochView, Stamped, Frontier]:
        """Stamp what was admitted; returns the frontier that entered."""
        here = admitted[edges.effect]
        count = np.bincount(edges.effect[here], minlength=rows.seq.size)[admitted]
        offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        at, number = rows.process[admitted], rows.seq[admitted]
        names = tuple(self.names)
        epoch = Epoch(len(names), at, number, offsets, edges.process[here], edges.seq[here], names)
        kept = self._kept(epoch, flying)
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
        effects, process, seq = (each[order] for each in found)
        tell_edges(view, effects, process, seq, answers)
        return view, stamped, before

    def _kept(self, epoch: Epoch, flying: Flying) -> tuple[Ints, Ints]:
        """The events, besides each process's last one, that later ones may follow."""
        last = self._frontier.last.copy()
        np.maximum.at(last, epoch.process, epoch.seq)
        process = np.concatenate([self._frontier.process, epoch.process])
        seq = np.concatenate([self._frontier.seq, epoch.seq])
        recent = seq > last[process] - min(self.rules.recent, MOST_KEPT // epoch.processes**2)
        sender, sent = flying.sender[flying.ordered], flying.seq[flying.ordered]
        return np.concatenate([sender, process[recent]]), np.concatenate([sent, seq[recent]])

    def _retire(self, batch: int, retire: int, answers: Answers) -> None:
        """Count messages as lost that were in flight for `retire` batches."""
        flying = self._flying
        stays = batch - flying.since <= retire
        if stays.all():
            return
        lost = ~flying.slot_done & ~stays[flying.slot_message]
        of = flying.slot_message[lost]
        slots = zip(
            flying.sender[of].tolist(), flying.seq[of].tolist(), flying.slot_dest[lost].tolist(), strict=True
        )
        self._lose(self._overtaking.retire(slots), answers)
        answers.totals["lost"] += int(lost.sum())
        self._flying = flying.only(stays)

    def _lose(self, rows: list[dict[str, Any]], answers: Answers) -> None:
        """Report lost causes."""
        answers.add("lost_causes", lost_causes_table(rows, self.name, self.names))
        for order, name in (("causal", "lost_causes"), ("fifo", "fifo_lost_causes")):
            answers.totals[name] += sum(row["order_name"] == order for row in rows)


def _at_sends(rows: _Rows) -> Ints:
    """The places of sends."""
    named = pc.is_valid(rows.table["message"]).to_numpy()
    return np.flatnonzero(np.isin(rows.kind, (SEND, UNORDERED)) & named)


def _sends(flying: Flying, source: Ints, *, ordered: bool) -> _Edges:
    """Into the deliveries of messages that were sent ordered, or the others, from their sends."""
    delivers = np.flatnonzero(source >= 0)
    delivers = delivers[flying.ordered[source[delivers]] == ordered]
    return _Edges(delivers, flying.sender[source[delivers]], flying.seq[source[delivers]])


def _widened(frontier: Frontier, more: int, at: int) -> Frontier:
    """The vectors with zero columns inserted at `at`, for new processes."""
    rows = frontier.vectors.shape[0]
    columns = [frontier.vectors[:, :at], np.zeros((rows, more), frontier.vectors.dtype)]
    vectors = np.concatenate([*columns, frontier.vectors[:, at:]], axis=1)
    last = np.concatenate([frontier.last, np.zeros(more, np.int64)])
    return Frontier(last, frontier.process, frontier.seq, vectors)


def _delivered(flying: Flying, rows: _Rows, at: Ints, fills: Ints) -> Ints:
    """(sender, seq, destination, seq of delivery) of the first deliveries at these rows."""
    message = flying.slot_message[fills[at]]
    columns = [flying.sender[message], flying.seq[message], rows.process[at], rows.seq[at]]
    return np.column_stack(columns).astype(np.int64)


def _twice(names: pa.Array, known: pa.Array) -> str:
    counts = pc.value_counts(names).to_pylist()
    again = [each["values"] for each in counts if each["counts"] > 1] or names.filter(known).to_pylist()
    return f"{again[0]!r} is sent twice"
