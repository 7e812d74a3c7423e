"""The edges of happened-before between processes, and the fate of every message, from the rows of splits.

In    the rows of one large computation that lie in one split; then, by buckets of messages, what splits could
      not settle by themselves
Out   arrays of edges (see EDGES), by splits and by buckets, with names of processes of their own
Cost  a split is matched by itself; what crosses splits is shuffled: sends that wait for a delivery,
      deliveries whose send is elsewhere, and a number for each send, to see that none is repeated

A trace written as it happened has few messages between splits; one file per process has nothing but. A
delivery that matches no waiting send (never sent, sent to others, or delivered twice across splits) shows
that splits cannot settle their messages alone: then everything is shuffled, and the answer is always exact.

Slots and misdeliveries are edges, unless the message was sent unordered; so is every recorded cause.
Deliveries are `deliver` rows, or `receive` rows where the computation records no deliveries at all.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.linearization import Ints
from ...causality.names import codes_of, encode_names, flatten, hashes
from ...core.errors import TraceFormatError
from ...trace.schema import SENDS as SENDING

Arrays = dict[str, Any]

EDGES = ("source", "source_seq", "target", "target_seq", "sent", "gap", "timed", "slot", "cause")
"""One entry per edge in each. Processes are codes into `names`. target_seq is 0 where a destination was
never reached: a slot, but no edge. `sent` and `gap` count where both ends are timed; `slot` is the first
delivery at a destination; `cause` an edge that the trace recorded as such."""

UNNAMED, UNNAMED_SEQ = "\0", -(2**63)
"""Stand for a process or a number that a cause lacks. No event has a number below 1, but a process may have
this name, so the number of a cause without a process is counted from UNNAMED_SEQ."""

TEXT, NUMBER, NAMED = pa.string(), pa.int64(), pa.dictionary(pa.int32(), pa.string())
SENDS = pa.schema({"message": TEXT, "source": TEXT, "seq": NUMBER, "time": NUMBER, "ordered": pa.bool_()})
SLOTS = pa.schema({"message": TEXT, "target": TEXT})
ARRIVALS = pa.schema({"message": TEXT, "target": TEXT, "seq": NUMBER, "time": NUMBER, "copies": NUMBER})
HASHES = pa.schema({"sent": pa.uint64()})
UNSETTLED = {"sends": SENDS, "slots": SLOTS, "arrivals": ARRIVALS, "hashes": HASHES}
"""What a split leaves to be settled with other splits; `hashes` are of the messages of all its sends."""

FATES = pa.schema(
    {
        "message": TEXT,
        "sender": NAMED,
        "sent_seq": NUMBER,
        "sent_at": NUMBER,
        "receiver": NAMED,
        "received_seq": NUMBER,
        "received_at": NUMBER,
        "copies": NUMBER,
        "addressed": pa.bool_(),
    }
)
"""What became of a message at a process that it was addressed to or delivered at; missing values are null."""


class Matched(NamedTuple):
    """The edges, totals and FATES of the messages of a split or bucket.

    unsettled  by UNSETTLED, the messages of a split with an end in another one
    doubtful   a bucket has a delivery that matches no waiting send, or two sends that may have the same name.
               Then the edges are discarded, and all messages of the computation must be settled together
    """

    edges: Arrays
    totals: Counter[str]
    fates: pa.Table
    unsettled: Mapping[str, pa.Table] = {}
    doubtful: bool = False


def edge_arrays(names: list[str], **columns: Ints) -> Arrays:
    return {"names": pack_names(names), **{name: columns[name] for name in EDGES}}


def pack_names(names: list[str]) -> Ints:
    """Names as an array of bytes; a numpy array of strings would drop trailing null characters."""
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def unpack_names(packed: Ints) -> list[str]:
    names: list[str] = json.loads(packed.tobytes())
    return names


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

    def match(self) -> Matched:
        n = len(self.names)
        send_of = np.full(len(self._messages), -1, np.int64)
        send_of[self._message[self._sends]] = self._sends
        keys, first, copies = self._first_deliveries(n)
        at, met, stray = _meet(self._slots, keys)
        sent_here = send_of[keys // n] >= 0
        astray, elsewhere = np.flatnonzero(stray & sent_here), np.flatnonzero(stray & ~sent_here)
        waiting, given = self._slots[~met], np.concatenate([at[met], astray])
        settled = np.concatenate([self._slots[met], keys[astray]])
        addressed = np.arange(settled.size) < settled.size - astray.size
        sends = send_of[settled // n]
        sent, received, ordered = self._end(sends), self._end(first[given]), self._ordered[sends]
        totals = Counter(
            messages=self._sends.size,
            deliveries_judged=int((ordered & addressed).sum()),
            misdelivered=astray.size,
            duplicated=int((copies[given] - 1).sum()),
        )
        edges = _message_edges(sent, received, ordered, addressed)
        edges = {name: np.concatenate([edges[name], more]) for name, more in self._cause_edges().items()}
        messages = self._messages.take(pa.array(settled // n))
        unsettled = {
            "sends": self._send_table(np.unique(send_of[waiting // n])),
            "slots": self._slot_table(waiting),
            "arrivals": self._arrival_table(keys[elsewhere], first[elsewhere], copies[elsewhere]),
            "hashes": pa.table([hashes(self._messages)[self._message[self._sends]]], schema=HASHES),
        }
        fates = fate_table(messages, sent, received, copies[given], addressed)
        return Matched(edge_arrays(self.names, **edges), totals, fates, unsettled)

    def unmatched(self) -> Matched:
        """The edges of causes alone; all messages are left to be settled."""
        unsettled = {
            "sends": self._send_table(self._sends),
            "slots": self._slot_table(self._slots),
            "arrivals": self._arrival_table(*self._first_deliveries(len(self.names))),
        }
        edges = edge_arrays(self.names, **self._cause_edges())
        return Matched(edges, Counter(messages=self._sends.size), FATES.empty_table(), unsettled)

    def _end(self, rows: Ints) -> "End":
        return End(self.names, self.process[rows], self.seq[rows], self.time[rows], self.timed[rows])

    def _first_deliveries(self, n: int) -> tuple[Ints, Ints, Ints]:
        """For each message · n + destination delivered here: the row of its first delivery, and how many."""
        keys = self._message[self._given] * n + self.process[self._given]
        order = np.lexsort((self.seq[self._given], keys))
        distinct, at, copies = np.unique(keys[order], return_index=True, return_counts=True)
        return distinct, self._given[order[at]], copies

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


def _meet(slots: Ints, keys: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each slot, its place among the deliveries' keys and whether it is there; of each key, whether it is
    no slot. Both are sorted."""
    at = np.minimum(np.searchsorted(keys, slots), max(keys.size - 1, 0))
    met = (keys[at] == slots) if keys.size else np.zeros(slots.size, bool)
    stray = np.ones(keys.size, bool)
    stray[at[met]] = False
    return at, met, stray


def _message_edges(sent: End, received: End, ordered: Ints, addressed: Ints) -> dict[str, Ints]:
    """The edges of messages that were not sent unordered."""
    return {
        "source": sent.process[ordered],
        "source_seq": sent.seq[ordered],
        "target": received.process[ordered],
        "target_seq": received.seq[ordered],
        "sent": sent.time[ordered],
        "gap": (received.time - sent.time)[ordered],
        "timed": (sent.timed & received.timed)[ordered],
        "slot": addressed[ordered],
        "cause": np.zeros(int(ordered.sum()), bool),
    }


def settle(tables: Mapping[str, pa.Table], *, everything: bool) -> Matched:
    """Match the messages of a bucket, by the tables of UNSETTLED that it has.

    everything  whether all messages are here, and not only those that splits could not settle
    """
    sends, slots, arrivals, sent_hashes = (
        tables[kind] if kind in tables else schema.empty_table() for kind, schema in UNSETTLED.items()
    )
    (sent, slot_message, arrived), messages = codes_of(*(t["message"] for t in (sends, slots, arrivals)))
    (source, slot_target, target), names = codes_of(sends["source"], slots["target"], arrivals["target"])
    numbers = np.sort(sent_hashes["sent"].to_numpy())
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
    at, met, stray = _meet(slot_keys, keys)
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
    edges = edge_arrays(names, **_message_edges(sent_at, received, ordered, addressed))
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
    fates = fate_table(named, sent_at, received, counts, addressed, was_sent)
    return Matched(edges, totals, fates, doubtful=doubtful)


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
