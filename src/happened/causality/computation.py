"""A computation as dense integer arrays: the input of the kernels, and the way back to names.

In    a table that `trace.read` returned, or that passes `trace.validate`
Out   one Computation per computation of the table, or unions of many, the events of each in a topological
      order of happened-before.
Cost  linear in events and destinations, except for sorting the names

Happened-before is process order, the edge from a send to the first delivery of its message at each process,
and the recorded `causes`; messages sent `unordered` have no edge. A `receive` is an internal event, unless
its computation records no deliveries at all: then receives count as deliveries.

A table may be a window of a longer trace (gaps="renumber"): the events of a process are renumbered in the
order of their seqs, and `recorded_seq` keeps the trace's seqs. Nothing is concluded from what the window
lacks: a cause outside it is left out and counted, and a delivery whose send is outside it is SENT_OUTSIDE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import CausalityError, TraceFormatError
from ..trace.schema import KINDS
from .linearization import (
    FIRST,
    FIRST_UNORDERED,
    MISDELIVERED,
    NEVER_SENT,
    REPEATED,
    SENT_OUTSIDE,
    Ints,
    cycle,
    find,
    first_deliveries,
    linearize,
    members,
    offsets_of,
)
from .names import codes_of, encode_names, flatten

SEND, RECEIVE, DELIVER, INTERNAL, UNORDERED = range(len(KINDS))

REFUSE, RENUMBER = "refuse", "renumber"
GAPS = (REFUSE, RENUMBER)
"""If the seqs of a process are not 1, 2, …: refuse its computation, or renumber the process's events."""

MOST_EVENTS = np.iinfo(np.int32).max  # Events of one process: seqs and vector entries are 32 bits wide


class Event(NamedTuple):
    """An event by the names that people use."""

    computation: str
    process: str
    seq: int
    kind: str
    message: str | None

    def __str__(self) -> str:
        about = f" {self.message}" if self.message is not None else ""
        return f"{self.id} {self.kind}{about}"

    @property
    def id(self) -> str:
        return f"{self.process}#{self.seq}"


class Aside(NamedTuple):
    """The slots of messages that were sent unordered; judgements of orders ignore them."""

    message: Ints  # increasing
    dest: Ints
    delivery: Ints  # the first delivery at the destination, -1 if the message is lost


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """Events numbered 0, 1, … in topological order; messages, processes and slots have dense indices too.

    A slot is one destination of one message: message m has the slots dest_offsets[m]:dest_offsets[m+1], in
    increasing order of destination. Index -1 means none. The slots of unordered messages are in `aside`.

    A union of computations is a Computation too; happened-before never crosses its parts. Its vectors are as
    wide as the part with the most processes: entry k is about the k-th process of the event's own part.
    """

    computation_names: tuple[str, ...]
    owner: Ints  # the computation of each process
    first: Ints  # for each process, the first process of its computation
    width: int
    process_names: tuple[str, ...]
    process: Ints  # the process of each event
    seq: Ints  # the event's position on its process, from 1
    recorded_seq: Ints  # the seq in the trace: the same array, unless events were renumbered
    kind: Ints
    message: Ints
    row: Ints  # the event's row in the encoded table
    relevant: Ints  # whether the application marked the event as relevant
    fate: Ints  # FIRST, REPEATED, … for deliveries
    source: Ints  # the send of the message that the event delivers, if that makes an edge
    cause_offsets: Ints
    causes: Ints
    chain_offsets: Ints  # for each process, its start in `chain`
    chain: Ints  # the event (p, seq) is chain[chain_offsets[p] + seq - 1]
    send: Ints  # the send of each message
    dest_offsets: Ints
    slot_dest: Ints
    slot_message: Ints
    slot_send: Ints
    slot_delivery: Ints  # the first delivery at the destination, -1 if the message is lost
    aside: Aside
    message_codes: Ints  # each message's index into the names that all computations of a table share
    names: pa.Array
    is_window: bool = False  # whether the trace may have more events than these
    causes_outside: int = 0  # recorded causes outside the window

    @property
    def name(self) -> str:
        """The name of the only computation. ValueError if this is a union of several."""
        (name,) = self.computation_names
        return name

    @property
    def events(self) -> int:
        return len(self.process)

    @property
    def processes(self) -> int:
        return len(self.process_names)

    def message_name(self, message: int) -> str:
        return str(self.names[int(self.message_codes[message])].as_py())

    def messages_of(self, slots: Ints) -> pa.Array:
        """The names of the messages that these slots belong to."""
        return self.names.take(pa.array(self.message_codes[self.slot_message[slots]]))

    def slots_of(self, messages: Ints, processes: Ints) -> Ints:
        """The slot of each (message, process), -1 if the message was not addressed to it or either is -1."""
        keys = self.slot_message.astype(np.int64) * self.processes + self.slot_dest
        wanted = messages.astype(np.int64) * self.processes + processes
        return np.where((messages >= 0) & (processes >= 0), find(keys, wanted), -1)

    def processes_named(self, events: Ints, names: pa.Array) -> Ints:
        """The process with each name in the computation of the corresponding event; -1 for none."""
        own = pa.array(self.process_names, pa.string())
        known = pc.unique(own)
        ids = self.owner * len(known) + pc.index_in(own, value_set=known).to_numpy()
        order = np.argsort(ids)
        code = pc.index_in(names, value_set=known).fill_null(-1).to_numpy(zero_copy_only=False)
        at = find(ids[order], self.owner[self.process[events]] * len(known) + code)
        return np.where((code >= 0) & (at >= 0), order[at], -1)

    def event(self, e: int) -> Event:
        m, p = int(self.message[e]), int(self.process[e])
        return Event(
            self.computation_names[self.owner[p]],
            self.process_names[p],
            int(self.recorded_seq[e]),
            KINDS[self.kind[e]],
            self.message_name(m) if m >= 0 else None,
        )

    def names_of(self, process: Ints) -> list[pa.Array]:
        """The names of these processes' computations, and of the processes."""
        computations = pa.array(self.computation_names, pa.string())
        processes = pa.array(self.process_names, pa.string())
        return [computations.take(pa.array(self.owner[process])), processes.take(pa.array(process))]

    def event_columns(self, events: Ints) -> list[pa.Array]:
        """The computation, process, seq and id of these events, with the trace's seqs."""
        names = self.names_of(self.process[events])
        seq = pa.array(self.recorded_seq[events].astype(np.int64))
        return [*names, seq, event_ids(names[1], seq)]

    def recorded_vectors(self, vectors: Ints, events: Ints) -> Ints:
        """The rows of `vectors` for these events, with the trace's seqs as entries: entry k is the seq of the
        last event of the k-th process in the event's past, 0 if there is none."""
        rows = vectors[events]
        if self.recorded_seq is self.seq:
            return rows
        recorded = np.zeros(rows.shape, np.int64)
        row, column = np.nonzero(rows)
        at = self.chain_offsets[self.first[self.process[events[row]]] + column] + rows[row, column] - 1
        recorded[row, column] = self.recorded_seq[self.chain[at]]
        return recorded

    def index(self, process: str, seq: int) -> int:
        """The number of the event with this name; LookupError if there is none. Not for unions."""
        if process in self.process_names:
            p = self.process_names.index(process)
            chain = self.chain[self.chain_offsets[p] : self.chain_offsets[p + 1]]
            if (at := find(self.recorded_seq[chain], np.array([seq]))[0]) >= 0:
                return int(chain[at])
        raise LookupError(f"no event {process}#{seq} in computation {self.name!r}")


def check_gaps(gaps: str) -> None:
    if gaps not in GAPS:
        raise CausalityError(f"gaps can be {', '.join(GAPS)}; not {gaps!r}")


def event_ids(process: pa.Array, seq: pa.Array) -> pa.Array:
    """Events as `process#seq`, which is unique within a computation; null where there is no event."""
    return pc.binary_join_element_wise(process, seq.cast(pa.string()), "#")


def too_long(process: str, events: int) -> TraceFormatError:
    """The error for a process with more than MOST_EVENTS events."""
    return TraceFormatError(
        f"process {process!r} has {events:,} events, and vectors count {MOST_EVENTS:,} of one process at "
        "most; divide the trace into several computations",
        field="seq",
    )


Trace: TypeAlias = pa.Table | Sequence[Computation]
"""A table of events, or the computations that `encode` made of it: encode once to ask several questions."""


def encode(trace: Trace, gaps: str = REFUSE) -> Sequence[Computation]:
    """One Computation per computation of a table, sorted by name; an already encoded trace is returned as is.

    TraceFormatError if happened-before has a cycle.
    """
    if not isinstance(trace, pa.Table):
        return trace
    if not trace.num_rows:
        return []
    columns = _Columns(trace, gaps)
    return _split(trace, columns, np.arange(len(columns.computation_names) + 1))


def unite(table: pa.Table, cells: int = 16_000_000, *, gaps: str = REFUSE) -> list[Computation]:
    """Encode a table into few unions, each with at most `cells` vector entries if possible, so that many
    small computations cost no more than one of their total size."""
    if not table.num_rows:
        return []
    columns = _Columns(table, gaps)
    p_at, _, e_at = columns.starts()
    sizes = list(zip(np.diff(p_at).tolist(), np.diff(e_at).tolist(), strict=True))
    starts, width, count = [0], 0, 0
    for i, (processes, events) in enumerate(sizes):
        width, count = max(width, processes), count + events
        if width * count > cells and i > starts[-1]:
            starts.append(i)
            width, count = processes, events
    return _split(table, columns, np.array([*starts, len(sizes)]))


class _Columns:
    """The whole table as integers; each computation's processes, messages and events are contiguous.

    Events are in chain order: by process, then seq.
    """

    def __init__(self, table: pa.Table, gaps: str) -> None:
        self.is_window = gaps == RENUMBER
        to, addressed = flatten(table["to"])
        causes, caused = flatten(table["causes"])
        (computation,), self.computation_names = codes_of(table["computation"])
        (of_row, of_to, of_cause), self.process_names = codes_of(
            table["process"], to, pc.struct_field(causes, "process")
        )
        owner = np.concatenate([computation, computation[addressed], computation[caused]])
        keys = owner * len(self.process_names) + np.concatenate([of_row, of_to, of_cause])
        self.process_keys, dense = _dense(keys, len(self.computation_names) * len(self.process_names))
        process, dest, cause_process = np.split(dense, [of_row.size, of_row.size + of_to.size])

        counts = np.bincount(process, minlength=self.process_keys.size)
        self.chain_offsets = offsets_of(counts)
        if counts.max(initial=0) > MOST_EVENTS:
            longest = int(np.argmax(counts))
            name = self.process_names[self.process_keys[longest] % len(self.process_names)]
            raise too_long(name, int(counts[longest]))
        seq = table["seq"].to_numpy()
        if self.is_window:
            self.row = np.lexsort((seq, process))
            chain_of_row = np.empty(table.num_rows, np.int64)
            chain_of_row[self.row] = np.arange(table.num_rows)
        else:
            chain_of_row = self.chain_offsets[process] + seq - 1
            self.row = np.empty(table.num_rows, np.int64)
            self.row[chain_of_row] = np.arange(table.num_rows)
        self.process = process[self.row]
        self.recorded_seq = self.seq = seq[self.row]
        if self.is_window:
            place = np.arange(table.num_rows) - self.chain_offsets[self.process] + 1
            self.seq = self.seq if np.array_equal(place, self.seq) else place
        self.computation = computation[self.row]
        self.relevant = table["relevant"].to_numpy()[self.row]
        self.kind = pc.index_in(table["kind"], value_set=pa.array(KINDS)).to_numpy().astype(np.int8)[self.row]

        messages, self.names = encode_names(table["message"])
        per_computation = len(self.names) + 1
        # Key 0 means "no message"; real keys start at 1 here and are stored without that shift.
        keys = np.where(messages >= 0, computation * per_computation + messages + 1, 0)[self.row]
        distinct, dense = _dense(keys, len(self.computation_names) * per_computation + 1)
        nameless = int(distinct[0] == 0)
        self.message_keys, self.message = distinct[nameless:] - 1, dense - nameless
        self._addresses(chain_of_row[addressed], dest)
        self._deliveries()
        self._causes(table, chain_of_row[caused], cause_process, causes)

    def starts(self) -> tuple[Ints, Ints, Ints]:
        """The first process, message and event of each computation."""
        every = np.arange(len(self.computation_names) + 1)
        processes = np.searchsorted(self.process_keys // len(self.process_names), every)
        messages = np.searchsorted(self.message_keys // (len(self.names) + 1), every)
        return processes, messages, self.chain_offsets[processes]

    def _addresses(self, sends: Ints, to: Ints) -> None:
        self.send = np.full(self.message_keys.size, -1, np.int64)
        is_send = np.flatnonzero(np.isin(self.kind, (SEND, UNORDERED)))
        self.send[self.message[is_send]] = is_send
        sent = np.isin(self.kind[sends], (SEND, UNORDERED))
        slots = np.sort(self.message[sends[sent]] * self.process_keys.size + to[sent])
        slots = slots[np.diff(slots, prepend=-1) > 0]
        self.slot_message, self.slot_dest = np.divmod(slots, self.process_keys.size)
        self.dest_offsets = offsets_of(np.bincount(self.slot_message, minlength=self.send.size))

    def _deliveries(self) -> None:
        records_deliveries = np.zeros(len(self.computation_names), bool)
        records_deliveries[self.computation[self.kind == DELIVER]] = True
        hands_over = np.where(records_deliveries[self.computation], DELIVER, RECEIVE) == self.kind
        self.fate = np.zeros(self.kind.size, np.int8)
        self.slot_delivery = np.full(self.slot_dest.size, -1, np.int64)
        deliveries = np.flatnonzero(hands_over)
        first_deliveries(
            deliveries, self.process, self.message, self.send, self.dest_offsets, self.slot_dest,
            self.slot_delivery, self.fate,
        )  # fmt: skip
        # Deliveries without a slot are rare: sorting them is cheaper than making slots for them.
        strays = deliveries[np.isin(self.fate[deliveries], (MISDELIVERED, NEVER_SENT))]
        _, first = np.unique(
            self.message[strays] * self.process_keys.size + self.process[strays], return_index=True
        )
        self.fate[np.delete(strays, first)] = REPEATED
        if self.is_window:
            self.fate[self.fate == NEVER_SENT] = SENT_OUTSIDE
        self.source = np.full(self.kind.size, -1, np.int64)
        carries_edge = np.isin(self.fate, (FIRST, MISDELIVERED))
        self.source[carries_edge] = self.send[self.message[carries_edge]]
        # The slots of unordered messages are kept apart, so that no order is judged by them.
        unordered = self.kind[self.send] == UNORDERED if self.kind.size else np.zeros(0, bool)
        unordered &= self.send >= 0
        slots = unordered[self.slot_message]
        self.aside = Aside(self.slot_message[slots], self.slot_dest[slots], self.slot_delivery[slots])
        if not unordered.any():
            return
        self.slot_message, self.slot_dest = self.slot_message[~slots], self.slot_dest[~slots]
        self.slot_delivery = self.slot_delivery[~slots]
        self.dest_offsets = offsets_of(np.bincount(self.slot_message, minlength=self.send.size))
        theirs = unordered[self.message] & (self.message >= 0)
        self.source[theirs] = -1
        self.fate[theirs & (self.fate == FIRST)] = FIRST_UNORDERED

    def _causes(self, table: pa.Table, effects: Ints, process: Ints, causes: pa.Array) -> None:
        seq = pc.struct_field(causes, "seq").to_numpy(zero_copy_only=False)
        if self.is_window:
            cause = self._inside(process, seq)
            absent = cause < 0
        else:
            cause = self.chain_offsets[process] + seq - 1
            absent = (seq < 1) | (seq > np.diff(self.chain_offsets)[process])
        self.causes_outside = np.zeros(len(self.computation_names), np.int64)
        if absent.any() and self.is_window:
            np.add.at(self.causes_outside, self.computation[effects[absent]], 1)
            effects, cause = effects[~absent], cause[~absent]
        elif absent.any():
            at = int(np.argmax(absent))
            effect = table.slice(int(self.row[effects[at]]), 1).to_pylist()[0]
            named = causes[at].as_py()
            raise TraceFormatError(
                f"{effect['process']}#{effect['seq']} names the cause {named['process']}#{named['seq']}, "
                "which is not in the trace; add that event or drop the cause",
                field="causes",
            )
        order = np.argsort(effects, kind="stable")
        self.causes = cause[order]
        self.cause_offsets = offsets_of(np.bincount(effects, minlength=self.kind.size))

    def _inside(self, process: Ints, seq: Ints) -> Ints:
        """The events with these seqs of the trace, -1 if the window does not have them."""
        known = np.unique(self.recorded_seq)
        place = find(known, seq)
        keys = self.process * known.size + np.searchsorted(known, self.recorded_seq)
        return np.where(place >= 0, find(keys, process * known.size + place), -1)


def _split(table: pa.Table, columns: _Columns, groups: Ints) -> list[Computation]:
    """Linearize each computation, and give each computation, or group of them, its own dense indices."""
    c = columns
    p_at, m_at, e_at = c.starts()
    order, position = linearize(p_at, c.chain_offsets, c.process, c.source, c.cause_offsets, c.causes)
    if order.size < c.kind.size:
        stuck = cycle(position, c.chain_offsets, c.process, c.source, c.cause_offsets, c.causes)
        raise _cyclic(table.select(["process", "seq", "kind", "message"]).take(pa.array(c.row[stuck])))

    source = _renumber(c.source, position)[order]
    slot_delivery = _renumber(c.slot_delivery, position)
    aside = c.aside._replace(delivery=_renumber(c.aside.delivery, position))
    aside_at = np.searchsorted(c.aside.message, m_at)
    send = _renumber(c.send, position)
    lengths = np.diff(c.cause_offsets)[order]
    cause_offsets = offsets_of(lengths)
    causes = position[c.causes[members(c.cause_offsets[:-1][order], lengths)]]
    first = np.repeat(p_at[:-1], np.diff(p_at))
    owner = np.repeat(np.arange(len(p_at) - 1), np.diff(p_at))
    computations = []
    for a, b in pairwise(groups.tolist()):
        p, m, e = slice(p_at[a], p_at[b]), slice(m_at[a], m_at[b]), slice(e_at[a], e_at[b])
        at = order[e]
        d = slice(c.dest_offsets[m.start], c.dest_offsets[m.stop])
        k = slice(cause_offsets[e.start], cause_offsets[e.stop])
        u = slice(aside_at[a], aside_at[b])
        seq = c.seq[at].astype(np.int32)
        computations.append(
            Computation(
                computation_names=tuple(c.computation_names[a:b]),
                owner=owner[p] - a,
                first=first[p] - p.start,
                width=int(np.diff(p_at[a : b + 1]).max()),
                process_names=tuple(c.process_names[j] for j in c.process_keys[p] % len(c.process_names)),
                process=_shift(c.process[at], p.start),
                seq=seq,
                recorded_seq=seq if c.recorded_seq is c.seq else c.recorded_seq[at],
                kind=c.kind[at],
                message=_shift(c.message[at], m.start),
                row=c.row[at],
                relevant=c.relevant[at],
                fate=c.fate[at],
                source=_shift(source[e], e.start),
                cause_offsets=cause_offsets[e.start : e.stop + 1] - cause_offsets[e.start],
                causes=_shift(causes[k], e.start),
                chain_offsets=c.chain_offsets[p.start : p.stop + 1] - e.start,
                chain=_shift(position[e], e.start),
                send=_shift(send[m], e.start),
                dest_offsets=c.dest_offsets[m.start : m.stop + 1] - d.start,
                slot_dest=_shift(c.slot_dest[d], p.start),
                slot_message=_shift(c.slot_message[d], m.start),
                slot_send=_shift(send[c.slot_message[d]], e.start),
                slot_delivery=_shift(slot_delivery[d], e.start),
                aside=Aside(*map(_shift, (of[u] for of in aside), (m.start, p.start, e.start))),
                message_codes=c.message_keys[m] % (len(c.names) + 1),
                names=c.names,
                is_window=c.is_window,
                causes_outside=int(c.causes_outside[a:b].sum()),
            )
        )
    return computations


def _cyclic(rows: pa.Table) -> TraceFormatError:
    names = [f"{e['process']}#{e['seq']} {e['kind']} {e['message'] or ''}".rstrip() for e in rows.to_pylist()]
    return TraceFormatError(
        f"happened-before has a cycle: {' → '.join([*names, names[0]])}. No computation can do that: a "
        "delivery is recorded before its send, or a cause after its effect; correct the seq, message or "
        "causes of one of these events",
        field="message",
    )


def _shift(values: Ints, start: int) -> Ints:
    """Indices relative to `start`; -1 stays -1."""
    return np.where(values >= 0, values - start, -1).astype(np.int32)


def _renumber(events: Ints, position: Ints) -> Ints:
    """The position of each event; -1 stays -1."""
    return np.where(events >= 0, position[events], -1)


def _dense(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """The distinct keys in increasing order, and each key's index among them; 0 <= key < bound."""
    if bound > 8 * keys.size:
        return np.unique(keys, return_inverse=True)
    present = np.zeros(bound, bool)  # avoids sorting, the largest cost of encoding a long trace
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]
