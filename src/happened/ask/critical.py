"""The critical path of requests: where the time went, and what would be saved.

From the last event of a request the path leads back to whatever each event waited for last, up to the first
event of the request. Between two events of one place (a service, or a process) the time is that place's;
between two places it was under way, `a → b`. Where the path comes to an event of which no cause is known, or
none since the request began, nothing tells where the time before that went: it is at no place, `(unknown)`.

What would be saved: the request is run again with all durations as they were (each event follows the last of
its causes after the same time) but for those of one place, which take none, and ends with the last of its
events. Waits for other causes remain, so that what is saved may be less than the time on the path. Durations
that are negative by the clocks count as zero. The first event of a request stays where it is, and so does the
one at which its path begins.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from ..causality.linearization import Ints
from ..causality.reach import NEVER, replay
from .errors import NoTimes
from .finding import find_request
from .history import Asked, History, Occurrence, load_whole

By: TypeAlias = Literal["service", "process"]

Between: TypeAlias = tuple[str, str]
"""Two places; twice the same one is at that place."""

UNKNOWN: Between = ("(unknown)", "(unknown)")
"""Where the time went of which nothing is recorded."""

QUANTILES = (0.5, 0.9, 0.99)
MOST_PLACES = 50
"""Places of which it is worked out what they would save; those with the most time on paths."""


class Segment(NamedTuple):
    """A stretch of a critical path, in ns: at one place, or under way between two."""

    place: str
    begin: Occurrence
    end: Occurrence
    took: int


class Step(NamedTuple):
    """From one event of a path to the next, by number; ns, which clocks may make negative."""

    begin: int
    end: int
    place: Between
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
    requests     those with two events that have a time, by name
    took         ns of each of them
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
    paths = Paths(load_whole(trace), by, request)
    spent = paths.spent
    return concluded(spent, paths.saved(spent.ranked[:MOST_PLACES]), paths.path_of)


@dataclass
class Spent:
    """What critical paths of requests took, which adds up over parts of a trace.

    took      ns of each request that has two events with a time, by its name
    at        ns at each place, and between each two, in all of them
    requests  how many of their paths are there
    """

    took: dict[str, int] = field(default_factory=dict)
    at: Counter[Between] = field(default_factory=Counter)
    requests: Counter[Between] = field(default_factory=Counter)
    untimed: int = 0
    backwards: int = 0
    is_timed: bool = False

    def add(self, other: "Spent") -> None:
        self.took |= other.took
        self.at.update(other.at)
        self.requests.update(other.requests)
        self.untimed += other.untimed
        self.backwards += other.backwards
        self.is_timed |= other.is_timed

    @property
    def ranked(self) -> list[Between]:
        """The places, those that took the most time first."""
        return sorted(self.at, key=lambda place: (-self.at[place], told(place)))

    @property
    def slowest(self) -> str:
        """The slowest request, of several the first by name. NoTimes if no request has a time."""
        if not self.is_timed:
            raise NoTimes("no event has a time; a critical path in time cannot be told")
        if not self.took:
            raise NoTimes("no request has two events with a time; a critical path in time cannot be told")
        return min(self.took, key=lambda name: (-self.took[name], name))


def concluded(
    spent: Spent, saved: Mapping[Between, int], path_of: Callable[[str], RequestPath]
) -> CriticalPath:
    """The answer, from what all paths took, what places would save, and the path of a request by name."""
    slowest = path_of(spent.slowest)
    names = sorted(spent.took)
    shares = (
        Share(told(place), spent.requests[place], spent.at[place], saved.get(place)) for place in spent.ranked
    )
    took = tuple(spent.took[name] for name in names)
    return CriticalPath(slowest, tuple(names), took, tuple(shares), spent.untimed, spent.backwards)


def told(place: Between) -> str:
    a, b = place
    return a if a == b else f"{a} → {b}"


def _places(history: History, by: By) -> tuple[Ints, Sequence[str]]:
    if by == "service":
        return history.places
    numbers = {name: number for number, name in enumerate(dict.fromkeys(history.union.process_names))}
    of = np.array([numbers[name] for name in history.union.process_names])
    return of[history.union.process], [*numbers]


def _ends(history: History, codes: Ints, requests: int) -> list[tuple[int, int] | None]:
    """Of each request, its first and its last event by corrected time; None if it has no two with a time."""
    times = history.times
    if times is None:
        return [None] * requests
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
    """To the last event of a request, along what was waited for last, from its first event, or from one of
    which no cause is known, or none since then.
    """
    when, waited = history.waits
    path = [end]
    while path[-1] != begin:
        u = int(waited[path[-1]])
        if u < 0 or when[u] == NEVER or when[u] < when[begin]:
            break
        path.append(u)
    return path[::-1]


class Paths:
    """The critical paths of the requests of a history, or of one of them."""

    def __init__(self, history: History, by: By = "service", request: str | None = None) -> None:
        self._history = history
        self._places, self._names = _places(history, by)
        self._when, self._waited = history.waits
        codes, names = history.requests
        chosen = range(len(names)) if request is None else [find_request(history, request)]
        ends = _ends(history, codes, len(names))
        self._paths: dict[str, list[Step]] = {}
        for number in chosen:
            if (of := ends[number]) is not None:
                self._paths[names[number]] = self._steps_to(*of)
        self._steps = {name: _spent_by(path) for name, path in self._paths.items()}
        self._numbers = [number for number in chosen if ends[number] is not None]
        self._untimed = len(chosen) - len(self._paths)

    @property
    def spent(self) -> Spent:
        spent = Spent(untimed=self._untimed, is_timed=self._history.times is not None)
        for name, path in self._paths.items():
            spent.took[name] = self._took(path)
            spent.backwards += sum(step.took < 0 for step in path)
            spent.at.update(self._steps[name])
            spent.requests.update(self._steps[name].keys())
        return spent

    def path_of(self, request: str) -> RequestPath:
        path = self._paths[request]
        return RequestPath(request, self._took(path), self._segments(path))

    def saved(self, places: Sequence[Between]) -> dict[Between, int]:
        """How much sooner all requests together would end if one place took no time, for each of these."""
        c, when, waited = self._history.union, self._when, self._waited
        after = np.flatnonzero((waited >= 0) & (when[waited] != NEVER))
        work = np.zeros(c.events, np.int64)
        work[after] = np.maximum(0, when[after] - when[waited[after]])
        source, target = self._places[waited[after]], self._places[after]
        pinned = np.zeros(c.events, bool)
        for path in self._paths.values():
            first = path[0]
            pinned[[first.begin, first.end] if first.place == UNKNOWN else first.begin] = True
        as_it_was = self._last(replay(c, when, work, pinned))
        numbers = {name: number for number, name in enumerate(self._names)}
        saves = dict.fromkeys(places, 0)
        for a, b in places:
            if a in numbers and b in numbers:
                less = work.copy()
                less[after[(source == numbers[a]) & (target == numbers[b])]] = 0
                then = self._last(replay(c, when, less, pinned))
                # What came before a request cannot be saved in it: no more than its path has there.
                most = np.array([steps.get((a, b), 0) for steps in self._steps.values()], np.int64)
                saves[a, b] = int(np.minimum(as_it_was - then, most).sum())
        return saves

    def _last(self, then: Ints) -> Ints:
        """When the last event of each request is, if events happen then; what has no time is left out."""
        codes, names = self._history.requests
        timed = np.flatnonzero((self._when != NEVER) & (codes >= 0))
        last = np.full(len(names), NEVER)
        np.maximum.at(last, codes[timed], then[timed])
        return last[self._numbers]

    def _took(self, path: Sequence[Step]) -> int:
        return int(self._when[path[-1].end] - self._when[path[0].begin])

    def _steps_to(self, begin: int, end: int) -> list[Step]:
        """The steps from the first event of a request to its last one."""
        path = _walk_back(self._history, begin, end)
        steps = [self._step(u, v, self._between(u, v)) for u, v in pairwise(path)]
        if path[0] != begin and (not steps or self._when[path[0]] > self._when[begin]):
            steps.insert(0, self._step(begin, path[0], UNKNOWN))
        return steps

    def _step(self, begin: int, end: int, place: Between) -> Step:
        return Step(begin, end, place, int(self._when[end] - self._when[begin]))

    def _between(self, u: int, v: int) -> Between:
        return self._names[self._places[u]], self._names[self._places[v]]

    def _segments(self, path: Sequence[Step]) -> tuple[Segment, ...]:
        """The path, with the steps at one place joined."""
        stretches = (list(steps) for _, steps in groupby(path, lambda step: step.place))
        return tuple(
            Segment(
                told(stretch[0].place),
                self._history.occurrence(stretch[0].begin),
                self._history.occurrence(stretch[-1].end),
                sum(step.took for step in stretch),
            )
            for stretch in stretches
        )


def _spent_by(path: Sequence[Step]) -> dict[Between, int]:
    """ns at each place of a path."""
    spent: dict[Between, int] = defaultdict(int)
    for step in path:
        spent[step.place] += max(0, step.took)
    return spent
