"""Compare the attributes that trackers recorded for their numbered events with what the trace implies.

In    the causal past of every numbered event, as counts of numbered events per process; the attributes that
      trace/tracker_attributes.py describes
Out   the events with wrong attributes, by the kind of fault (FAULTS)
Cost  numbered events x processes; for dependency vectors, a vector for each entry that is not zero

A vector, immediate predecessors and a scalar are compared with the true ones. A dependency vector is right
if reconstruction gives the true vector from it. Each event can be checked alone: its dependency vector names
nothing outside the event's past, and the join of the true vectors of the events it names, and of the previous
event on its process, is the true vector. If that holds everywhere, reconstruction finds the true vectors, by
induction along happened-before; so no fixed point is computed here, and a fault is reported at its origin.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...trace.declared import schema
from ...trace.tracker_attributes import COUNTED, LIST, NUMBER, name_in
from ..compiled import compiled
from ..epochs import event_keys
from ..linearization import Ints
from ..predecessors import reduction_edges
from ..stamps import MANY_PROCESSES
from .question import EVENT, Answers, Question, Subject

TRACKERS = pa.schema([*EVENT, *schema("fault string")])

FAULTS = ("unreadable", "number", *COUNTED, "scalar")
"""The kinds of faults: unreadable attributes; the event's number; each of the attributes about its past."""

NOT_TOLD, NOT_READ = -1, -2


class VerifyTrackers(Question):
    """For computations cut into epochs, the Spark code answers (spark.by_epoch.tracker_faults)."""

    name = "verify-trackers"
    help = "compares the timestamps that trackers recorded with those that follow from the events"
    tables: ClassVar = {"trackers": TRACKERS}
    totals = ("tracker_stamps", "tracker_faults", "tracker_unjudged")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        attributes = subject.table["attributes"].take(pa.array(c.row[c.chain])).combine_chunks()
        numbered = is_numbered(attributes)  # in the order of `chain`: by process and seq
        if not numbered.any():
            return
        # Trackers count the relevant events of the whole trace, which a window does not have.
        if c.is_window or (subject.is_wide and c.width > MANY_PROCESSES):
            answers.totals["tracker_unjudged"] += int(numbered.sum())
            return
        events = c.chain[numbered]
        recorded = read_attributes(attributes.filter(pa.array(numbered)))
        vectors = np.concatenate([columns[events] for _, columns in subject.columns()], axis=1)
        pasts = numbered_events(c.process[events], c.seq[events], c.first, vectors)
        found = compare(recorded, pasts, lambda row, names: c.processes_named(events[row], names))
        answers.totals["tracker_stamps"] += recorded.rows
        tell_faults(found, lambda rows: subject.names_of(events[rows]), answers)


def tell_faults(found: dict[str, Ints], names_of: Callable[[Ints], list[pa.Array]], answers: Answers) -> None:
    """A row for each fault of each event; `names_of` gives the columns EVENT of rows."""
    for fault, rows in found.items():
        answers.totals["tracker_faults"] += len(rows)
        answers.add("trackers", pa.table([*names_of(rows), pa.repeat(fault, len(rows))], schema=TRACKERS))


class Counts(NamedTuple):
    """For some of the rows, an attribute that lists processes with a number each."""

    told: Ints  # whether each row has the attribute
    row: Ints  # the row of each entry
    name: pa.Array
    number: Ints


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded attributes, one entry per row."""

    number: Ints
    scalar: Ints  # NOT_TOLD in rows without it
    counts: dict[str, Counts]  # key: one of COUNTED
    unreadable: Ints  # whether an attribute of the row cannot be read

    @property
    def rows(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class Numbered:
    """The numbered events, by process and then in order, with their causal pasts.

    Entry k of an event's vector counts the numbered events of process first[p] + k, p being its own.
    """

    process: Ints
    first: Ints  # each process's computation, by its first process
    offsets: Ints  # for each process, where its events begin; one more at the end
    vectors: Ints
    place: Ints  # the number that each event should have

    def at(self, process: Ints, number: Ints) -> Ints:
        """The rows of the events with these numbers, -1 where there is none."""
        valid = (process >= 0) & (number >= 1)
        valid &= number <= np.diff(self.offsets)[np.where(valid, process, 0)]
        return np.where(valid, self.offsets[np.where(valid, process, 0)] + number - 1, -1)


def numbered_events(process: Ints, seq: Ints, first: Ints, vectors: Ints) -> Numbered:
    """The numbered events (given by process, then seq), with vectors that count only numbered events."""
    process = process.astype(np.int64)
    keys = event_keys(process, seq.astype(np.int64))
    offsets = np.searchsorted(process, np.arange(len(first) + 1))
    counts = np.empty(vectors.shape, np.int64)
    for entry in range(vectors.shape[1]):
        known = vectors[:, entry].astype(np.int64)
        # In a union, entries beyond the processes of a smaller computation are zero.
        of = np.where(known > 0, first[process] + entry, 0)
        newest = np.searchsorted(keys, event_keys(of, known), side="right")
        counts[:, entry] = np.where(known > 0, newest - offsets[of], 0)
    return Numbered(process, first, offsets, counts, np.arange(len(process)) - offsets[process] + 1)


def is_numbered(attributes: pa.ChunkedArray | pa.Array) -> Ints:
    """Whether a tracker gave each row a number."""
    numbered: Ints = pc.is_valid(_attribute(attributes, NUMBER)).to_numpy(zero_copy_only=False)
    return numbered


def read_attributes(attributes: pa.Array) -> Recorded:
    """Parse the attributes of numbered events, one row each."""
    number, scalar = (_whole_numbers(_attribute(attributes, name)) for name in (NUMBER, "scalar"))
    unreadable = (number < 0) | (scalar == NOT_READ)
    counts = {}
    for name in COUNTED:
        texts = _attribute(attributes, name)
        readable = pc.match_substring_regex(texts, LIST)
        unreadable |= pc.fill_null(pc.invert(readable), False).to_numpy(zero_copy_only=False)
        counts[name] = _counts(pc.if_else(readable, texts, pa.scalar(None, pa.string())))
    return Recorded(number, scalar, counts, unreadable)


def _attribute(attributes: pa.ChunkedArray | pa.Array, name: str) -> pa.Array:
    found = pc.map_lookup(attributes, pa.scalar(name), "first")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _whole_numbers(texts: pa.Array) -> Ints:
    readable = pc.match_substring_regex(texts, "^[0-9]{1,18}$")
    numbers = pc.if_else(readable, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    missing = pc.if_else(pc.is_valid(texts), NOT_READ, NOT_TOLD)
    found: Ints = pc.coalesce(numbers, missing.cast(pa.int64())).to_numpy(zero_copy_only=False)
    return found


def _counts(texts: pa.Array) -> Counts:
    told: Ints = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    # An empty text splits into one empty token, which does not count.
    tokens = pc.split_pattern(pc.fill_null(texts, ""), " ")
    row, flat = pc.list_parent_indices(tokens).to_numpy(), pc.list_flatten(tokens)
    given = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    pairs = pc.split_pattern(flat.filter(pa.array(given)), ":")
    names = pc.list_element(pairs, 0).dictionary_encode()
    known = pa.array([name_in(name) for name in names.dictionary.to_pylist()], pa.string())
    number = pc.list_element(pairs, 1).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Counts(told, row[given].astype(np.int64), known.take(names.indices), number)


Named = Callable[[Ints, pa.Array], Ints]
"""For names and their rows: the process with that name in the row's computation, -1 for none."""


def compare(recorded: Recorded, numbered: Numbered, processes: Named) -> dict[str, Ints]:
    """The rows with each kind of fault."""
    rows, vectors, place = recorded.rows, numbered.vectors, numbered.place
    faults = {name: np.zeros(rows, bool) for name in FAULTS}
    faults["unreadable"] |= recorded.unreadable
    faults["number"] |= (recorded.number >= 0) & (recorded.number != place)
    entries = {name: processes(of.row, of.name) for name, of in recorded.counts.items()}
    for name in ("vector", "dependencies"):
        counts, of = recorded.counts[name], entries[name]
        if not counts.told.any():
            continue
        dense = np.zeros_like(vectors, np.int64)
        stray = (of < 0) & (counts.number > 0)
        faults[name][counts.row[stray]] = True
        row, process, number = counts.row[of >= 0], of[of >= 0], counts.number[of >= 0]
        dense[row, process - numbered.first[process]] = number
        if name == "vector":
            wrong = (dense != vectors).any(axis=1)
        else:
            wrong = (dense > vectors).any(axis=1) | _falls_short(dense, numbered, row, process, number)
        faults[name] |= counts.told & wrong
    counts, is_scalar = recorded.counts["predecessors"], recorded.scalar >= 0
    if counts.told.any() or is_scalar.any():
        effects, causes = reduction_edges(
            vectors, numbered.process, numbered.first, place, np.ones(rows, bool), numbered.offsets,
            np.arange(rows),
        )  # fmt: skip
        named = numbered.at(entries["predecessors"], counts.number)
        differs = np.zeros(rows, bool)
        differs[counts.row[named < 0]] = True
        said = np.unique(counts.row[named >= 0] * rows + named[named >= 0])
        differs[np.setxor1d(said, effects * rows + causes) // rows] = True
        faults["predecessors"] |= counts.told & differs
        order = np.argsort(vectors.sum(axis=1), kind="stable")  # the sum grows along happened-before
        by_effect = np.argsort(effects, kind="stable")
        offsets = np.searchsorted(effects[by_effect], np.arange(rows + 1))
        faults["scalar"] |= is_scalar & (recorded.scalar != _chain_lengths(order, offsets, causes[by_effect]))
    return {name: np.flatnonzero(faulty) for name, faulty in faults.items()}


def _falls_short(dense: Ints, numbered: Numbered, row: Ints, process: Ints, number: Ints) -> Ints:
    """Whether an event's recorded dependencies fail to give its true vector; see the module's docstring."""
    vectors = numbered.vectors
    joined = dense.copy()
    follows = np.flatnonzero(numbered.place > 1)
    joined[follows] = np.maximum(joined[follows], vectors[follows - 1])
    others = process != numbered.process[row]
    named = numbered.at(process[others], number[others])
    _join(joined, row[others][named >= 0], vectors, named[named >= 0])
    own = numbered.process - numbered.first[numbered.process]
    every = np.arange(len(own))
    short: Ints = (joined != vectors).any(axis=1) | (dense[every, own] != numbered.place)
    return short


@compiled
def _join(joined, rows, vectors, named):  # type: ignore[no-untyped-def]
    for k in range(rows.size):
        for q in range(joined.shape[1]):
            joined[rows[k], q] = max(joined[rows[k], q], vectors[named[k], q])


@compiled
def _chain_lengths(order, offsets, causes):  # type: ignore[no-untyped-def]
    """The number of events on the longest chain that ends in each event."""
    lengths = np.ones(order.size, np.int64)
    for e in order:
        for k in range(offsets[e], offsets[e + 1]):
            lengths[e] = max(lengths[e], lengths[causes[k]] + 1)
    return lengths


QUESTION = VerifyTrackers()
