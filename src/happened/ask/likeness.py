"""Which events of two runs are the same, where names do not tell: by what led to them and what followed.

In    of each run, the sort of each event, as a number that means the same in both, and its immediate causes
Out   of each event of the one run, its partner in the other or -1; partners are of one sort, and of each sort
      as many have one as the run has that has fewer
Cost  linear in events and edges, for each of REACHES

An event is coloured by its sort, then by the colours around it, and so on: events of one colour after n
rounds look alike as far as n steps away (colour refinement). Events that are the only ones of their sort are
partners, whatever they look like; of most traces without services that is all. The others find theirs causes
first, among events that look alike the farthest, then less far: the partner of an event is preferably an
effect of its causes' partners, so that what belongs together stays together. Runs that are alike are matched
without a difference, whatever their ids and in whatever order concurrent events came, unless they are knotted
more than calls, forks and joins are.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..causality.linearization import Ints

REACHES = (32, 16, 8, 4, 2, 1, 0)
"""How many steps events are compared around them, the farthest first."""


@dataclass(frozen=True, eq=False)
class Shape:
    """A run: the sort of each event, in a topological order, and what tells its edges: (effects, causes)."""

    sort: Ints
    edges: Callable[[], tuple[Ints, Ints]]

    def colours(self) -> dict[int, Ints]:
        """The colour of each event at each of REACHES."""
        effects, causes = self.edges()
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
        found: list[list[int]] = [[] for _ in range(self.sort.size)]
        for effect, cause in zip(*(of.tolist() for of in self.edges()), strict=True):
            found[effect].append(cause)
        return found


def partners(one: Shape, other: Shape) -> Ints:
    """The partner of each event of one run in the other, -1 if it has none."""
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
    """Partners of sorts that both runs have once, and the events of each run that this leaves open."""
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
    """Give (event, colour) partners among the candidates, causes first; which were taken.

    An event whose causes have partners is an effect of theirs, if only by a nearer look; or `whatever`.
    """
    pool: dict[int, deque[int]] = defaultdict(deque)
    led_to: dict[tuple[int, ...], deque[int]] = defaultdict(deque)  # by colour and one cause, or all
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
    """Well spread 64-bit numbers (the finalizer of SplitMix64), so that sums of them hardly coincide."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Ints = x ^ (x >> np.uint64(31))
        return mixed
