"""Which events of two runs are the same, where names do not tell: by what led to them and what followed.

In    of each run, the sort of each event, as a number that means the same in both, and its immediate causes
Out   of each event of the one run, its partner in the other or -1; partners are of one sort, and of each sort
      as many have one as the run has that has fewer
Cost  linear in events and edges, for each of REACHES

An event is coloured by its sort, then by the colours around it, and so on: events of one colour after n
rounds look alike as far as n steps away (colour refinement). Partners are found causes first, among events
that look alike the farthest, then less far: the partner of an event is preferably an effect of its causes'
partners, so that what belongs together stays together. Runs that are alike are matched without a difference,
whatever their ids and in whatever order concurrent events came, unless they are knotted more than calls,
forks and joins are.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from ..causality.linearization import Ints

REACHES = (32, 16, 8, 4, 2, 1, 0)
"""How many steps events are compared around them, the farthest first."""


@dataclass(frozen=True, eq=False)
class Shape:
    """A run: the sort of each event, in a topological order, and (effects, causes) of its edges."""

    sort: Ints
    effects: Ints
    causes: Ints

    def colours(self) -> dict[int, list[int]]:
        """The colour of each event at each of REACHES."""
        colour = _mixed(self.sort.astype(np.uint64))
        found = {}
        for reach in range(REACHES[0] + 1):
            if reach in REACHES:
                found[reach] = colour.tolist()
            before, after = np.zeros_like(colour), np.zeros_like(colour)
            np.add.at(before, self.effects, _mixed(colour[self.causes]))
            np.add.at(after, self.causes, _mixed(colour[self.effects] + np.uint64(1)))
            colour = _mixed(colour + _mixed(before) + _mixed(after + np.uint64(2)))
        return found

    def causes_of(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(self.sort.size)]
        for effect, cause in zip(self.effects.tolist(), self.causes.tolist(), strict=True):
            found[effect].append(cause)
        return found


def partners(one: Shape, other: Shape) -> Ints:
    """The partner of each event of one run in the other, -1 if it has none."""
    ours, theirs = one.colours(), other.colours()
    our_causes, their_causes = one.causes_of(), other.causes_of()
    there = [-1] * one.sort.size
    free = [True] * other.sort.size
    for reach in REACHES:
        pool: dict[int, deque[int]] = defaultdict(deque)
        led_to: dict[tuple[int, ...], deque[int]] = defaultdict(deque)  # by colour and one cause, or all
        for f, colour in enumerate(theirs[reach]):
            if free[f]:
                pool[colour].append(f)
                for causes in {*((cause,) for cause in their_causes[f]), tuple(sorted(their_causes[f]))}:
                    led_to[colour, *causes].append(f)
        for e, colour in enumerate(ours[reach]):
            if there[e] >= 0 or colour not in pool:
                continue
            matched = [there[cause] for cause in our_causes[e] if there[cause] >= 0]
            sought = [tuple(sorted(matched)), *((cause,) for cause in matched)]
            queues = [led_to[colour, *causes] for causes in sought if (colour, *causes) in led_to]
            # One whose causes have partners is an effect of theirs, if only by a nearer look.
            if not matched or reach == 0:
                queues.append(pool[colour])
            for queue in queues:
                while queue and not free[queue[0]]:
                    queue.popleft()
                if queue:
                    there[e] = queue.popleft()
                    free[there[e]] = False
                    break
    return np.array(there, np.int64)


def _mixed(numbers: Ints) -> Ints:
    """Well spread 64-bit numbers (the finalizer of SplitMix64), so that sums of them hardly coincide."""
    with np.errstate(over="ignore"):
        x = numbers + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Ints = x ^ (x >> np.uint64(31))
        return mixed
