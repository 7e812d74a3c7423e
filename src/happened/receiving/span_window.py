"""The spans of the last minutes, by trace: which traces are open, have ended, or have gone.

Nobody says when a trace is at its end, so it is a matter of rules, by the time at which spans arrive:

    open    a span came within the last `settle` seconds
    ended   none came for that long: the trace is judged. A span that comes now opens it again
    gone    none came for `window` seconds, neither to it nor to those that it is judged together with: the
            trace leaves the window. So do the ones that were silent longest when there are more than
            `most_spans`. Spans that come after that are late: they are counted, and not judged

The last REMEMBERED traces that have gone are remembered; a span of an older one begins a new trace. A span
that was sent again is taken once.

No clock is read here: `now` is seconds since 1970, given by the caller.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..trace.readers.draft import Draft

REMEMBERED = 100_000

Version: TypeAlias = tuple[str, int]
"""A trace, and a number that changes when a span is added to it."""

Group: TypeAlias = frozenset[Version]
"""The traces of one computation."""


@dataclass(frozen=True, slots=True)
class WindowRules:
    settle: float = 5.0
    window: float = 300.0
    most_spans: int = 200_000


@dataclass(slots=True)
class _Trace:
    first: float
    last: float
    version: int = 0
    spans: dict[tuple[object, ...], Draft] = field(default_factory=dict)


class SpanWindow:
    """counts   spans `received`, `repeated`, `late`, and `dropped` because there were too many"""

    def __init__(self, rules: WindowRules) -> None:
        self.rules = rules
        self.counts: Counter[str] = Counter()
        self._traces: OrderedDict[str, _Trace] = OrderedDict()  # by the time of their last spans
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._added = 0
        self.spans = 0

    def add(self, drafts: Iterable[Draft], now: float) -> None:
        """Take spans in; they are kept as they are and must not be changed."""
        for draft in drafts:
            self.counts["received"] += not draft.absent
            self._add(draft, now)
        while self.spans > self.rules.most_spans:
            self.counts["dropped"] += self._retire(next(iter(self._traces)))

    def remember(self, traces: Iterable[str]) -> None:
        """These have gone."""
        self._gone.update(dict.fromkeys(traces))

    def is_any_silent(self, now: float) -> bool:
        """Whether a trace has been silent for as long as the window is."""
        oldest = next(iter(self._traces.values()), None)
        return oldest is not None and now - oldest.last >= self.rules.window

    def let_go(self, groups: Iterable[Group], now: float) -> list[Group]:
        """Those of the groups that have been silent for as long as the window is, and are as they were when
        they were grouped. They leave."""
        leaving = [group for group in groups if all(self._is_silent(*each, now) for each in group)]
        for trace, _ in (each for group in leaving for each in group):
            self._retire(trace)
        return leaving

    def _is_silent(self, trace: str, version: int, now: float) -> bool:
        of = self._traces.get(trace)
        return of is not None and of.version == version and now - of.last >= self.rules.window

    def since(self, now: float) -> float:
        """When the first span came of all that are here."""
        return min((of.first for of in self._traces.values()), default=now)

    def all(self) -> dict[Version, list[Draft]]:
        """All traces, the one that was silent longest first, with their spans."""
        return {(trace, of.version): [*of.spans.values()] for trace, of in self._traces.items()}

    def ended(self, now: float) -> dict[Version, list[Draft]]:
        """The traces that have ended, oldest first, with their spans."""
        found = {}
        for trace, of in self._traces.items():
            if now - of.last < self.rules.settle:
                break  # those that follow had a span after it
            found[trace, of.version] = [*of.spans.values()]
        return found

    def open(self, now: float) -> int:
        """How many traces are open."""
        return sum(now - of.last < self.rules.settle for of in self._traces.values())

    def _add(self, draft: Draft, now: float) -> None:
        trace = draft.computation
        if trace in self._gone:
            self.counts["late"] += not draft.absent
            return
        of = self._traces.setdefault(trace, _Trace(now, now))
        key = (draft.id, draft.process, draft.shared, draft.absent, draft.time, draft.end, draft.label)
        if key in of.spans:
            self.counts["repeated"] += not draft.absent
            return
        of.spans[key] = draft
        of.last = now
        of.version = self._added = self._added + 1
        self._traces.move_to_end(trace)
        self.spans += 1

    def _retire(self, trace: str) -> int:
        size = len(self._traces.pop(trace).spans)
        self.spans -= size
        self._gone[trace] = None
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return size
