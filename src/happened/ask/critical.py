"""The critical path of requests: where the time went, and what would be saved.

From the last event of a request the path leads back to whatever each event waited for last, up to the first
event of the request. Between two events of one place (a service, or a process) the time is that place's;
between two places it was under way, `a → b`.

What would be saved: the request is run again with all durations as they were (each event follows the last of
its causes after the same time) but for those of one place, which take none. Waits for other causes remain, so
that what is saved may be less than the time on the path. Durations that are negative by the clocks count as
zero. The first event of a request stays where it is.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ..causality.linearization import Ints
from ..causality.reach import NEVER, replay
from .errors import NoTimes
from .finding import find_request
from .history import Asked, History, Occurrence, load_whole

By: TypeAlias = Literal["service", "process"]

Between: TypeAlias = tuple[int, int]
"""The numbers of two places; twice the same one is at that place."""

QUANTILES = (0.5, 0.9, 0.99)
MOST_PLACES = 50
"""Places of which it is worked out what they would save; those with the most time on paths."""


class Segment(NamedTuple):
    """A stretch of a critical path, in ns: at one place, or under way between two."""

    place: str
    begin: Occurrence
    end: Occurrence
    took: int


class Share(NamedTuple):
    """What one place has part in: how many requests' paths it is on, ns on them, and ns that would be saved.

    saved   None where more than MOST_PLACES take part
    """

    place: str
    requests: int
    took: int
    saved: int | None


@dataclass(frozen=True)
class RequestPath:
    """The critical path of one request; `took` is the time from its first event to its last."""

    request: str
    took: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class CriticalPath:
    """The paths of requests, and the shares of places in all of them.

    slowest      the path of the slowest request
    took         ns of every request, in the order of `requests`
    untimed      requests that have fewer than two events with a time
    backwards    steps on the paths that are negative by the clocks, which count as zero
    """

    slowest: RequestPath
    requests: tuple[str, ...]
    took: tuple[int, ...]
    shares: tuple[Share, ...]
    untimed: int
    backwards: int

    def quantile(self, share: float) -> int:
        """The least time within which this share of the requests was done."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(np.ceil(share * len(ordered))) - 1)]


def critical_path(trace: Asked, request: str | None = None, *, by: By = "service") -> CriticalPath:
    """The critical paths of all requests, or of one. NoTimes if the trace has no times."""
    history = load_whole(trace)
    if history.times is None:
        raise NoTimes("no event has a time; a critical path in time cannot be told")
    codes, names = history.requests
    ends = _ends(history, codes, len(names))
    chosen = range(len(names)) if request is None else [find_request(history, request)]
    timed = [number for number in chosen if ends[number] is not None]
    if not timed:
        raise NoTimes("no request has two events with a time; a critical path in time cannot be told")
    places, place_names = _places(history, by)
    tally = _Tally(history, places, place_names)
    paths = []
    for number in timed:
        begin, end = ends[number] or (0, 0)
        paths.append(_walk_back(history, begin, end))
        tally.add(paths[-1])
    when, _ = history.waits
    took = [int(when[path[-1]] - when[path[0]]) for path in paths]
    slowest = int(np.argmax(took))
    return CriticalPath(
        RequestPath(names[timed[slowest]], took[slowest], tally.segments(paths[slowest])),
        tuple(names[number] for number in timed),
        tuple(took),
        tally.shares(np.array([path[0] for path in paths]), np.array([path[-1] for path in paths])),
        len(chosen) - len(timed),
        tally.backwards,
    )


def _places(history: History, by: By) -> tuple[Ints, Sequence[str]]:
    if by == "service":
        return history.places
    numbers = {name: number for number, name in enumerate(dict.fromkeys(history.union.process_names))}
    of = np.array([numbers[name] for name in history.union.process_names])
    return of[history.union.process], [*numbers]


def _ends(history: History, codes: Ints, requests: int) -> list[tuple[int, int] | None]:
    """Of each request, its first and its last event by corrected time; None if it has no two with a time."""
    times = history.times
    assert times is not None
    events = np.flatnonzero(times.timed & (codes >= 0))
    ends: list[tuple[int, int] | None] = [None] * requests
    # Of events at the same time the last in causal order is the last one, and the first the first.
    order = events[np.lexsort((events, times.corrected[events], codes[events]))]
    of = codes[order]
    bounds = np.searchsorted(of, np.arange(requests + 1))
    for number, (first, last) in enumerate(pairwise(bounds.tolist())):
        if last - first > 1:
            ends[number] = int(order[first]), int(order[last - 1])
    return ends


def _walk_back(history: History, begin: int, end: int) -> list[int]:
    """From the first event of a request to its last, along what was waited for last.

    Where that leads to something older than the request, the request itself begins there.
    """
    when, waited = history.waits
    path = [end]
    while path[-1] != begin:
        u = int(waited[path[-1]])
        if u < 0 or when[u] == NEVER or when[u] < when[begin]:
            path.append(begin)
            break
        path.append(u)
    return path[::-1]


class _Tally:
    """What the steps of paths took, by place."""

    def __init__(self, history: History, places: Ints, names: Sequence[str]) -> None:
        self.history, self.places, self.names = history, places, names
        self.paths: list[dict[Between, int]] = []  # of each request, ns at each place
        self.backwards = 0
        self._when = history.waits[0]

    def between(self, u: int, v: int) -> Between:
        return int(self.places[u]), int(self.places[v])

    def name(self, ends: Between) -> str:
        a, b = (self.names[place] for place in ends)
        return a if a == b else f"{a} → {b}"

    def add(self, path: Sequence[int]) -> None:
        mine: dict[Between, int] = defaultdict(int)
        for u, v in pairwise(path):
            took = int(self._when[v] - self._when[u])
            self.backwards += took < 0
            mine[self.between(u, v)] += max(0, took)
        self.paths.append(mine)

    def segments(self, path: Sequence[int]) -> tuple[Segment, ...]:
        """The path, with the steps at one place joined."""
        stretches: list[list[int]] = []
        for u, v in pairwise(path):
            if stretches and self.between(u, v) == self.between(*stretches[-1][-2:]):
                stretches[-1].append(v)
            else:
                stretches.append([u, v])
        return tuple(
            Segment(
                self.name(self.between(*stretch[:2])),
                self.history.occurrence(stretch[0]),
                self.history.occurrence(stretch[-1]),
                int(self._when[stretch[-1]] - self._when[stretch[0]]),
            )
            for stretch in stretches
        )

    def shares(self, begins: Ints, ends: Ints) -> tuple[Share, ...]:
        took: Counter[Between] = Counter()
        requests: Counter[Between] = Counter()
        for path in self.paths:
            took.update(path)
            requests.update(path.keys())
        ordered = sorted(took, key=lambda place: (-took[place], self.name(place)))
        saves = self._saves(ordered[:MOST_PLACES], begins, ends)
        return tuple(
            Share(self.name(place), requests[place], took[place], saves.get(place)) for place in ordered
        )

    def _saves(self, places: Sequence[Between], begins: Ints, ends: Ints) -> dict[Between, int]:
        c, when, waited = self.history.union, *self.history.waits
        after = np.flatnonzero((waited >= 0) & (when[waited] != NEVER))
        work = np.zeros(c.events, np.int64)
        work[after] = np.maximum(0, when[after] - when[waited[after]])
        source, target = self.places[waited[after]], self.places[after]
        pinned = np.zeros(c.events, bool)
        pinned[begins] = True
        as_it_was = replay(c, when, work, pinned)
        saves = {}
        for place in places:
            less = work.copy()
            less[after[(source == place[0]) & (target == place[1])]] = 0
            then = replay(c, when, less, pinned)
            # What came before a request cannot be saved in it: no more than its path has there.
            most = np.array([path.get(place, 0) for path in self.paths])
            saves[place] = int(np.minimum(as_it_was[ends] - then[ends], most).sum())
        return saves
