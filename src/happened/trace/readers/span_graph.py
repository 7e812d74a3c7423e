"""The events of spans and the edges of happened-before between them, with the evidence for each edge.

A span has two events, its start and its end. The edges, by kind:

    recorded   parent    a span started after the start of its parent
               link      a span started after the start of a span that it links to
               request   a call: the caller's start is a send, the callee's start its delivery
               publish   a message through a queue: from the producer's start to the consumer's
    implied    span      a span ends after it starts
               return    a synchronous call: the callee's end is a send, the caller's end its delivery
               nested    a span that is not detached ends before its parent
               sequence  of two spans of one parent, or of one thread or task, the one that ended before the
                         other started comes first, by the clock they share
               queue     events of an instance that send to, or handle, one channel follow its clock
               clock     the order of a process's clock, with --clock-order only
               message   a message leaves, or arrives, apart from the start or end of its span

A span is *detached* if the record shows that its parent did not wait for it: it is on the other side of a
queue, or ended later than its parent by the same clock, or, if their clocks differ, took longer than its
parent. A missing time, or an end before its start, implies nothing. Implied edges that contradict the record
are left out.

A span has more than two events only if one event would need two roles: a batch delivers each of its messages
separately, a span with several remote children receives each return, and a span whose start is a delivery has
a separate event that sends to its children.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, permutations

from ..schema import LANE
from .cycles import Parentage, circles
from .draft import Draft
from .span_drafts import GROUPS, OPERATIONS, TASKS, callee_of, caller_of, first_of, has_failed, is_partition

RECORDED = frozenset({"parent", "link", "request", "publish"})
BY_CLOCK = frozenset({"sequence", "queue", "clock"})

MOST_PAIRED = 1000
"""Up to this many spans of one parent, thread or task, all pairs are ordered when clocks contradict the
record; with more, orders that only follow from a contradicted one may be left out with it.
"""

NEVER_ENDS = 1 << 63
"""Later than every other time."""

LOCAL, CALL, PUBLISH, LINK = "local", "request", "publish", "link"


@dataclass(slots=True)
class SpanEvent:
    """One event of a span, before it has a place on a lane.

    owner    the instance, or the queue of an instance, whose lanes may hold the event
    within   the span on whose lane the event may be while the span is open; -1: none
    before   (event, kind of edge) for each direct predecessor
    """

    span: int
    what: str  # start, end, or another role
    owner: str
    time: int | None = None
    kind: str = "internal"
    message: str | None = None
    within: int = -1
    before: list[tuple[int, str]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


class SpanGraph:
    """Events 2i and 2i + 1 are the start and the end of span i; additional events follow.

    senders    the send of each message
    detached   number of detached spans
    dropped    number of implied edges that contradicted the record
    """

    def __init__(self, spans: Sequence[Draft], parentage: Parentage) -> None:
        self.spans = spans
        self.events: list[SpanEvent] = []
        self.senders: dict[str, int] = {}
        self.detached = 0
        self.dropped = 0
        self._kind = [span.attributes.get("kind", "") for span in spans]
        self._lane_parent = [-1] * len(spans)  # the local parent that waits for each span
        self._local_parents: list[list[int]] = [[] for _ in spans]
        for i, span in enumerate(spans):
            self.events.append(SpanEvent(i, "start", span.process, span.time))
            self.events.append(SpanEvent(i, "end", span.process, span.end, within=i))
            self._before(2 * i + 1, 2 * i, "span")
        requests: list[list[int]] = [[] for _ in spans]  # for each span, the spans that received its message
        incoming: list[list[int]] = [[] for _ in spans]
        returns: list[list[int]] = [[] for _ in spans]  # for each span, the callees whose return it received
        self._ties: dict[tuple[int, int], str] = {}
        for i, of in enumerate(parentage.parents):
            for j in of:
                tie = self._ties[i, j] = self._tie(i, j, j in parentage.linked[i])
                if tie in (CALL, PUBLISH):
                    requests[j].append(i)
                    incoming[i].append(j)
                else:
                    self._before(2 * i, 2 * j, "parent" if tie == LOCAL else LINK)
                self._wait(i, j, tie, returns)
        self._send(requests, incoming)
        queues = self._deliver(requests, incoming)
        self._return(returns)
        self._groups = self._threads_of_control()
        for group in self._groups:
            for earlier, later in sequences(group):
                self._before(2 * later, 2 * earlier + 1, "sequence")
        self._handle(queues)
        self._note_peers(requests, parentage)

    def _before(self, event: int, earlier: int, kind: str) -> None:
        self.events[event].before.append((earlier, kind))

    def _extra(self, span: int, what: str, owner: str, time: int | None = None) -> int:
        self.events.append(SpanEvent(span, what, owner, time))
        return len(self.events) - 1

    def _tie(self, i: int, j: int, link: bool) -> str:
        """Add the edges between span i and its parent, or linked span, j."""
        child, parent = self.spans[i], self.spans[j]
        queued = self._kind[i] == "consumer" or self._kind[j] == "producer"
        if link:
            return PUBLISH if queued else LINK
        if child.process != parent.process:
            return PUBLISH if queued else CALL
        if (self._kind[j], self._kind[i]) == ("client", "server") or child.id == parent.id:
            return CALL
        return PUBLISH if (self._kind[j], self._kind[i]) == ("producer", "consumer") else LOCAL

    def _wait(self, i: int, j: int, tie: str, returns: list[list[int]]) -> None:
        """Add an edge from the end of span i to the end of span j if j waited for i."""
        if tie == LOCAL:
            self._local_parents[i].append(j)
        if tie in (PUBLISH, LINK):
            return
        child, parent = interval(self.spans[i]), interval(self.spans[j])
        if child is None or parent is None:
            return
        same_clock = self.spans[i].process == self.spans[j].process
        took = child[1] - child[0] > parent[1] - parent[0]
        if child[1] > parent[1] if same_clock else took:
            self.detached += 1
        elif tie == CALL:
            returns[j].append(i)
        else:
            self._before(2 * j + 1, 2 * i + 1, "nested")
            if self._lane_parent[i] < 0:
                self._lane_parent[i] = self.events[2 * i].within = j

    def _send(self, requests: list[list[int]], incoming: list[list[int]]) -> None:
        """Turn the start of every span that sent a message into a send, or add a send after it."""
        by_channel: dict[tuple[str, str], list[list[int]]] = {}
        for j, span in enumerate(self.spans):
            if not requests[j] and self._kind[j] != "producer":
                continue
            event = 2 * j
            if len(incoming[j]) == 1:
                event = self._extra(j, "send", span.process)
                self._before(event, 2 * j, "message")
            self._make_send(event, self._name(j))
            channel = self._sent_to(j, requests[j])
            if channel is not None:
                by_channel.setdefault((span.process, channel), []).append([event])
        for runs in by_channel.values():
            self._follow(self._by_time(runs))

    def _sent_to(self, j: int, receivers: Sequence[int]) -> str | None:
        """The channel that span j sent to. A consumer's channel is where it took its message from, and a call
        goes through no queue, even if its caller names one."""
        queued = self._kind[j] == "producer" or any(self._ties[i, j] == PUBLISH for i in receivers)
        return self.spans[j].channel if queued and self._kind[j] != "consumer" else None

    def _name(self, i: int) -> str:
        """The name of a span's message: the span's id, and the span's name for readers."""
        return f"{self.spans[i].id} {self.spans[i].label or ''}".rstrip()

    def _make_send(self, event: int, name: str) -> None:
        """Turn the event into a send of a message with a unique name: span ids may repeat."""
        unique, number = name, 1
        while unique in self.senders:
            number += 1
            unique = f"{name}/{number}"
        self.senders[unique] = event
        self.events[event].kind, self.events[event].message = "send", unique

    def _deliver(self, requests: list[list[int]], incoming: list[list[int]]) -> list[list[list[int]]]:
        """Turn the starts of callees and consumers into deliveries, or add deliveries before them. Return the
        deliveries from each queue, as one run for each span."""
        sent_by = {self.events[event].span: name for name, event in self.senders.items()}
        queues: dict[str, list[list[int]]] = {}
        for i, sources in enumerate(incoming):
            runs: dict[str, list[int]] = {}
            for j in sources:
                event = 2 * i
                if len(sources) > 1:
                    event = self._extra(i, "deliver", self.spans[i].process, self.spans[i].time)
                    self._before(2 * i, event, "message")
                message = sent_by[j]
                self._before(event, self.senders[message], self._ties[i, j])
                handled_inside = self._ties[i, j] == PUBLISH and self._is_received_only(i, requests[j])
                self.events[event].kind = "receive" if handled_inside else "deliver"
                self.events[event].message = message
                queue = None
                if not handled_inside:
                    caller = self.spans[j].attributes
                    failed = {"caller_failed": "true"} if has_failed(caller) else {}
                    self.events[event].notes |= {"caller": caller["service"]} | failed
                    queue = self._queue(i, j)
                if queue is not None:
                    self.events[event].owner = queue
                    self.events[event].within = -1
                    runs.setdefault(queue, []).append(event)
            for queue, run in runs.items():
                queues.setdefault(queue, []).append(run)
        return list(queues.values())

    def _handle(self, queues: list[list[list[int]]]) -> None:
        """Order the deliveries from each queue. A batch is handed over at once, and the order in which it
        lists its messages is no evidence: they are put in an order in which they can have been sent."""
        levels = [self._by_time(runs) for runs in queues]
        if any(len(run) > 1 for runs in queues for run in runs):
            for earlier_runs, later_runs in (pair for level in levels for pair in pairwise(level)):
                for run in later_runs:
                    start = 2 * self.events[run[0]].span
                    for event in chain.from_iterable(earlier_runs):
                        self._before(start, event, "queue")
            rank = {event: at for at, event in enumerate(self._consistent_order())}

            def sent_at(delivery: int) -> tuple[int, int]:
                """The position of the delivery's send in that order; if the send is on a cycle, its time."""
                send = self.senders[self.events[delivery].message or ""]
                return rank.get(send, len(rank)), self.spans[self.events[send].span].time or 0

            for run in (run for runs in queues for run in runs):
                run.sort(key=sent_at)
        for runs, level in zip(queues, levels, strict=True):
            for run in runs:
                for earlier, later in pairwise(run):
                    self._before(later, earlier, "queue")
            self._follow(level)

    def _is_received_only(self, i: int, receivers: Sequence[int]) -> bool:
        """Whether a span only fetched a message that was given to another span, which it started.

        The span that polls a broker and the span that processes the message both name the producer.
        """
        if len(receivers) == 1:
            return False
        operation = first_of(self.spans[i].attributes, OPERATIONS)
        others = [k for k in receivers if k != i and self.spans[k].process == self.spans[i].process]
        if operation == "receive" and any(
            first_of(self.spans[k].attributes, OPERATIONS) == "process" for k in others
        ):
            return True
        return any(i in self._local_ancestors(k) for k in others)

    def _local_ancestors(self, i: int) -> Iterator[int]:
        while self._local_parents[i]:
            i = self._local_parents[i][0]
            yield i

    def _queue(self, i: int, j: int) -> str | None:
        """The queue of its instance that span i took the message of span j from, if one is named."""
        if self._ties[i, j] != PUBLISH:
            return None
        channels = (self.spans[i].channel, self._sent_to(j, [i]))
        named = [channel for channel in channels if channel is not None]
        if not named:
            return None
        channel = next((each for each in named if not is_partition(each)), named[0])
        group = first_of(self.spans[i].attributes, GROUPS)
        return f"{self.spans[i].process}{LANE}[{f'{group}:' if group else ''}{channel}]"

    def _by_time(self, runs: Iterable[list[int]]) -> list[list[list[int]]]:
        """The timed runs of one clock in order of time, grouped by equal times."""
        at: dict[int, list[list[int]]] = {}
        for run in runs:
            time = self.spans[self.events[run[0]].span].time
            if time is not None:
                at.setdefault(time, []).append(run)
        return [at[time] for time in sorted(at)]

    def _follow(self, level: list[list[list[int]]]) -> None:
        """Add edges from each group of runs to the next group in order of time."""
        for earlier_runs, later_runs in pairwise(level):
            for run in later_runs:
                for earlier in earlier_runs:
                    self._before(run[0], earlier[-1], "queue")

    def _return(self, returns: list[list[int]]) -> None:
        """Turn the ends of callees into sends of the messages that their callers' ends receive."""
        answered = {i for callees in returns for i in callees}
        for j, callees in enumerate(returns):
            for i in callees:
                end = 2 * i + 1
                if self.events[end].kind != "send":
                    self._make_send(end, f"{self._name(i)} (return)")
                arrival = 2 * j + 1
                if len(callees) > 1 or j in answered:
                    arrival = self._extra(j, "return", self.spans[j].process)
                    self._before(2 * j + 1, arrival, "message")
                    self._before(arrival, 2 * j, "span")
                self._before(arrival, end, "return")
                self.events[arrival].kind, self.events[arrival].message = "deliver", self.events[end].message

    def _threads_of_control(self) -> list[list[tuple[int, int, int]]]:
        """Spans (with start and end) that one clock orders: spans of one parent, of one thread or task. A
        span without a known end can only come after others."""
        groups: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        for i, span in enumerate(self.spans):
            times = interval(span)
            if times is None:
                if span.time is None:
                    continue
                times = span.time, NEVER_ENDS
            if self._lane_parent[i] >= 0:
                groups.setdefault(("parent", str(self._lane_parent[i])), []).append((i, *times))
            task = first_of(span.attributes, TASKS)
            if task is not None:
                groups.setdefault((f"task of {span.process}", task), []).append((i, *times))
        return list(groups.values())

    def _note_peers(self, requests: list[list[int]], parentage: Parentage) -> None:
        """Record the peers of spans: whom they called or who called them, if that side recorded nothing.

        Nested calls are layers of one call: only the innermost spans record its peer.
        """
        facts = [span.attributes for span in self.spans]
        callees = [callee_of(*of) for of in zip(facts, self._kind, strict=True)]
        outer: set[int] = set()
        for i, callee in enumerate(callees):
            if requests[i] or callee is not None:
                for j in self._local_ancestors(i):
                    if j in outer:
                        break
                    outer.add(j)
        for i, callee in enumerate(callees):
            if callee is not None and not requests[i] and i not in outer:
                self.events[2 * i].notes["callee"] = callee
            caller = caller_of(facts[i], self._kind[i])
            if caller is not None and not parentage.parents[i]:
                self.events[2 * i].notes["caller"] = caller

    def drop_contradictions(self) -> None:
        """Leave out the clock orders that close a cycle with the recorded edges."""
        # A pair implied by other pairs may lose them below: so add every pair before some are left out.
        for group in self._groups:
            if len(group) <= MOST_PAIRED:
                for (earlier, _, end), (later, start, _) in permutations(group, 2):
                    if end < start:
                        self._before(2 * later, 2 * earlier + 1, "sequence")
        for at, kept in self._without_circles():
            event = self.events[at]
            self.dropped += len(set(event.before)) - len(set(kept))
            event.before = kept

    def _consistent_order(self) -> list[int]:
        """An order of events that contradicts no recorded edge, and no clock edge consistent with these."""
        order = causes_first(self.events)
        if len(order) == len(self.events):
            return order
        events = list(self.events)
        for at, kept in self._without_circles():
            events[at] = replace(events[at], before=kept)
        return causes_first(events)

    def _without_circles(self) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """For each event on a cycle, its incoming edges without the clock edges that close the cycle."""
        for circle in circles([[earlier for earlier, _ in event.before] for event in self.events]):
            members = set(circle)
            for at in circle:
                before = self.events[at].before
                yield at, [edge for edge in before if edge[0] not in members or edge[1] not in BY_CLOCK]


def causes_first(events: Sequence[SpanEvent]) -> list[int]:
    """A topological order that follows recorded times as far as it can, so that lanes are easy to read.

    Events on a cycle, or after one, are left out.
    """
    unmet = [len(event.before) for event in events]
    effects = effects_of(events)
    latest = [event.time if event.time is not None else -(1 << 63) for event in events]
    ready = [(latest[e], e) for e, count in enumerate(unmet) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        time, e = heapq.heappop(ready)
        order.append(e)
        for effect in effects[e]:
            if events[effect].time is None:
                latest[effect] = max(latest[effect], time)
            unmet[effect] -= 1
            if unmet[effect] == 0:
                heapq.heappush(ready, (latest[effect], effect))
    return order


def effects_of(events: Sequence[SpanEvent]) -> list[list[int]]:
    """For each event, the events to which it has an edge."""
    effects: list[list[int]] = [[] for _ in events]
    for e, event in enumerate(events):
        for earlier, _ in event.before:
            effects[earlier].append(e)
    return effects


def interval(span: Draft) -> tuple[int, int] | None:
    """The start and end of a span, if both are recorded and the end is not before the start."""
    if span.time is None or span.end is None or span.end < span.time:
        return None
    return span.time, span.end


def sequences(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """(earlier, later) for spans (name, start, end) that do not overlap, without pairs implied by others.

    If one span ended before a second started, and the second ended before a third started, the first and
    third are not paired. Equal times imply no order.
    """
    by_end = deque(sorted(spans, key=lambda span: span[2]))
    ended: deque[tuple[int, int, int]] = deque()
    latest_start = -(1 << 63)
    for later, start, _ in sorted(spans, key=lambda span: span[1]):
        while by_end and by_end[0][2] < start:
            ended.append(by_end.popleft())
            latest_start = max(latest_start, ended[-1][1])
        while ended and ended[0][2] < latest_start:
            ended.popleft()
        for earlier, _, _ in ended:
            yield earlier, later
