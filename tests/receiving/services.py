"""Three little services, instrumented with the OpenTelemetry SDK, with three faults planted.

shop takes an order, asks stock whether it is there and publishes `created` and then `cancelled`, both about
order 42; stock's clock is SKEW ahead, and it looks in the cellar for CELLAR; billing handles `cancelled`
first.

The services are providers of one process, and each has an exporter of its own. Times are given to the SDK, so
that nobody has to wait for them.
"""

import time

from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

SKEW = 7_000_000_000
CELLAR = 900_000_000
MILLISECOND = 1_000_000
MESSAGING = {"messaging.destination.name": "orders", "messaging.kafka.message.key": "42"}


class Service:
    """`span` makes one whole span, and returns what a call or message would carry."""

    def __init__(self, name, exporter, *, ahead=0):
        resource = Resource({"service.name": name, "service.instance.id": f"{name}-1"})
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("tests")
        self._ahead = ahead

    def span(self, name, kind, begin, end, carrier=None, **attributes):
        context = propagate.extract(carrier or {})
        span = self._tracer.start_span(
            name, context, kind, attributes, start_time=begin + self._ahead, record_exception=False
        )
        carried = {}
        propagate.inject(carried, trace.set_span_in_context(span))
        span.end(end + self._ahead)
        return carried

    def send(self):
        """Whether everything was sent; an SDK gives up after a while."""
        return self.provider.force_flush(10_000)

    def close(self):
        self.provider.shutdown()


def an_order(shop, stock, billing, now=None):
    """What the services do; the ends of spans are as far apart as `now` and the constants say."""
    now = time.time_ns() if now is None else now

    def at(milliseconds):
        return now + milliseconds * MILLISECOND

    done = at(20) + CELLAR
    order = shop.span("order", SpanKind.SERVER, at(0), done + 40 * MILLISECOND)
    ask = shop.span("in stock?", SpanKind.CLIENT, at(1), done, order)
    look = stock.span("in stock?", SpanKind.SERVER, at(5), at(8) + CELLAR, ask)
    stock.span("look in the cellar", SpanKind.INTERNAL, at(6), at(6) + CELLAR, look)
    created = shop.span("publish created", SpanKind.PRODUCER, done + 1, done + 2, order, **MESSAGING)
    cancelled = shop.span("publish cancelled", SpanKind.PRODUCER, done + 10, done + 11, **MESSAGING)
    later = done + 20 * MILLISECOND
    billing.span("handle cancelled", SpanKind.CONSUMER, later, later + 5, cancelled, **MESSAGING)
    billing.span("handle created", SpanKind.CONSUMER, later + 10, later + 15, created, **MESSAGING)
