"""OpenTelemetry of a node: spans of what is sent, held, delivered and processed; their context in headers.

    send      producer   the application gives a message to the node
    hold      consumer   from the message's arrival to its delivery by the protocol, if other events came in
                         between; `happened.waits_for`: the messages that were missing when it arrived
    deliver   consumer   from then until the application can have it: journaled, if there is a journal
    process   consumer   what the application does in `with message.processing():`

All spans of a message are in the trace of its send: hold is a child of send, deliver of hold (or of send,
where the message was not held), process of deliver; hold and deliver also have a link to send. The context
travels in the headers that OpenTelemetry's propagators make: by default `traceparent` of W3C.

Promises   the send spans of one node start in the order of its sends, and its deliver spans in the order of
           its deliveries, even when the wall clock is set back: readers of spans may judge the order by them.
           For this reason each node is a partition (`messaging.destination.partition.id`) of the messages it
           sends, and of those it gets; messages outside all orders have none. An exporter that fails stops
           nothing: its first error is logged. Nothing is journaled: spans not exported at exit are lost.
Bounds     ARRIVALS undelivered messages are remembered; beyond that, the oldest get no hold span. What a
           message waits for is told while at most ASKED are on their way to delivery.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from .. import __version__
from ..core.errors import CausalityError
from ..ordering import Held
from .batch import Delivery, Recorder
from .message import Message, Sent
from .payloads import OWN, Payloads
from .qualified import PLAIN, How
from .sending import Sending

log = logging.getLogger("happened.node")

UNORDERED = OWN + "unordered"
"""The header of a message outside all orders; without it the receiver could not tell."""
ARRIVALS = 65_536
ASKED = 64

Name = tuple[int, int]


class Arrival(NamedTuple):
    seq: int
    time: int
    waits_for: tuple[str, ...]


Delivered = tuple[int, Arrival | None]
"""When a message was delivered, and its arrival if it was held before that."""


class Telemetry:
    """Makes the spans of one node. `provider`: None for the tracer provider that the process has set."""

    def __init__(self, provider: TracerProvider | None, node: str, cluster: str, payloads: Payloads) -> None:
        self._tracer = trace.get_tracer("happened", __version__, provider)
        self._node, self._cluster, self._payloads = node, cluster, payloads
        self._last = 0  # the time of the last event, in ns
        self._contexts: dict[int, Context] = {}  # by number, of deliveries that are not acknowledged
        self._has_failed = False

    def now(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last

    @contextlib.contextmanager
    def _harmless(self) -> Iterator[None]:
        """Within this context, errors of OpenTelemetry go to the log and stop nothing."""
        try:
            yield
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                log.warning(
                    "%s: a span was lost: %r; look at what processes spans. The next ones go unreported",
                    self._node,
                    error,
                    extra={"event": "telemetry", "node": self._node, "error": str(error)},
                )

    # Sending.

    @contextlib.contextmanager
    def sending(
        self, to: tuple[str, ...], size: int, headers: Mapping[str, str] | None, *, ordered: bool
    ) -> Iterator[tuple[Span, Mapping[str, str]]]:
        """A span for what is sent within this context, and the headers for the message."""
        span: Span = trace.INVALID_SPAN
        carried = dict(headers or {})
        if not ordered:
            carried[UNORDERED] = "1"
        with self._harmless():
            told = {"happened.to": to, "messaging.message.body.size": size}
            span = self._begin("send", told, ordered=ordered, kind=SpanKind.PRODUCER)
            propagate.inject(carried, trace.set_span_in_context(span))
        with self._ended(span):
            yield span, carried

    @contextlib.contextmanager
    def _ended(self, span: Span) -> Iterator[None]:
        """End a span when this context ends; the span records an error, but no cancellation."""
        try:
            yield
        except Exception as error:
            with self._harmless():
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        finally:
            with self._harmless():
                span.end(self.now())

    def _begin(
        self,
        operation: str,
        told: Mapping[str, Any],
        context: Context | None = None,
        start: int | None = None,
        *,
        ordered: bool,
        kind: SpanKind = SpanKind.CONSUMER,
        links: Sequence[Link] = (),
    ) -> Span:
        told = {
            "messaging.system": "happened",
            "messaging.operation.name": operation,
            "messaging.operation.type": "receive" if operation in ("hold", "deliver") else operation,
            "messaging.client.id": self._node,
            **({"messaging.destination.name": self._cluster} if self._cluster else {}),
            **({"messaging.destination.partition.id": self._node} if ordered else {}),
            **told,
        }
        name = f"{operation} {self._cluster}" if self._cluster else operation
        start = self.now() if start is None else start
        return self._tracer.start_span(name, context, kind, told, links, start_time=start)

    # Delivering.

    def delivered(self, delivery: Delivery, sender: str, when: Delivered | None) -> None:
        """The application can have a delivery; `when`: its delivery, if that was in this life."""
        with self._harmless():
            self._contexts[delivery.number] = self._tell(delivery, sender, when)

    def _tell(self, delivery: Delivery, sender: str, when: Delivered | None) -> Context:
        """Make the spans of a delivery; returns their context, for the spans that follow."""
        opened = self._payloads.open(delivery.payload)
        context = propagate.extract(opened.headers, Context())
        producer = trace.get_current_span(context).get_span_context()
        told = {"messaging.message.id": f"{sender}:{delivery.clock}", "happened.number": delivery.number}
        is_ordered = UNORDERED not in opened.headers
        begin = functools.partial(
            self._begin, ordered=is_ordered, links=[Link(producer)] if producer.is_valid else []
        )
        start, held = (None, None) if when is None else when
        if held is not None:
            span = begin("hold", told | {"happened.waits_for": held.waits_for}, context, held.time)
            span.end(start)
            context = trace.set_span_in_context(span, context)
        told |= {"messaging.message.body.size": len(opened.body)}
        told |= {"happened.again": True} if when is None else {}
        span = begin("deliver", told, context, start)
        span.end(self.now())
        return trace.set_span_in_context(span, context)

    def forget(self, number: int) -> None:
        """Forget the context of an acknowledged delivery: it is not handed out again."""
        self._contexts.pop(number, None)

    # Processing.

    def processing(self, number: int) -> "Callable[[Message], contextlib.AbstractContextManager[Any]]":
        """A function that makes the span in which the application processes this delivery."""
        return functools.partial(self._process, self._contexts.get(number))

    @contextlib.contextmanager
    def _process(self, context: Context | None, message: Message) -> Iterator[Span]:
        if context is None:  # without a journal, forgotten when taken; it has come again
            context = propagate.extract(message.headers, Context())
        told = {"messaging.message.id": message.name, "happened.attempt": message.attempt}
        span: Span = trace.INVALID_SPAN
        with self._harmless():
            span = self._begin("process", told, context, ordered=False)
        with self._ended(span), trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span


class SpanListener(Recorder):
    """Notes when messages arrive and are delivered, from the events that an engine records."""

    def __init__(
        self,
        telemetry: Telemetry,
        recorder: Recorder | None,
        me: int,
        pending: Callable[[], list[Held]],
        names: Callable[[int], str],
    ) -> None:
        super().__init__(recorder)
        self._telemetry, self._me = telemetry, me
        self._pending, self._names = pending, names
        self._arrivals: dict[Name, Arrival] = {}
        self._delivered: dict[Name, Delivered] = {}  # delivered, and not committed yet

    def committed(self, deliveries: Iterable[Delivery]) -> None:
        """The application can have these deliveries."""
        for each in deliveries:
            when = self._delivered.pop((each.sender, each.clock), None)
            self._telemetry.delivered(each, self._names(each.sender), when)

    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        # A protocol's own messages may have no clock; messages only forwarded here are not delivered.
        clock = getattr(message, "clock", None)
        if clock is not None and self._me in message.to:
            name = (message.sender, clock)
            if name not in self._arrivals:
                self._arrivals[name] = Arrival(seq, self._telemetry.now(), self._waits_for(name))
            if len(self._arrivals) > ARRIVALS:
                del self._arrivals[next(iter(self._arrivals))]
        super().received(seq, time, message, frame)

    def _waits_for(self, name: Name) -> tuple[str, ...]:
        if len(self._arrivals) > ASKED:
            return ()
        for held in self._pending():
            if (held.message.sender, held.message.clock) == name:
                return tuple(f"{self._names(sender)}:{clock}" for sender, clock in held.waits_for)
        return ()

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None:
        arrival = self._arrivals.pop((sender, clock), None)
        held = arrival if arrival is not None and seq > arrival.seq + 1 else None
        self._delivered[sender, clock] = (self._telemetry.now(), held)
        super().delivered(seq, time, sender, clock)


class TracedSending(Sending):
    """Sending with a span for each message; the message carries the span's context."""

    def __init__(self, telemetry: Telemetry, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._telemetry = telemetry
        self._has_span = False

    def now(
        self,
        to: str | Iterable[str],
        value: Any,
        headers: Mapping[str, str] | None,
        ordered: bool = True,
        how: How = PLAIN,
    ) -> Sent:
        to = to if isinstance(to, str) else tuple(to)
        self._has_span = False
        try:
            return super().now(to, value, headers, ordered, how)
        except CausalityError:
            if self._has_span:
                raise
            names = (to,) if isinstance(to, str) else to
            with self._telemetry.sending(names, 0, headers, ordered=ordered):  # it was refused before `send`
                raise

    def send(
        self,
        to: str | Sequence[str],
        links: Sequence[int],
        body: bytes,
        headers: Mapping[str, str] | None,
        ordered: bool,
        how: How,
    ) -> Sent:
        names = (to,) if isinstance(to, str) else tuple(to)
        self._has_span = True
        with self._telemetry.sending(names, len(body), headers, ordered=ordered) as (span, carried):
            name = super().send(to, links, body, carried, ordered, how)
            span.set_attribute("messaging.message.id", str(name))
            return name
