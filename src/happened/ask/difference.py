"""What one run caused and another run did not.

Two runs share no clocks, and their sequence numbers mean little. Two events, one of each run, can be partners
if they have the same sort: the same place (a service, or a process), the same kind, the same label (or
message, if they have no label), and computations of the same name if both runs have that name. On a process
that belongs to no service, the n-th event of a sort is the partner of the n-th. A service does many things at
once, and so do computations: there, events that look alike become partners.

An event's first colour is its sort; each round adds the colours of its neighbours: events of one colour after
n rounds look alike up to n steps away (colour refinement). Events that are the only ones of their sort are
partners, whatever surrounds them; in most traces without services that settles all events. The others are
matched causes first, first among events that look alike up to the greatest distance, then smaller ones: the
partner of an event is preferably an effect of its causes' partners, so that connected events stay connected.
Runs that are alike are matched without a difference, whatever their ids and the order of concurrent events,
unless their graphs are more entangled than calls, forks and joins. Cost: linear in events and edges, for each
distance in REACHES.

The result, for events that both runs have: each immediate cause in one run, among those events, that did not
happen before its effect in the other.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence, Set
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

SORT = ("computation", "place", "kind", "text")

MOST_CELLS = 200_000_000  # Entries of all vectors of a run: about a gigabyte

REACHES = (32, 16, 8, 4, 2, 1, 0)  # Distances to which surroundings are compared, greatest first


class Caused(NamedTuple):
    """A cause in one run that is none in the other; `instead` says how the two events are related there."""

    cause: Occurrence
    effect: Occurrence
    instead: str


@dataclass(frozen=True)
class Difference:
    """What only one of two runs has: events, and causes between events that both runs have."""

    common: int
    only_first: tuple[Occurrence, ...]
    only_second: tuple[Occurrence, ...]
    caused_first: tuple[Caused, ...]
    caused_second: tuple[Caused, ...]

    @property
    def is_empty(self) -> bool:
        return not (self.only_first or self.only_second or self.caused_first or self.caused_second)


def diff(first: Asked, second: Asked) -> Difference:
    """Compare what caused what in two runs. CausalityError if the runs have no event in common."""
    ours, theirs = _Run(load_whole(first)), _Run(load_whole(second))
    for run, sorts in zip((ours, theirs), _sorts(ours.history, theirs.history), strict=True):
        run.sort = sorts
    ours.there = _partners(ours, theirs)
    matched = np.flatnonzero(ours.there >= 0)
    theirs.there[ours.there[matched]] = matched
    if not matched.size:
        raise CausalityError(
            "the runs have no event in common: one is known by its place, its kind, and its label or message"
        )
    mine, yours = (tuple(run.history.occurrences(np.flatnonzero(run.there < 0))) for run in (ours, theirs))
    return Difference(matched.size, mine, yours, _caused(ours, theirs), _caused(theirs, ours))


def _sorts(one: History, other: History) -> list[Ints]:
    """A number for the sort of each event of each run; equal numbers mean equal sorts in both runs.

    A sort is the computation (if both runs have it), place, kind, label or message and, if the place is a
    process, how many events with all of these equal came before on it.
    """
    names = {*one.union.computation_names} & {*other.union.computation_names}
    runs = [_written(history, names) for history in (one, other)]
    columns = [np.concatenate(codes_of(*(run[name] for run in runs))[0]) for name in SORT]
    counts = [run.num_rows for run in runs]
    owner = np.concatenate([c.owner[c.process[c.chain]] for c in (one.union, other.union)])
    served = np.concatenate([run["served"].to_numpy() for run in runs])
    alike = _numbered(np.repeat([0, 1], counts), owner, *columns[1:])
    order = np.argsort(alike, kind="stable")
    earlier = np.empty(alike.size, np.int64)  # number of earlier events that are alike
    earlier[order] = (
        np.arange(alike.size) - (np.cumsum(np.bincount(alike)) - np.bincount(alike))[alike[order]]
    )
    before = np.where(served, 0, earlier)
    found = []
    for history, of in zip((one, other), np.split(_numbered(*columns, before), counts[:1]), strict=True):
        found.append(np.empty(of.size, np.int64))
        found[-1][history.union.chain] = of
    return found


def _written(history: History, names: Set[str]) -> pa.Table:
    """The columns SORT of each event, by process and seq, and whether the event belongs to a service; the
    computation is given only if it is among the names."""
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
            "served": history.attribute("service").is_valid().take(pa.array(c.row[c.chain])),
        }
    )


def _numbered(*columns: Ints) -> Ints:
    """A number for each row; rows that agree in all columns have the same number."""
    rows = np.zeros(columns[0].size, np.int64)
    for column in columns:
        rows = np.unique(rows * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return rows


class _Run:
    """A run and its vectors; `there` holds each event's number in the other run, -1 for none, and `sort` a
    number for each event's sort that means the same in both runs."""

    def __init__(self, history: History) -> None:
        c = history.union
        if c.events * c.width > MOST_CELLS:
            raise CausalityError(
                f"{c.events:,} events of {c.width:,} processes are too many to be compared; take fewer"
            )
        self.history = history
        self.sort: Ints = np.zeros(c.events, np.int64)
        self.there: Ints = np.full(c.events, -1, np.int64)
        self._vectors = stamp_computation(c)

    @cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """(effects, causes): the immediate causes among all events."""
        return computation_predecessors(self.history.union, self._vectors, np.ones(self.there.size, bool))

    def caused(self) -> tuple[Ints, Ints]:
        """(effects, causes): the immediate causes among the events that both runs have."""
        common = self.there >= 0
        if common.all():
            return self.edges
        return computation_predecessors(self.history.union, self._vectors, common)

    def are_before(self, e: Ints, f: Ints) -> Ints:
        """For pairs of events of e and f: whether the first happened before the second at one place."""
        c = self.history.union
        p = c.process[e]
        same = c.owner[p] == c.owner[c.process[f]]
        known: Ints = same & (self._vectors[f, p - c.first[p]] >= c.seq[e])
        return known

    def colours(self) -> dict[int, Ints]:
        """The colour of each event for each distance in REACHES."""
        effects, causes = self.edges
        colour = _mixed(self.sort.astype(np.uint64))
        found = {}
        for reach in range(REACHES[0] + 1):
            if reach in REACHES:
                found[reach] = colour
            before, after = np.zeros_like(colour), np.zeros_like(colour)
            np.add.at(before, effects, _mixed(colour)[causes])
            np.add.at(after, causes, _mixed(colour + np.uint64(1))[effects])
            colour = _mixed(colour + _mixed(before) + _mixed(after + np.uint64(2)))
        return found

    def causes_of(self) -> list[list[int]]:
        """The immediate causes of each event."""
        found: list[list[int]] = [[] for _ in range(self.there.size)]
        for effect, cause in zip(*(of.tolist() for of in self.edges), strict=True):
            found[effect].append(cause)
        return found


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


def _partners(one: _Run, other: _Run) -> Ints:
    """The partner of each event of one run in the other, -1 for none. Partners are of one sort; of each sort,
    as many events get partners as the run with fewer such events has."""
    there, left, free = _single(one.sort, other.sort)
    if not left.size:
        return there
    ours, theirs = one.colours(), other.colours()
    our_causes, their_causes = one.causes_of(), other.causes_of()
    found = there.tolist()
    for reach in REACHES:
        shared = np.intersect1d(ours[reach][left], theirs[reach][free])
        alike = left[np.isin(ours[reach][left], shared)]
        candidates = free[np.isin(theirs[reach][free], shared)]
        taken = _matched(
            zip(alike.tolist(), ours[reach][alike].tolist(), strict=True),
            zip(candidates.tolist(), theirs[reach][candidates].tolist(), strict=True),
            our_causes, their_causes, found, whatever=reach == 0,
        )  # fmt: skip
        left = np.array([e for e in left.tolist() if found[e] < 0], np.int64)
        free = np.setdiff1d(free, taken, assume_unique=True)
        if not (left.size and free.size):
            break
    return np.array(found, np.int64)


def _single(one: Ints, other: Ints) -> tuple[Ints, Ints, Ints]:
    """Pair the events of sorts that occur once in both runs; also return each run's unpaired events."""
    bound = int(max(one.max(initial=-1), other.max(initial=-1))) + 1
    here, beyond = np.bincount(one, minlength=bound), np.bincount(other, minlength=bound)
    once = (here == 1) & (beyond == 1)
    at = np.empty(bound, np.int64)
    at[other] = np.arange(other.size)
    open_sorts = (here > 0) & (beyond > 0) & ~once
    there = np.where(once[one], at[one], -1)
    return there, np.flatnonzero(open_sorts[one]), np.flatnonzero(open_sorts[other])


def _matched(
    alike: Iterable[tuple[int, int]],
    candidates: Iterable[tuple[int, int]],
    our_causes: Sequence[Sequence[int]],
    their_causes: Sequence[Sequence[int]],
    there: list[int],
    *,
    whatever: bool,
) -> list[int]:
    """Pair (event, colour) candidates of both runs, causes first; return the candidates that got partners.

    An event whose causes have partners is paired with an effect of these partners, or, with `whatever`, any.
    """
    pool: dict[int, deque[int]] = defaultdict(deque)
    led_to: dict[tuple[int, ...], deque[int]] = defaultdict(deque)  # keys: colour, and one cause or all
    for f, colour in candidates:
        pool[colour].append(f)
        for causes in {*((cause,) for cause in their_causes[f]), tuple(sorted(their_causes[f]))}:
            led_to[colour, *causes].append(f)
    taken: set[int] = set()
    for e, colour in alike:
        matched = [there[cause] for cause in our_causes[e] if there[cause] >= 0]
        sought = [tuple(sorted(matched)), *((cause,) for cause in matched)]
        queues = [led_to[colour, *causes] for causes in sought if (colour, *causes) in led_to]
        if not matched or whatever:
            queues.append(pool[colour])
        for queue in queues:
            while queue and queue[0] in taken:
                queue.popleft()
            if queue:
                there[e] = queue.popleft()
                taken.add(there[e])
                break
    return [*taken]


def _mixed(numbers: Ints) -> Ints:
    """Well-mixed 64-bit numbers (the finalizer of SplitMix64), so that equal sums are very unlikely."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Ints = x ^ (x >> np.uint64(31))
        return mixed
