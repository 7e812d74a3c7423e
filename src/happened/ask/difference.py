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

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints
from ..causality.predecessors import computation_predecessors
from ..causality.stamps import stamp_computation
from ..core.errors import CausalityError
from .history import Asked, History, Occurrence, load_whole
from .likeness import Shape, partners

MOST_CELLS = 200_000_000
"""Entries of the vectors of a run: a gigabyte or so."""

Sort: TypeAlias = tuple[str, str, str, str, int]
"""Computation if both runs have it, place, kind, label or message; and, where the place is a process, how
many of that sort came before it there."""


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
    numbers: dict[Sort, int] = {}
    runs = [_Run(history, _sorts(history, names, numbers)) for history in (one, other)]
    ours, theirs = runs
    ours.there = partners(ours.shape(), theirs.shape())
    matched = np.flatnonzero(ours.there >= 0)
    theirs.there[ours.there[matched]] = matched
    if not matched.size:
        raise CausalityError(
            "the runs have no event in common: one is known by its place, its kind, and its label or message"
        )
    caused = _caused(ours, theirs), _caused(theirs, ours)
    return Difference(matched.size, ours.alone(), theirs.alone(), *caused)


def _sorts(history: History, names: Set[str], numbers: dict[Sort, int]) -> Ints:
    """The sort of each event, by number; sorts that are new get new numbers."""
    c = history.union
    places, place_names = history.places
    chain = c.chain
    texts = history.table.select(["label", "message", "kind"]).take(pa.array(c.row[chain])).to_pydict()
    served = history.attribute("service").is_valid().to_numpy(zero_copy_only=False)[c.row[chain]].tolist()
    owners = c.owner[c.process[chain]].tolist()
    seen: dict[tuple[int, str, str, str], int] = defaultdict(int)
    sorts = np.empty(c.events, np.int64)
    told = zip(
        chain.tolist(), owners, places[chain].tolist(), served, *(texts[name] for name in texts), strict=True
    )
    for e, owner, place, is_service, label, message, kind in told:  # by process and seq
        text = label or message or ""
        name = c.computation_names[owner]
        before = 0
        if not is_service:
            before = seen[owner, place_names[place], kind, text]
            seen[owner, place_names[place], kind, text] += 1
        sort = (name if name in names else "", place_names[place], kind, text, before)
        sorts[e] = numbers.setdefault(sort, len(numbers))
    return sorts


class _Run:
    """A run and its vectors; `there` is the number of each event in the other run, -1 if it has none."""

    def __init__(self, history: History, sorts: Ints) -> None:
        c = history.union
        if c.events * c.width > MOST_CELLS:
            raise CausalityError(
                f"{c.events:,} events of {c.width:,} processes are too many to be compared; take fewer"
            )
        self.history, self.sorts = history, sorts
        self.there: Ints = np.full(c.events, -1, np.int64)
        self.vectors = stamp_computation(c)

    def shape(self) -> Shape:
        everything = np.ones(self.sorts.size, bool)
        return Shape(self.sorts, *computation_predecessors(self.history.union, self.vectors, everything))

    def alone(self) -> tuple[Occurrence, ...]:
        return tuple(self.history.occurrences(np.flatnonzero(self.there < 0)))

    def caused(self) -> tuple[Ints, Ints]:
        """(effects, causes): the immediate causes among the events that both runs have."""
        return computation_predecessors(self.history.union, self.vectors, self.there >= 0)

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
