"""The necessary information of Kshemkalyani & Singhal, "Necessary and sufficient conditions on
information for causal message ordering and their optimal implementation", section 3.4.

The unit (M, x), x in M.Dests, is necessary in the log after event e iff send(M) is in e's past or is e,
and neither PC1: M's delivery at x is in e's past or is e,
nor     PC2: a message M' with x in M'.Dests was sent strictly after send(M), in e's past or at e.
The edge of message m to d carries the units necessary after everything that happened before m's send, except
that units whose destination is in m.Dests travel only to that destination. m's own units do not count.

So the units about x are the maximal sends to x in the past (those that no later send to x in the past
follows), without those delivered at x within the past. A past is given as a *cut*, a count of events per
process; the vector of an event is the cut of its past and itself. Of each sender, only the last message to x
within the cut can be maximal, so there is one candidate per destination and sender, and only candidates not
delivered within the cut are compared. Cost per cut: processes² + undelivered candidates x processes.

The audit checks whether messages carried exactly these units. A `receive` row may record the units that its
transmission carried, as attributes["units"]: `message>destination` pairs separated by spaces, the empty
string for none. Each recorded transmission is compared with the units necessary on its edge; a pair for which
the computation has no such message and destination is redundant. Each copy of a duplicated transmission is
compared separately.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace.declared import schema
from .compiled import compiled
from .computation import RECEIVE, SEND, Computation, Event, Trace, encode
from .linearization import Ints, find, members, offsets_of
from .stamps import stamp_computation

DEFAULT_EXAMPLES = 3

EDGES = schema("computation string, process string, seq int64, message string, destination string")
COUNTS = pa.schema([*EDGES, *schema("units int64")])
UNITS = pa.schema([*EDGES, *schema("unit_message string, unit_destination string")])


class Unit(NamedTuple):
    """The fact that `message` was sent to `destination`."""

    message: str
    destination: str

    def __str__(self) -> str:
        return f"{self.message}>{self.destination}"


class NecessaryUnits:
    """The units that one computation's logs and messages had to carry. An edge is a slot of the
    computation."""

    def __init__(self, computation: Computation, vectors: Ints | None = None) -> None:
        self.computation = computation
        vectors = stamp_computation(computation) if vectors is None else vectors
        self._sends: Sends = index_sends(computation, vectors)

    @cached_property
    def edge_counts(self) -> Ints:
        """Number of units per edge."""
        c = self.computation
        counts: Ints = count_edge_units(c.send, c.process, c.dest_offsets, self._sends)
        return counts

    def edge_units(self) -> tuple[Ints, Ints]:
        """(offsets, slots): the units of an edge are slots[offsets[edge]:offsets[edge + 1]]."""
        c = self.computation
        offsets = offsets_of(self.edge_counts)
        return offsets, fill_edge_units(c.send, c.process, c.dest_offsets, self._sends, offsets)

    def in_log(self, e: int) -> Ints:
        """The slots whose units are necessary in the state after event e."""
        c = self.computation
        units = np.empty(c.width**2, np.int64)
        first = c.first[c.process[e]]
        return units[: units_of_cut(self._sends.vectors[e], first, self._sends, units)]

    def unit(self, slot: int) -> Unit:
        c = self.computation
        return Unit(c.message_name(c.slot_message[slot]), c.process_names[c.slot_dest[slot]])

    def counts_table(self) -> pa.Table:
        """One row per edge with the number of units that it must carry."""
        return self._table(COUNTS, np.arange(len(self.edge_counts)), pa.array(self.edge_counts))

    def units_table(self) -> pa.Table:
        """One row per unit and edge that must carry it."""
        c, (_, slots) = self.computation, self.edge_units()
        edges = np.repeat(np.arange(len(self.edge_counts)), self.edge_counts)
        return self._table(UNITS, edges, c.messages_of(slots), c.names_of(c.slot_dest[slots])[1])

    def _table(self, schema: pa.Schema, edges: Ints, *columns: pa.Array) -> pa.Table:
        c = self.computation
        *send, _ = c.event_columns(c.slot_send[edges])
        names = [*send, c.messages_of(edges), c.names_of(c.slot_dest[edges])[1]]
        return pa.table([*names, *columns], schema=schema)


class Necessary:
    """The necessary information of every computation of a trace."""

    def __init__(self, computations: Sequence[Computation]) -> None:
        self.computations = [NecessaryUnits(c) for c in computations]

    def edge_counts(self) -> pa.Table:
        """One row per message and destination: the send, the destination, how many units are necessary."""
        return pa.concat_tables([COUNTS.empty_table(), *(of.counts_table() for of in self.computations)])

    def edge_units(self) -> pa.Table:
        """One row per unit and edge; `edge_counts` gives the number of rows beforehand."""
        return pa.concat_tables([UNITS.empty_table(), *(of.units_table() for of in self.computations)])

    def in_log(self, process: str, seq: int, computation: str | None = None) -> frozenset[Unit]:
        """The units necessary in the log of `process` after its event `seq`."""
        for of in self.computations:
            if of.computation.name == computation or (computation is None and len(self.computations) == 1):
                return frozenset(map(of.unit, of.in_log(of.computation.index(process, seq))))
        raise LookupError(f"no computation {computation!r} among the {len(self.computations)} of this trace")

    def logs(self) -> Iterator[tuple[Event, frozenset[Unit]]]:
        """Every event with the units necessary after it, topologically ordered within each computation."""
        for of in self.computations:
            for e in range(of.computation.events):
                yield of.computation.event(e), frozenset(map(of.unit, of.in_log(e)))


def necessary(trace: Trace) -> Necessary:
    return Necessary(encode(trace))


NEVER = np.iinfo(np.int32).max


class Sends(NamedTuple):
    """The arrays of a computation from which the units of a cut are computed. Index -1 means none."""

    vectors: Ints
    first: Ints  # each process's computation, by its first process
    chain_offsets: Ints
    chain: Ints
    newest: Ints  # for each event, the last row of `latest` that its process had made by then
    latest: Ints  # sends x width: slot of the sender's last message to each process, up to that send
    slot_send: Ints
    slot_sender: Ints  # the sender's entry in vectors
    slot_dest: Ints  # the destination's entry in vectors
    slot_seq: Ints  # the seq of the send
    slot_done: Ints  # the seq of the delivery, or NEVER


@compiled
def last_sends(process, processes, sends, message, dest_offsets, slot_dest, width):  # type: ignore[no-untyped-def]
    """The columns `latest` and `newest` of Sends; `sends` holds the send events in topological order."""
    latest = np.full((sends.size, width), -1, np.int32)
    newest = np.full(process.size, -1, np.int32)
    current = np.full(processes, -1, np.int32)
    row = 0
    for e in range(process.size):
        p = process[e]
        if row < sends.size and sends[row] == e:
            if current[p] >= 0:
                latest[row] = latest[current[p]]
            m = message[e]
            for slot in range(dest_offsets[m], dest_offsets[m + 1]):
                latest[row, slot_dest[slot]] = slot
            current[p] = row
            row += 1
        newest[e] = current[p]
    return latest, newest


def index_sends(c: Computation, vectors: Ints) -> Sends:
    sends = np.flatnonzero(c.kind == SEND)
    slot_dest = c.slot_dest - c.first[c.slot_dest]
    latest, newest = last_sends(c.process, c.processes, sends, c.message, c.dest_offsets, slot_dest, c.width)
    sender = c.process[c.slot_send]
    done = np.where(c.slot_delivery >= 0, c.seq[c.slot_delivery], NEVER) if c.events else c.slot_delivery
    slots = c.slot_send, sender - c.first[sender], slot_dest, c.seq[c.slot_send], done.astype(np.int32)
    return Sends(vectors, c.first, c.chain_offsets, c.chain, newest, latest, *slots)


@compiled
def units_of_cut(cut, first_process, s, units):  # type: ignore[no-untyped-def]
    """Write the slots of the units necessary after a cut to `units`, by destination; return their number.

    Entry k of the cut is about process first_process + k.
    """
    n = cut.size
    rows = np.empty(n, np.int64)
    sends = np.empty(n, np.int64)
    senders = 0
    for p in range(n):
        if cut[p] > 0:
            row = s.newest[s.chain[s.chain_offsets[first_process + p] + cut[p] - 1]]
            if row >= 0:
                rows[senders] = row
                senders += 1
    count = 0
    for x in range(n):
        first, candidates = count, 0
        for r in range(senders):
            slot = s.latest[rows[r], x]
            if slot >= 0:
                sends[candidates] = s.slot_send[slot]
                candidates += 1
                if s.slot_done[slot] > cut[x]:
                    units[count] = slot
                    count += 1
        kept = first
        for k in range(first, count):
            if not _is_covered(units[k], sends[:candidates], s):
                units[kept] = units[k]
                kept += 1
        count = kept
    return count


@compiled
def _is_covered(slot, sends, s):  # type: ignore[no-untyped-def]
    """Whether the slot's send happened before one of the other given sends."""
    for send in sends:
        if send != s.slot_send[slot] and s.vectors[send, s.slot_sender[slot]] >= s.slot_seq[slot]:
            return True
    return False


@compiled
def _units_before(e, process, s, units):  # type: ignore[no-untyped-def]
    """The units necessary after everything that happened before e, without e itself."""
    first = s.first[process]
    cut = s.vectors[e].copy()
    cut[process - first] -= 1
    return units_of_cut(cut, first, s, units)


@compiled
def count_edge_units(message_send, process, dest_offsets, s):  # type: ignore[no-untyped-def]
    """How many units each slot's edge must carry."""
    n = s.vectors.shape[1]
    units = np.empty(n * n, np.int64)
    slot_dest = s.slot_dest
    counts = np.zeros(slot_dest.size, np.int64)
    about = np.zeros(n, np.int64)
    for m in range(message_send.size):
        if message_send[m] < 0:
            continue
        found = _units_before(message_send[m], process[message_send[m]], s, units)
        about[:] = 0
        for k in range(found):
            about[slot_dest[units[k]]] += 1
        common = found
        for slot in range(dest_offsets[m], dest_offsets[m + 1]):
            common -= about[slot_dest[slot]]
        for slot in range(dest_offsets[m], dest_offsets[m + 1]):
            counts[slot] = common + about[slot_dest[slot]]
    return counts


@compiled
def fill_edge_units(message_send, process, dest_offsets, s, offsets):  # type: ignore[no-untyped-def]
    """The units of each slot's edge, at offsets[slot]:offsets[slot + 1]."""
    n = s.vectors.shape[1]
    units = np.empty(n * n, np.int64)
    slot_dest = s.slot_dest
    carried = np.empty(offsets[-1], np.int64)
    addressed = np.zeros(n, np.bool_)
    for m in range(message_send.size):
        if message_send[m] < 0:
            continue
        found = _units_before(message_send[m], process[message_send[m]], s, units)
        edges = range(dest_offsets[m], dest_offsets[m + 1])
        for slot in edges:
            addressed[slot_dest[slot]] = True
        for slot in edges:
            at = offsets[slot]
            for k in range(found):
                x = slot_dest[units[k]]
                if x == slot_dest[slot] or not addressed[x]:
                    carried[at] = units[k]
                    at += 1
        for slot in edges:
            addressed[slot_dest[slot]] = False
    return carried


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A unit that a transmission failed to carry although necessary, or carried although not necessary."""

    receive: Event
    unit: Unit

    def __str__(self) -> str:
        return f"{self.unit} on {self.receive.message} to {self.receive.process} (#{self.receive.seq})"


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit; `holds` is None if no transmission recorded its units."""

    recorded: int  # transmissions compared; `equal` of them carried exactly the necessary units
    equal: int
    missing: int  # necessary units that were not carried, over all transmissions
    redundant: int  # carried units that were not necessary
    unmatched: int  # recorded transmissions of messages that were never sent to that process
    missing_examples: tuple[Mismatch, ...]
    redundant_examples: tuple[Mismatch, ...]

    @property
    def holds(self) -> bool | None:
        return self.equal == self.recorded if self.recorded else None


def audit_units(
    table: pa.Table, *, against: Necessary | None = None, examples: int = DEFAULT_EXAMPLES
) -> Audit:
    """Compare the carried units with the necessary ones; `against` passes the latter if already computed."""
    carried = pc.map_lookup(table["attributes"], pa.scalar("units"), "first").combine_chunks()
    counts: Counter[str] = Counter()
    shown: dict[str, list[Mismatch]] = {"missing": [], "redundant": []}
    for units in (against or necessary(table)).computations:
        c, slots = units.computation, units.computation.slot_dest.size
        arrivals = np.flatnonzero(c.kind == RECEIVE)
        texts = carried.take(pa.array(c.row[arrivals]))
        arrivals = arrivals[texts.is_valid().to_numpy(zero_copy_only=False)]
        edges = c.slots_of(c.message[arrivals], c.process[arrivals])
        arrivals, edges, recorded = arrivals[edges >= 0], edges[edges >= 0], arrivals.size
        words, owners = _words(carried.take(pa.array(c.row[arrivals])))
        named = [_unit(word) for word in words.dictionary.to_pylist()]
        # Units with a slot are numbered by slot; all others come after, in order of appearance.
        width = slots + len(named)
        said = np.unique(owners * width + _numbers(c, named)[words.indices.to_numpy()])
        due = said
        if arrivals.size:
            offsets, necessary_slots = units.edge_units()
            lengths = np.diff(offsets)[edges]
            due = necessary_slots[members(offsets[edges], lengths)]
            due = np.sort(np.repeat(np.arange(edges.size), lengths) * width + due)
        wrong = {
            "missing": np.setdiff1d(due, said, assume_unique=True),
            "redundant": np.setdiff1d(said, due, assume_unique=True),
        }
        for what, keys in wrong.items():
            counts[what] += keys.size
            for at, number in zip(*np.divmod(keys[: examples - len(shown[what])], width), strict=True):
                unit = units.unit(number) if number < slots else named[number - slots]
                shown[what].append(Mismatch(c.event(arrivals[at]), unit))
        counts["recorded"] += arrivals.size
        counts["unmatched"] += recorded - arrivals.size
        counts["equal"] += arrivals.size - np.unique(np.concatenate([*wrong.values()]) // width).size
    recorded, equal, missing, redundant, unmatched = (
        counts[name] for name in ("recorded", "equal", "missing", "redundant", "unmatched")
    )
    examples_of = tuple(shown["missing"]), tuple(shown["redundant"])
    return Audit(recorded, equal, missing, redundant, unmatched, *examples_of)


def _numbers(c: Computation, named: Sequence[Unit]) -> Ints:
    """The number of each of these units."""
    places = {name: p for p, name in enumerate(c.process_names)}
    messages = pa.array([unit.message for unit in named], pa.string())
    codes = pc.fill_null(pc.index_in(messages, value_set=c.names), -1).to_numpy()
    dest = np.array([places.get(unit.destination, -1) for unit in named], np.int64)
    slots = c.slots_of(find(c.message_codes, codes), dest)
    return np.where(slots >= 0, slots, c.slot_dest.size + np.arange(slots.size))


def _words(texts: pa.Array) -> tuple[pa.DictionaryArray, Ints]:
    """Split all texts into words; return the words, and for each word the index of its text."""
    lists = pc.split_pattern(texts.cast(pa.string()), " ")
    words, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
    written = pc.not_equal(words, "")
    return words.filter(written).dictionary_encode(), owners.filter(written).to_numpy().astype(np.int64)


def _unit(word: str) -> Unit:
    message, arrow, destination = word.rpartition(">")
    if not arrow:
        raise TraceFormatError(f"{word!r} is no unit; write message>destination", field="attributes.units")
    return Unit(message, destination)
