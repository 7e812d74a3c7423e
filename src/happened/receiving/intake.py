"""Puts requests into the log and the window; every transport calls Intake before it answers a request.

Bounds   the number of requests taken in at once, and the bytes of requests that are arriving; more are
         refused with Full, which says when to try again. A refused request is not logged.

SpanWindow has the spans of the last minutes. No span says that its trace has ended, so rules decide this by
the times at which spans arrive (`now`, in seconds since 1970: the window reads no clock):

    open    a span of the trace arrived within the last `settle` seconds
    ended   no span arrived for that long: the trace is judged. Another span opens it again
    gone    no span arrived for `window` seconds in this trace and in those judged together with it: the
            trace leaves the window. When there are more than `most_spans`, the traces that were silent
            longest leave, too. Spans that arrive afterwards are late: they are counted, and not judged

The window remembers the last REMEMBERED traces that left; a span of an older one begins a new trace. If a
span is sent again, the repetition is counted and not used.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from ..core.errors import RemoteProtocolError
from ..trace.readers.draft import Draft, QuarantinedRecord
from .export_requests import Encoding, ExportRequest, Malformed, decode
from .span_log import SpanLog

REMEMBERED = 100_000

Version: TypeAlias = tuple[str, int]
"""A trace's id, and a number that changes when a span is added to the trace."""

Group: TypeAlias = frozenset[Version]
"""All traces that belong to one computation."""


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
    """The spans of the last minutes, by trace. `counts`: spans `received`, `repeated`, `late`, and `dropped`
    because there were too many"""

    def __init__(self, rules: WindowRules) -> None:
        self.rules = rules
        self.counts: Counter[str] = Counter()
        self._traces: OrderedDict[str, _Trace] = OrderedDict()  # by the time of their last spans
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._added = 0
        self.spans = 0

    def add(self, drafts: Iterable[Draft], now: float) -> None:
        """Add spans to the window; it keeps the Draft objects themselves, so they must not be changed."""
        for draft in drafts:
            self.counts["received"] += not draft.absent
            self._add(draft, now)
        while self.spans > self.rules.most_spans:
            self.counts["dropped"] += self._retire(next(iter(self._traces)))

    def remember(self, traces: Iterable[str]) -> None:
        """Record that these traces have left the window."""
        self._gone.update(dict.fromkeys(traces))

    def is_any_silent(self, now: float) -> bool:
        """Whether a trace has been silent for as long as the window is."""
        oldest = next(iter(self._traces.values()), None)
        return oldest is not None and now - oldest.last >= self.rules.window

    def let_go(self, groups: Iterable[Group], now: float) -> list[Group]:
        """Remove and return the groups that were silent for `window` seconds and got no spans since they
        were grouped."""
        leaving = [group for group in groups if all(self._is_silent(*each, now) for each in group)]
        for trace, _ in (each for group in leaving for each in group):
            self._retire(trace)
        return leaving

    def _is_silent(self, trace: str, version: int, now: float) -> bool:
        of = self._traces.get(trace)
        return of is not None and of.version == version and now - of.last >= self.rules.window

    def since(self, now: float) -> float:
        """When the first of all spans in the window arrived."""
        return min((of.first for of in self._traces.values()), default=now)

    def all(self) -> dict[Version, list[Draft]]:
        """All traces with their spans; the trace that was silent longest comes first."""
        return {(trace, of.version): [*of.spans.values()] for trace, of in self._traces.items()}

    def ended(self, now: float) -> dict[Version, list[Draft]]:
        """The traces that have ended, oldest first, with their spans."""
        found = {}
        for trace, of in self._traces.items():
            if now - of.last < self.rules.settle:
                break  # the traces that follow got a span later than this one
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


MOST_REQUESTS = 32
MOST_BYTES = 64 << 20
MOST_LEFT_OUT = 1000
RETRY_AFTER = 1  # seconds
ON_THE_WAY = 60.0  # seconds that a request may take from the log to the window


class Full(RemoteProtocolError):
    """There is no room for a request: it was not logged, and may be sent again after `seconds`."""

    def __init__(self, reason: str, seconds: int = RETRY_AFTER) -> None:
        super().__init__(f"{reason}; send it again after {seconds} s")
        self.seconds = seconds


class Intake:
    """Counts requests without room (`refused`), bodies that are no requests (`malformed`) and spans that
    cannot be used (`rejected`).

    left_out   the last rejected spans
    """

    def __init__(
        self,
        log: SpanLog,
        window: SpanWindow,
        *,
        most_requests: int = MOST_REQUESTS,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._window = window
        self._clock = clock
        self._most = most_requests, most_bytes
        self._lock = threading.Lock()
        self._requests = self._bytes = 0
        self.refused = self.malformed = self.rejected = 0
        self.left_out: deque[QuarantinedRecord] = deque(maxlen=MOST_LEFT_OUT)

    def refuse(self) -> None:
        """Count a request that there is no room for."""
        with self._lock:
            self.refused += 1

    @contextmanager
    def coming(self) -> Iterator[Callable[[int], None]]:
        """Use it around reading a request. It yields a function that reserves room for more bytes before they
        are read, or raises Full if there is none. A request that is being read does not count as taken in,
        because its sender decides how long reading takes."""
        taken = 0

        def more(size: int) -> None:
            nonlocal taken
            with self._lock:
                if self._bytes > taken and self._bytes + size > self._most[1]:
                    raise self._full(f"{self._bytes:,} bytes")
                self._bytes += size
                taken += size

        try:
            yield more
        finally:
            with self._lock:
                self._bytes -= taken

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Hold room for a request that has been read while the body runs; Full if there is none. `size`: its
        bytes, unless `coming` has counted them."""
        with self._lock:
            if self._requests >= self._most[0]:
                raise self._full(f"{self._requests:,} requests")
            self._requests += 1
        try:
            with self.coming() as more:
                more(size)
                yield
        finally:
            with self._lock:
                self._requests -= 1

    def _full(self, what: str) -> Full:
        self.refused += 1
        return Full(f"{what} are being taken in, which is as many as there may be")

    def take(self, encoding: Encoding, body: bytes, source: str) -> ExportRequest:
        """Log a request and add its spans to the window; then it may be confirmed. Call it inside `room`.

        Malformed if the body is no request; Full if it cannot be written at present.
        """
        try:
            request = decode(encoding, body, source)
        except Malformed:
            with self._lock:
                self.malformed += 1
            raise
        if request.body:
            try:
                self._log.append(encoding, request.body)
            except OSError as error:
                self.refuse()
                raise Full(f"it could not be written ({error.strerror or error})", 10) from error
        self._add(request, self._clock())
        return request

    def replay(self, since: float, gone: Iterable[str] = ()) -> int:
        """Take in again the requests logged since `since`, without the traces in `gone`; returns how many."""
        self._window.remember(gone)
        count = 0
        for kept in self._log.recent(since):
            try:
                self._add(decode(kept.encoding, kept.body, "log"), kept.arrived)
                count += 1
            except Malformed as error:
                self.left_out.append(QuarantinedRecord("log", None, None, str(error)))
        del self._window.counts["late"]  # they were not late when they came
        return count

    def ended(self) -> tuple[float, dict[Version, list[Draft]]]:
        """The present time, and the traces that have ended by now."""
        with self._lock:
            now = self._clock()
            return now, self._window.ended(now)

    def if_any_silent(self) -> dict[Version, list[Draft]]:
        """All traces of the window if one of them may leave it, else none."""
        with self._lock:
            return self._window.all() if self._window.is_any_silent(self._clock()) else {}

    def let_go(self, groups: Iterable[Group]) -> list[Group]:
        """Let silent groups leave the window, as SpanWindow.let_go does; returns the groups that left."""
        with self._lock:
            return self._window.let_go(groups, self._clock())

    def since(self) -> float:
        """A time that is not after the arrival of any span in the window or on its way there."""
        with self._lock:
            now = self._clock()
            return min(self._window.since(now), now - ON_THE_WAY)

    def counts(self) -> dict[str, int]:
        with self._lock:
            counts = {name: self._window.counts[name] for name in ("received", "repeated", "late", "dropped")}
            more = {"spans": self._window.spans, "open_traces": self._window.open(self._clock())}
            refused = {name: getattr(self, name) for name in ("refused", "malformed", "rejected")}
            return counts | more | refused

    def _add(self, request: ExportRequest, now: float) -> None:
        with self._lock:
            self._window.add(request.drafts, now)
            self.rejected += len(request.left_out)
            self.left_out.extend(request.left_out)
