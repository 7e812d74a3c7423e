"""The critical path of requests: where the time went, and how much a faster place would save.

From the last event of a request the path leads back to the cause that each event waited for last, up to the
first event of the request. The path uses only the request's own events and events that these led to. Time
spent on other work first, such as earlier messages in a queue, therefore counts for the request's own step.
Time between two events of one place (a service, or a process) counts for that place; time between two places
counts as transit, `a → b`. If the path comes to an event that has no recorded cause since the request began,
the time before that event belongs to no place and is shown as `(unknown)`.

The saving of a place is computed by replaying the request: each event follows the last of its causes after
the same time as before, except that durations at this place are zero; the request ends with the last of its
events. Waits for other causes remain, so the saving may be less than the place's time on the path. Durations
that are negative by the clocks count as zero. The first event of a request and the event at which its path
begins keep their times.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from ..causality.linearization import Ints
from ..causality.reach import NEVER, Edges, future_of, last_causes, replay, waited_chain
from ..core.errors import CausalityError
from .finding import find_request
from .history import Asked, History, Occurrence, load_whole
from .naming import NoTimes

By: TypeAlias = Literal["service", "process"]


def check_by(by: str) -> None:
    if by not in get_args(By):
        raise CausalityError(f"by can be {', '.join(get_args(By))}; not {by!r}")


Between: TypeAlias = tuple[str, str]  # Transit between two places; equal places: time at it

UNKNOWN: Between = ("(unknown)", "(unknown)")  # The place of time for which the trace records no cause

QUANTILES = (0.5, 0.9, 0.99)
MOST_PLACES = 50  # Places whose savings are computed: those with the most time on critical paths


class Segment(NamedTuple):
    """A stretch of a critical path, in ns: at one place, or in transit between two."""

    place: str
    begin: Occurrence
    end: Occurrence
    took: int


class _Step(NamedTuple):
    """The step from one event of a path (by number) to the next; its ns may be negative by the clocks."""

    begin: int
    end: int
    place: Between
    took: int


class Share(NamedTuple):
    """A place's share: how many requests' paths it is on, ns on those paths and ns that it would save."""

    place: str
    requests: int
    took: int
    saved: int | None  # None if more than MOST_PLACES places have a share


@dataclass(frozen=True)
class RequestPath:
    """The critical path of one request; `took` is the time from the request's first event to its last."""

    request: str
    took: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class CriticalPath:
    """The critical paths of requests, and each place's share of all of them."""

    slowest: RequestPath  # the path of the slowest request
    requests: tuple[str, ...]  # names of the requests in which two events have a time, sorted
    took: tuple[int, ...]  # ns that each of these requests took
    shares: tuple[Share, ...]
    untimed: int  # requests that have fewer than two events with a time
    backwards: int  # steps on the paths that are negative by the clocks and count as zero

    def quantile(self, share: float) -> int:
        """The least time within which this share of the requests finished."""
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(np.ceil(share * len(ordered))) - 1)]


def critical_path(trace: Asked, request: str | None = None, *, by: By = "service") -> CriticalPath:
    """The critical paths of all requests, or of one. NoTimes if the trace has no times."""
    paths = Paths(load_whole(trace), by, request)
    spent = paths.spent
    return concluded(spent, paths.saved(spent.ranked[:MOST_PLACES]), paths.path_of)


@dataclass
class Spent:
    """The time on critical paths of requests; values of parts of a trace can be added.

    took      by request name, ns it took, for requests in which two events have a time
    at        ns at each place, and between each two places, over all requests
    """

    took: dict[str, int] = field(default_factory=dict)
    at: Counter[Between] = field(default_factory=Counter)
    requests: Counter[Between] = field(default_factory=Counter)  # number of paths at each place
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
        """The places, in descending order of time."""
        return sorted(self.at, key=lambda place: (-self.at[place], told(place)))

    @property
    def slowest(self) -> str:
        """The slowest request; of equally slow ones the first by name. NoTimes if no request has a time."""
        if not self.is_timed:
            raise NoTimes("no event has a time; a critical path in time cannot be told")
        if not self.took:
            raise NoTimes("no request has two events with a time; a critical path in time cannot be told")
        return min(self.took, key=lambda name: (-self.took[name], name))


def concluded(
    spent: Spent, saved: Mapping[Between, int], path_of: Callable[[str], RequestPath]
) -> CriticalPath:
    """The answer, from the time on all paths, places' savings, and the path of a request by name."""
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


def _ends(history: History, codes: Ints, requests: int) -> dict[int, tuple[int, int]]:
    """For each request with two events that have a time, its first and last event by corrected time."""
    times = history.times
    if times is None:
        return {}
    events = np.flatnonzero(times.timed & (codes >= 0))
    # Of events at the same time, the last in causal order counts as the last, and the first as the first.
    order = events[np.lexsort((events, times.corrected[events], codes[events]))]
    bounds = np.searchsorted(codes[order], np.arange(requests + 1)).tolist()
    ranges = enumerate(pairwise(bounds))
    return {n: (int(order[first]), int(order[end - 1])) for n, (first, end) in ranges if end - first > 1}


class Ground(NamedTuple):
    """The events that the paths of some requests may lead over, with the edges between these events.

    when, waited   as `reach.last_causes` returns them
    """

    first: int  # the history's number of the first of these events; here they are numbered from 0
    requests: list[int]  # the numbers of the requests that own these events
    codes: Ints  # the request of each event
    edges: Edges
    when: Ints
    waited: Ints


def _grounds(history: History, codes: Ints, requests: list[int]) -> Iterator[Ground]:
    """One Ground for all requests whose events led to events of other requests and never back, and one Ground
    for each other request, with all events that its own events led to."""
    edges, (time, timed) = history.edges, history.clock

    def ground(first: int, end: int, of: list[int], group: Ints) -> Ground:
        own = edges.part(first, end).within(group)
        return Ground(first, of, codes[first:end], own, *last_causes(own, time[first:end], timed[first:end]))

    c = history.union
    causes, effects = edges.crossing(codes)
    owner = c.owner[c.process]
    bounds = np.searchsorted(owner, np.arange(len(c.computation_names) + 1)).tolist()
    order, back = np.argsort(codes, kind="stable"), []
    begins = np.searchsorted(codes[order], np.arange(codes.max(initial=0) + 2))
    for number in sorted({*codes[effects].tolist()} & {*requests}):
        into, mine = codes[effects] == number, order[begins[number] : begins[number + 1]]
        # A request may have events in several computations.
        first, end = bounds[owner[mine[0]]], bounds[owner[mine[-1]] + 1]
        led_to = future_of(edges.part(first, end), mine - first)
        if led_to[causes[into] - first].any():
            back.append(number)
            yield ground(first, end, [number], led_to)
    yield ground(0, c.events, sorted({*requests} - {*back}), codes)


class Paths:
    """The critical paths of the requests of a history, or of one of them."""

    def __init__(self, history: History, by: By = "service", request: str | None = None) -> None:
        check_by(by)
        self._history = history
        self._places, self._names = history.places
        if by == "process":
            c, numbers = history.union, dict[str, int]()
            of = [numbers.setdefault(name, len(numbers)) for name in c.process_names]
            self._places, self._names = np.array(of)[c.process], [*numbers]
        codes, names = history.requests
        chosen = range(len(names)) if request is None else [find_request(history, request)]
        ends = _ends(history, codes, len(names))
        known = [number for number in chosen if number in ends]
        self._grounds = list(_grounds(history, codes, known))
        self._paths: dict[str, list[_Step]] = {}
        self._request_names = names
        for ground in self._grounds:
            for number in ground.requests:
                self._paths[names[number]] = self._steps_to(ground, *ends[number])
        self._spent = {name: _spent_by(path) for name, path in self._paths.items()}
        self._untimed = len(chosen) - len(known)

    @property
    def spent(self) -> Spent:
        spent = Spent(untimed=self._untimed, is_timed=self._history.times is not None)
        for name, path in self._paths.items():
            spent.took[name] = sum(step.took for step in path)
            spent.backwards += sum(step.took < 0 for step in path)
            spent.at.update(self._spent[name])
            spent.requests.update(self._spent[name].keys())
        return spent

    def told(self) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
        """(name, first event, (place, ns) of each stretch of the path) for each request."""
        for name, path in self._paths.items():
            stretches = [(told(of[0].place), sum(step.took for step in of)) for of in _stretches(path)]
            yield name, path[0].begin, stretches

    def path_of(self, request: str) -> RequestPath:
        path, tell = self._paths[request], self._history.occurrence
        segments = (
            Segment(told(of[0].place), tell(of[0].begin), tell(of[-1].end), sum(step.took for step in of))
            for of in _stretches(path)
        )
        return RequestPath(request, sum(step.took for step in path), tuple(segments))

    def saved(self, places: Sequence[Between]) -> dict[Between, int]:
        """For each of these places, how much sooner all requests together would end if it took no time."""
        saves = dict.fromkeys(places, 0)
        for ground in self._grounds:
            for place, ns in self._saved(ground, places).items():
                saves[place] += ns
        return saves

    def _saved(self, ground: Ground, places: Sequence[Between]) -> dict[Between, int]:
        when, waited, edges = ground.when, ground.waited, ground.edges
        after = np.flatnonzero((waited >= 0) & (when[waited] != NEVER))
        work = np.zeros(edges.events, np.int64)
        work[after] = np.maximum(0, when[after] - when[waited[after]])
        at = self._places[ground.first : ground.first + edges.events]
        source, target = at[waited[after]], at[after]
        mine = [self._request_names[number] for number in ground.requests]
        pinned = np.zeros(edges.events, bool)
        for name in mine:
            first = self._paths[name][0]
            stays = [first.begin, first.end] if first.place == UNKNOWN else [first.begin]
            pinned[np.array(stays) - ground.first] = True
        as_it_was = _last(ground, replay(edges, when, work, pinned))
        numbers = {name: number for number, name in enumerate(self._names)}
        saves = {}
        for a, b in places:
            # Time before a request began cannot be saved: the saving is at most the place's time on the path.
            most = np.array([self._spent[name].get((a, b), 0) for name in mine], np.int64)
            if a in numbers and b in numbers and most.any():
                less = work.copy()
                less[after[(source == numbers[a]) & (target == numbers[b])]] = 0
                then = _last(ground, replay(edges, when, less, pinned))
                saves[a, b] = int(np.minimum(as_it_was - then, most).sum())
        return saves

    def _steps_to(self, ground: Ground, begin: int, end: int) -> list[_Step]:
        """The steps from the first event of a request to its last one."""
        when, at = ground.when, self._places
        path = waited_chain(when, ground.waited, end - ground.first, begin - ground.first)
        ends = [(u + ground.first, v + ground.first, int(when[v] - when[u])) for u, v in pairwise(path)]
        steps = [_Step(u, v, (self._names[at[u]], self._names[at[v]]), took) for u, v, took in ends]
        first, before = path[0], int(when[path[0]] - when[begin - ground.first])
        if first + ground.first != begin and (not steps or before > 0):
            steps.insert(0, _Step(begin, first + ground.first, UNKNOWN, before))
        return steps


def _stretches(path: Sequence[_Step]) -> Iterator[list[_Step]]:
    """The steps of a path, grouped into runs at one place."""
    return (list(steps) for _, steps in groupby(path, lambda step: step.place))


def _spent_by(path: Sequence[_Step]) -> dict[Between, int]:
    """Nanoseconds spent at each place of a path."""
    spent: dict[Between, int] = defaultdict(int)
    for step in path:
        spent[step.place] += max(0, step.took)
    return spent


def _last(ground: Ground, then: Ints) -> Ints:
    """The time of the last event of each request, if events happen at times `then`; skips untimed ones."""
    timed = np.flatnonzero((ground.when != NEVER) & (ground.codes >= 0))
    last = np.full(max(ground.requests, default=0) + 1, NEVER)
    here = timed[ground.codes[timed] < last.size]
    np.maximum.at(last, ground.codes[here], then[here])
    return last[ground.requests]
