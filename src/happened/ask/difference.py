"""What is caused in one run and not in another.

Two runs share no clocks, and their sequence numbers mean little. An event of one run is taken for an event of
the other if both happened at the same place (a service, or a process) and are of the same kind, with the same
label (or message, where they have no label), and are the n-th of that sort there. Computations are taken for
one another by their names, or else in the order of names.

For events that both runs have: each immediate cause in one run, among those events, that did not happen
before its effect in the other.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints
from ..causality.predecessors import computation_predecessors
from ..causality.stamps import stamp_computation
from ..core.errors import CausalityError
from .history import Asked, History, Occurrence, load_whole

MOST_CELLS = 200_000_000
"""Entries of the vectors of a run: a gigabyte or so."""

Key: TypeAlias = tuple[str, str, str, str, int]
"""Computation of the first run, place, kind, label or message, and how many of that sort came before it
there."""


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
    names = _matched(one.union.computation_names, other.union.computation_names)
    keys = _keys(one, one.union.computation_names), _keys(other, names)
    events = [{key: e for e, key in enumerate(of)} for of in keys]
    there = [
        np.array([found.get(key, -1) for key in of]) for of, found in zip(keys, events[::-1], strict=True)
    ]
    common = int((there[0] >= 0).sum())
    if not common:
        raise CausalityError(
            "the runs have no event in common: one is known by its place, its kind, and its label or message"
        )
    runs = [_Run(history, of) for history, of in zip((one, other), there, strict=True)]
    ours, theirs = runs
    return Difference(common, ours.alone(), theirs.alone(), _caused(ours, theirs), _caused(theirs, ours))


def _matched(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    """For each computation of the second run, the name of the one of the first that it is taken for."""
    known, taken = set(first), set(second)
    left = (name for name in first if name not in taken)
    return [name if name in known else next(left, name) for name in second]


def _keys(history: History, names: Sequence[str]) -> list[Key]:
    """The key of each event; computations go by these names."""
    c = history.union
    places, place_names = history.places
    chain = c.chain
    texts = history.table.select(["label", "message", "kind"]).take(pa.array(c.row[chain])).to_pydict()
    owners = c.owner[c.process[chain]].tolist()
    seen: dict[tuple[str, str, str, str], int] = defaultdict(int)
    keys: list[Key] = [("", "", "", "", 0)] * c.events
    told = zip(chain.tolist(), owners, places[chain].tolist(), *(texts[name] for name in texts), strict=True)
    for e, owner, place, label, message, kind in told:  # by process and seq: the same in every run
        sort = (names[owner], place_names[place], kind, label or message or "")
        keys[e] = (*sort, seen[sort])
        seen[sort] += 1
    return keys


class _Run:
    """A run and its vectors; `there` is the number of each event in the other run, -1 if it has none."""

    def __init__(self, history: History, there: Ints) -> None:
        c = history.union
        if c.events * c.width > MOST_CELLS:
            raise CausalityError(
                f"{c.events:,} events of {c.width:,} processes are too many to be compared; take fewer"
            )
        self.history, self.there = history, there
        self.vectors = stamp_computation(c)

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
