"""What is caused in one run and not in another.

Two runs share no clocks, and their sequence numbers mean little. An event of one run is taken for an event of
the other if both are of one sort: they happened at the same place (a service, or a process), are of the same
kind, with the same label (or message, where they have no label), in computations of the same name if both
runs have it. On a process that belongs to no service the n-th of a sort is taken for the n-th. A service does
many things at once, and so do computations: of those, events are taken for one another that look alike
(likeness.py).

For events that both runs have: each immediate cause in one run, among those events, that did not happen
before its effect in the other.
"""

from collections.abc import Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..causality.names import codes_of
from ..causality.predecessors import computation_predecessors
from ..causality.stamps import stamp_computation
from ..core.errors import CausalityError
from .history import Asked, History, Occurrence, load_whole
from .likeness import Shape, partners

MOST_CELLS = 200_000_000
"""Entries of the vectors of a run: a gigabyte or so."""


class Caused(NamedTuple):
    """A cause that one run has and the other has not; `instead` is how the two are related in the other."""

    cause: Occurrence
    effect: Occurrence
    instead: str


@dataclass(frozen=True)
class Difference:
    """What only one of two runs has: events, and causes between events that both have."""

    common: int
    only_first: tuple[Occurrence, ...]
    only_second: tuple[Occurrence, ...]
    caused_first: tuple[Caused, ...]
    caused_second: tuple[Caused, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.only_first or self.only_second or self.caused_first or self.caused_second)


def diff(first: Asked, second: Asked) -> Difference:
    """Compare what caused what in two runs. CausalityError if they have no event in common."""
    one, other = load_whole(first), load_whole(second)
    names = {*one.union.computation_names} & {*other.union.computation_names}
    ours, theirs = _Run(one), _Run(other)
    sorts = _sorts(one, other, names)
    ours.there = partners(*(Shape(of, run.edges) for of, run in zip(sorts, (ours, theirs), strict=True)))
    matched = np.flatnonzero(ours.there >= 0)
    theirs.there[ours.there[matched]] = matched
    if not matched.size:
        raise CausalityError(
            "the runs have no event in common: one is known by its place, its kind, and its label or message"
        )
    caused = _caused(ours, theirs), _caused(theirs, ours)
    return Difference(matched.size, ours.alone(), theirs.alone(), *caused)


def _sorts(one: History, other: History, names: Set[str]) -> list[Ints]:
    """The sort of each event of each run, by a number that means the same in both.

    A sort is its computation if both runs have that, place, kind, label or message, and, where the place is
    a process, how many of the like came before it there.
    """
    runs = [_written(history, names) for history in (one, other)]
    columns = [np.concatenate(codes_of(*(run[name] for run in runs))[0]) for name in runs[0].column_names]
    counts = [run.num_rows for run in runs]
    owner = np.concatenate([c.owner[c.process[c.chain]] for c in (one.union, other.union)])
    served = np.concatenate([_served(history) for history in (one, other)])
    run = np.repeat([0, 1], counts)
    before = np.where(served, 0, _earlier(_numbered(run, owner, *columns[1:])))
    found = []
    for history, of in zip((one, other), np.split(_numbered(*columns, before), counts[:1]), strict=True):
        found.append(np.empty(of.size, np.int64))
        found[-1][history.union.chain] = of
    return found


def _written(history: History, names: Set[str]) -> pa.Table:
    """What the trace says of each event, by process and seq: computation if among the names, place, kind,
    text."""
    c = history.union
    places, place_names = history.places
    known = pa.array([name if name in names else "" for name in c.computation_names], pa.string())
    texts = history.table.select(["kind", "label", "message"]).take(pa.array(c.row[c.chain]))
    label = pc.if_else(pc.equal(texts["label"], ""), None, texts["label"])
    return pa.table(
        {
            "computation": known.take(pa.array(c.owner[c.process[c.chain]])),
            "place": pa.array(place_names, pa.string()).take(pa.array(places[c.chain])),
            "kind": texts["kind"],
            "text": pc.coalesce(label, texts["message"], ""),
        }
    )


def _served(history: History) -> Ints:
    """Whether each event, in the order of process and seq, belongs to a service."""
    served: Ints = history.attribute("service").is_valid().to_numpy(zero_copy_only=False)
    return served[history.union.row[history.union.chain]]


def _numbered(*columns: Ints) -> Ints:
    """A number for each row, the same for rows that are the same in all columns."""
    rows = np.zeros(columns[0].size, np.int64)
    for column in columns:
        rows = np.unique(rows * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return rows


def _earlier(numbers: Ints) -> Ints:
    """For each element, how many earlier elements have the same number."""
    order = np.argsort(numbers, kind="stable")
    starts = np.cumsum(np.bincount(numbers)) - np.bincount(numbers)
    earlier = np.empty(numbers.size, np.int64)
    earlier[order] = np.arange(numbers.size) - starts[numbers[order]]
    return earlier


class _Run:
    """A run and its vectors; `there` is the number of each event in the other run, -1 if it has none."""

    def __init__(self, history: History) -> None:
        c = history.union
        if c.events * c.width > MOST_CELLS:
            raise CausalityError(
                f"{c.events:,} events of {c.width:,} processes are too many to be compared; take fewer"
            )
        self.history = history
        self.there: Ints = np.full(c.events, -1, np.int64)
        self.vectors = stamp_computation(c)

    def edges(self) -> tuple[Ints, Ints]:
        """(effects, causes): the immediate causes among all events."""
        return self._edges

    @cached_property
    def _edges(self) -> tuple[Ints, Ints]:
        return computation_predecessors(self.history.union, self.vectors, np.ones(self.there.size, bool))

    def alone(self) -> tuple[Occurrence, ...]:
        return tuple(self.history.occurrences(np.flatnonzero(self.there < 0)))

    def caused(self) -> tuple[Ints, Ints]:
        """(effects, causes): the immediate causes among the events that both runs have."""
        common = self.there >= 0
        if common.all():
            return self._edges
        return computation_predecessors(self.history.union, self.vectors, common)

    def are_before(self, e: Ints, f: Ints) -> Ints:
        """Whether each event of e happened before that of f at the same place."""
        c = self.history.union
        p = c.process[e]
        same = c.owner[p] == c.owner[c.process[f]]
        known: Ints = same & (self.vectors[f, p - c.first[p]] >= c.seq[e])
        return known


def _caused(run: _Run, other: _Run) -> tuple[Caused, ...]:
    """The immediate causes in one run that did not happen before their effects in the other."""
    effects, causes = run.caused()
    cause, effect = run.there[causes], run.there[effects]
    lacking = np.flatnonzero(~other.are_before(cause, effect))
    after = other.are_before(effect[lacking], cause[lacking])
    tell = run.history.occurrence
    return tuple(
        Caused(tell(int(causes[at])), tell(int(effects[at])), "after" if reverse else "concurrent")
        for at, reverse in zip(lacking.tolist(), after.tolist(), strict=True)
    )
