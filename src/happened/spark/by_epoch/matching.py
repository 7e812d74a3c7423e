"""The edges of happened-before between processes, and the fate of every message, from the rows of splits.

In    the rows of one large computation that lie in one split; then, by buckets of messages, what splits could
      not settle by themselves
Out   arrays of edges (see EDGES), by splits and by buckets, with names of processes of their own
Cost  a split is matched by itself; what crosses splits is shuffled: sends that wait for a delivery,
      deliveries whose send is elsewhere, and a number for each send, to see that none is repeated

A trace written as it happened has few messages between splits; one file per process has nothing but. A
delivery that matches no waiting send (never sent, sent to others, or delivered twice across splits) shows
that splits cannot settle their messages alone: then everything is shuffled, and the answer is exact for any
trace.

Slots and misdeliveries are edges, unless the message was sent unordered; so is every recorded cause.
Deliveries are `deliver` rows, or `receive` rows where the computation records no deliveries at all.
"""

import json
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.linearization import Ints
from ...causality.names import codes_of, encode_names, flatten, hashes
from ...core.errors import TraceFormatError
from ...trace.schema import SENDS as SENDING
from ..tasks import pack_table, unpack_table

Arrays = dict[str, Any]

EDGES = ("source", "source_seq", "target", "target_seq", "sent", "gap", "timed", "slot", "cause")
"""One entry per edge in each. Processes are codes into `names`. target_seq is 0 where a destination was
never reached: a slot, but no edge. `sent` and `gap` count where both ends are timed; `slot` is the first
delivery at a destination; `cause` an edge that the trace recorded as such."""

UNNAMED, UNNAMED_SEQ = "\0", -(2**63)
"""Stand for a process or a number that a cause lacks. No event has a number below 1, but a process may have
this name, so the number of a cause without a process is counted from UNNAMED_SEQ."""

SENDS = pa.schema(
    [
        ("message", pa.string()),
        ("source", pa.string()),
        ("seq", pa.int64()),
        ("time", pa.int64()),
        ("ordered", pa.bool_()),
    ]
)
SLOTS = pa.schema([("message", pa.string()), ("target", pa.string())])
FATES = pa.schema(
    [
        ("message", pa.string()),
        ("sender", pa.dictionary(pa.int32(), pa.string())),
        ("sent_seq", pa.int64()),
        ("sent_at", pa.int64()),
        ("receiver", pa.dictionary(pa.int32(), pa.string())),
        ("received_seq", pa.int64()),
        ("received_at", pa.int64()),
        ("copies", pa.int64()),
        ("addressed", pa.bool_()),
    ]
)
"""What became of a message at a process that it was addressed to or delivered at; missing values are null."""

ARRIVALS = pa.schema(
    [
        ("message", pa.string()),
        ("target", pa.string()),
        ("seq", pa.int64()),
        ("time", pa.int64()),
        ("copies", pa.int64()),
    ]
)


def edge_arrays(names: list[str], **columns: Ints) -> Arrays:
    return {"names": pack_names(names), **{name: columns[name] for name in EDGES}}


def pack_names(names: list[str]) -> Ints:
    """Names as an array of bytes; a numpy array of strings would drop trailing null characters."""
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def unpack_names(packed: Ints) -> list[str]:
    names: list[str] = json.loads(packed.tobytes())
    return names


def joined(parts: list[Arrays]) -> dict[str, Ints]:
    return {name: np.concatenate([part[name] for part in parts]) for name in EDGES}


class Part:
    """The rows of one computation in one split, matched among themselves.

    handover  the kind of row that hands a message to the application
    """

    def __init__(self, table: pa.Table, handover: str) -> None:
        to, addressed = flatten(table["to"])
        causes, self._caused = flatten(table["causes"])
        causing = pc.struct_field(causes, "process")
        cause_seq: Ints = pc.struct_field(causes, "seq").fill_null(UNNAMED_SEQ).to_numpy(zero_copy_only=False)
        nobody = causing.is_null().to_numpy(zero_copy_only=False) & (cause_seq > 0)
        self._cause_seq = np.where(nobody, cause_seq + UNNAMED_SEQ, cause_seq)
        causing = causing.fill_null(UNNAMED)
        (self.process, dest, self._cause), self.names = codes_of(table["process"], to, causing)
        self.destinations = np.unique(dest)
        self.seq = table["seq"].to_numpy()
        self.timed = pc.is_valid(table["time"]).to_numpy()
        self.time = pc.fill_null(table["time"], 0).to_numpy()
        self.relevant = table["relevant"].to_numpy()
        self.clocks = table["clock"].combine_chunks()
        self._message, self._messages = encode_names(table["message"])
        is_send = pc.is_in(table["kind"], value_set=pa.array(SENDING)).to_numpy()
        self._ordered = pc.equal(table["kind"], "send").to_numpy()
        self._given = np.flatnonzero(pc.equal(table["kind"], handover).to_numpy())
        self._sends = np.flatnonzero(is_send)
        of_send = is_send[addressed]
        n = len(self.names)
        self._slots = np.unique(self._message[addressed[of_send]] * n + dest[of_send])
        casts = np.bincount(self._slots // n, minlength=len(self._messages)) > 1
        self.casts = bool(casts[self._message[self._ordered]].any())

    def match(self) -> tuple[Arrays, "Unmatched", Counter[str], pa.Table]:
        """The edges among these rows; the messages with an end in another split; the totals and FATES of the
        rest."""
        n = len(self.names)
        send_of = np.full(len(self._messages), -1, np.int64)
        send_of[self._message[self._sends]] = self._sends
        keys, first, copies = self._first_deliveries(n)
        at = np.minimum(np.searchsorted(keys, self._slots), max(keys.size - 1, 0))
        met = (keys[at] == self._slots) if keys.size else np.zeros(self._slots.size, bool)
        stray = np.ones(keys.size, bool)
        stray[at[met]] = False
        sent_here = send_of[keys // n] >= 0
        astray, elsewhere = np.flatnonzero(stray & sent_here), np.flatnonzero(stray & ~sent_here)
        here, waiting = at[met], self._slots[~met]
        sent, sent_astray = send_of[self._slots[met] // n], send_of[keys[astray] // n]
        ordered, ordered_astray = self._ordered[sent], self._ordered[sent_astray]
        edges = [
            self._edges(sent[ordered], first[here][ordered], slot=True),
            self._edges(sent_astray[ordered_astray], first[astray][ordered_astray], slot=False),
            self._cause_edges(),
        ]
        totals = Counter(
            messages=self._sends.size,
            deliveries_judged=int(ordered.sum()),
            misdelivered=astray.size,
            duplicated=int((copies[here] - 1).sum() + (copies[astray] - 1).sum()),
        )
        unsettled = Unmatched(
            self._send_table(np.unique(send_of[waiting // n])),
            self._slot_table(waiting),
            self._arrival_table(keys[elsewhere], first[elsewhere], copies[elsewhere]),
            np.sort(hashes(self._messages)[self._message[self._sends]]),
        )
        settled = np.concatenate([self._slots[met], keys[astray]])
        fates = fate_table(
            self._messages.take(pa.array(settled // n)),
            self._end(send_of[settled // n]),
            self._end(np.concatenate([first[here], first[astray]])),
            np.concatenate([copies[here], copies[astray]]),
            np.arange(settled.size) < here.size,
        )
        return edge_arrays(self.names, **joined(edges)), unsettled, totals, fates

    def _end(self, rows: Ints) -> "End":
        return End(self.names, self.process[rows], self.seq[rows], self.time[rows], self.timed[rows])

    def unmatched(self) -> tuple[Arrays, "Unmatched", Counter[str]]:
        """The edges of causes alone; all messages are left to be settled."""
        arrivals = self._arrival_table(*self._first_deliveries(len(self.names)))
        nothing = np.empty(0, np.uint64)
        unsettled = Unmatched(self._send_table(self._sends), self._slot_table(self._slots), arrivals, nothing)
        return edge_arrays(self.names, **self._cause_edges()), unsettled, Counter(messages=self._sends.size)

    def _first_deliveries(self, n: int) -> tuple[Ints, Ints, Ints]:
        """For each message · n + destination delivered here: the row of its first delivery, and how many."""
        keys = self._message[self._given] * n + self.process[self._given]
        order = np.lexsort((self.seq[self._given], keys))
        distinct, at, copies = np.unique(keys[order], return_index=True, return_counts=True)
        return distinct, self._given[order[at]], copies

    def _edges(self, source: Ints, target: Ints, *, slot: bool) -> dict[str, Ints]:
        return {
            "source": self.process[source],
            "source_seq": self.seq[source],
            "target": self.process[target],
            "target_seq": self.seq[target],
            "sent": self.time[source],
            "gap": self.time[target] - self.time[source],
            "timed": self.timed[source] & self.timed[target],
            "slot": np.full(source.size, slot),
            "cause": np.zeros(source.size, bool),
        }

    def _cause_edges(self) -> dict[str, Ints]:
        size = self._caused.size
        none = np.zeros(size, np.int64)
        return {
            "source": self._cause,
            "source_seq": self._cause_seq.astype(np.int64),
            "target": self.process[self._caused],
            "target_seq": self.seq[self._caused],
            "sent": none,
            "gap": none,
            "timed": np.zeros(size, bool),
            "slot": np.zeros(size, bool),
            "cause": np.ones(size, bool),
        }

    def _named(self, codes: Ints) -> pa.Array:
        return pa.array(self.names, pa.string()).take(pa.array(codes))

    def _times(self, rows: Ints) -> pa.Array:
        return pa.array(self.time[rows], mask=~self.timed[rows])

    def _send_table(self, rows: Ints) -> pa.Table:
        message = self._messages.take(pa.array(self._message[rows]))
        columns = [message, self._named(self.process[rows]), pa.array(self.seq[rows]), self._times(rows)]
        return pa.table([*columns, pa.array(self._ordered[rows])], schema=SENDS)

    def _slot_table(self, slots: Ints) -> pa.Table:
        n = len(self.names)
        columns = [self._messages.take(pa.array(slots // n)), self._named(slots % n)]
        return pa.table(columns, schema=SLOTS)

    def _arrival_table(self, keys: Ints, rows: Ints, copies: Ints) -> pa.Table:
        n = len(self.names)
        columns = [
            self._messages.take(pa.array(keys // n)),
            self._named(keys % n),
            pa.array(self.seq[rows]),
            self._times(rows),
            pa.array(copies),
        ]
        return pa.table(columns, schema=ARRIVALS)


class End(NamedTuple):
    """One end of some messages: a process and a seq, and a time if it is timed."""

    names: list[str]
    process: Ints
    seq: Ints
    time: Ints
    timed: Ints


def fate_table(
    messages: pa.Array, sent: End, received: End, copies: Ints, addressed: Ints, was_sent: Any = True
) -> pa.Table:
    """FATES of these messages; of `received`, where there are no copies, only the process counts."""
    came, left = copies > 0, np.broadcast_to(was_sent, copies.shape)
    columns = [
        messages,
        _dictionary(sent.names, sent.process, left),
        pa.array(sent.seq, mask=~left),
        pa.array(sent.time, mask=~(left & sent.timed)),
        _dictionary(received.names, received.process, np.ones(copies.size, bool)),
        pa.array(received.seq, mask=~came),
        pa.array(received.time, mask=~(came & received.timed)),
        pa.array(copies),
        pa.array(addressed),
    ]
    return pa.table(columns, schema=FATES)


def _dictionary(names: list[str], codes: Ints, known: Ints) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32), mask=~known), pa.array(names, pa.string())
    )


@dataclass(frozen=True)
class Unmatched:
    """What a split leaves to be settled with other splits: tables, and the hashes of all messages it sent."""

    sends: pa.Table
    slots: pa.Table
    arrivals: pa.Table
    sent: Ints

    def by_bucket(self, buckets: int) -> Iterator[tuple[int, bytes]]:
        """Give every message to the bucket of its name."""
        tables = [_cut(table, buckets) for table in (self.sends, self.slots, self.arrivals)]
        order = np.argsort(self.sent % np.uint64(buckets), kind="stable")
        sent = self.sent[order]
        ends = np.searchsorted(sent % np.uint64(buckets), np.arange(buckets + 1).astype(np.uint64))
        for bucket in range(buckets):
            numbers = sent[ends[bucket] : ends[bucket + 1]]
            parts = [slices[bucket] for slices in tables]
            if numbers.size or any(part.num_rows for part in parts):
                yield bucket, pickle.dumps((*map(pack_table, parts), numbers))


def _cut(table: pa.Table, buckets: int) -> list[pa.Table]:
    if buckets == 1:
        return [table]
    bucket = hashes(table["message"].combine_chunks()) % np.uint64(buckets)
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(buckets + 1).astype(np.uint64))
    taken = table.take(pa.array(order))
    return [taken.slice(a, b - a) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class Settled:
    """`doubtful`: a delivery that matches no waiting send, or two sends that may have the same name. Then the
    edges are discarded, and all messages of the computation must be settled here."""

    edges: Arrays
    totals: Counter[str]
    doubtful: bool
    fates: pa.Table


def settle(blobs: Iterable[bytes], *, everything: bool) -> Settled:
    """Match the messages of a bucket.

    everything  whether all messages are here, and not only those that splits could not settle
    """
    parts = [pickle.loads(blob) for blob in blobs]
    sends, slots, arrivals = (
        pa.concat_tables([unpack_table(part[i]) for part in parts]).combine_chunks() for i in range(3)
    )
    (sent, slot_message, arrived), messages = codes_of(*(t["message"] for t in (sends, slots, arrivals)))
    (source, slot_target, target), names = codes_of(sends["source"], slots["target"], arrivals["target"])
    numbers = np.sort(np.concatenate([part[3] for part in parts]))
    doubtful = bool((numbers[1:] == numbers[:-1]).any())
    if everything:
        _one_send_each(sent, messages)
    n = max(len(names), 1)
    send_of = np.full(len(messages), -1, np.int64)
    send_of[sent] = np.arange(sent.size)
    slot_keys = np.unique(slot_message * n + slot_target)
    seq = arrivals["seq"].to_numpy()
    keys = arrived * n + target
    order = np.lexsort((seq, keys))
    keys, at = np.unique(keys[order], return_index=True)
    first = order[at]
    given = arrivals["copies"].to_numpy()[order]
    copies = np.add.reduceat(given, at) if at.size else given
    at = np.minimum(np.searchsorted(keys, slot_keys), max(keys.size - 1, 0))
    met = (keys[at] == slot_keys) if keys.size else np.zeros(slot_keys.size, bool)
    stray = np.ones(keys.size, bool)
    stray[at[met]] = False
    astray = np.flatnonzero(stray & (send_of[keys // n] >= 0))
    doubtful = doubtful or (not everything and bool(stray.any()))

    never_sent = np.flatnonzero(stray & (send_of[keys // n] < 0))
    settled = np.concatenate([slot_keys, keys[astray], keys[never_sent]])
    addressed = np.arange(settled.size) < slot_keys.size
    delivery = np.full(slot_keys.size, -1, np.int64)
    delivery[met] = first[at[met]]
    sent_at = _end(names, sends, source, send_of[settled // n])
    received = _end(names, arrivals, target, np.concatenate([delivery, first[astray], first[never_sent]]))
    received = received._replace(process=settled % n)
    was_sent, reached = send_of[settled // n] >= 0, received.seq > 0
    ordered = was_sent & _taken(sends["ordered"].to_numpy(), send_of[settled // n])
    edges = edge_arrays(
        names,
        source=sent_at.process[ordered],
        source_seq=sent_at.seq[ordered],
        target=received.process[ordered],
        target_seq=received.seq[ordered],
        sent=sent_at.time[ordered],
        gap=(received.time - sent_at.time)[ordered],
        timed=(sent_at.timed & received.timed)[ordered],
        slot=addressed[ordered],
        cause=np.zeros(int(ordered.sum()), bool),
    )
    counts = np.zeros(settled.size, np.int64)
    counts[reached] = copies[np.searchsorted(keys, settled[reached])]
    named = pa.array(messages, pa.string()).take(pa.array(settled // n))
    totals = Counter(
        lost=int((~met).sum()),
        deliveries_judged=int((met & ordered[: slot_keys.size]).sum()),
        duplicated=int((copies - 1).sum()),
        misdelivered=astray.size,
        never_sent=never_sent.size,
    )
    return Settled(edges, totals, doubtful, fate_table(named, sent_at, received, counts, addressed, was_sent))


def _end(names: list[str], table: pa.Table, process: Ints, rows: Ints) -> End:
    """One end of messages, from rows of SENDS or ARRIVALS; all zeros where a row is -1."""
    time, timed = pc.fill_null(table["time"], 0).to_numpy(), pc.is_valid(table["time"]).to_numpy()
    columns = (process, table["seq"].to_numpy(), time, timed)
    return End(names, *(_taken(column, rows) for column in columns))


def _taken(values: Ints, rows: Ints) -> Ints:
    if not values.size:
        return np.zeros(rows.size, values.dtype)
    return np.where(rows >= 0, values[rows], values.dtype.type(0))


def _one_send_each(sent: Ints, messages: list[str]) -> None:
    times = np.bincount(sent, minlength=len(messages))
    if (times > 1).any():
        at = int(np.argmax(times > 1))
        raise TraceFormatError(
            f"{messages[at]!r} has been sent {times[at]} times; each send needs its own name", field="message"
        )
