"""A node's numbers in Prometheus's text format, over the part of HTTP that a scraper needs.

A connection gets one answer: to GET /metrics, and to /livez and /readyz where a node's health is known. A
request may take REQUEST_SECONDS and REQUEST_BYTES.
Anybody who can reach the port can read the numbers: names of peers, counts and sizes.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .timing import BOUNDS, Histogram

if TYPE_CHECKING:
    from .message import Health

PREFIX = "happened_"
REQUEST_SECONDS = 5.0
REQUEST_BYTES = 8192
CONNECTIONS = 16

COUNTERS = {
    *("frames_received", "frames_duplicate", "commits", "refused", "multicasts", "deliveries", "events"),
    *("failure", "peer_sent", "peer_acknowledged", "peer_received", "medium"),
}
"""Numbers of a node that only grow, except at a restart."""
GAUGES = {
    *("undelivered", "unacknowledged", "held", "held_bytes", "queued", "queued_bytes", "staged_bytes"),
    *("quarantined", "journal_bytes", "peer_outbox_frames", "peer_outbox_bytes", "peer_parked_bytes"),
    *("peer_paused", "peer_calling", "peer_called", "peer_gone"),
}

Numbers = Mapping[str, Any]


def render(numbers: Numbers, *, node: str) -> str:
    """Render numbers by name; a mapping of mappings (per peer, say) gets a label, the singular of its key.

    {"sent": 7, "peers": {"bob": {"held": 1}}} becomes happened_sent and happened_peer_held{peer="bob"}.
    A histogram is rendered as its buckets. A value of any other kind is left out.
    """
    samples: dict[str, list[str]] = {}
    for key, labels, value in _samples(numbers, {"node": node}):
        name = PREFIX + _plain(key)
        kind = "counter" if key in COUNTERS else "gauge" if key in GAUGES else "untyped"
        if isinstance(value, Histogram):
            samples[name] = [f"# TYPE {name} histogram", *_buckets(name, value, labels)]
        else:
            samples.setdefault(name, [f"# TYPE {name} {kind}"]).append(_sample(name, labels, value))
    return "".join(f"{line}\n" for _, lines in sorted(samples.items()) for line in lines)


def _samples(numbers: Numbers, labels: dict[str, str]) -> Iterator[tuple[str, dict[str, str], Any]]:
    for key, value in numbers.items():
        if isinstance(value, bool | int | float | Histogram):
            yield key, labels, value
        elif isinstance(value, Mapping):
            label = key.removesuffix("s")
            for member, inner in value.items():
                of_member = labels | {_plain(label): str(member)}
                each = inner.items() if isinstance(inner, Mapping) else [("", inner)]
                for name, number in each:
                    if isinstance(number, bool | int | float):
                        yield f"{label}_{name}" if name else label, of_member, number


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    escaped = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    text = ",".join(f'{key}="{label.translate(escaped)}"' for key, label in labels.items())
    return f"{name}{{{text}}} {int(value) if isinstance(value, bool | int) else repr(value)}"


def _buckets(name: str, histogram: Histogram, labels: dict[str, str]) -> Iterator[str]:
    """The cumulative count for each bound, the sum and the count, as Prometheus expects them."""
    bounds = (*map(repr, BOUNDS), "+Inf")
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield _sample(f"{name}_bucket", labels | {"le": bound}, count)
    yield _sample(f"{name}_sum", labels, histogram.sum)
    yield _sample(f"{name}_count", labels, sum(histogram.counts))


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


async def serve_metrics(
    listen: tuple[str, int],
    collect: Callable[[], Numbers],
    *,
    node: str,
    health: Callable[[], "Health"] | None = None,
) -> asyncio.Server:
    """Answer requests until the server is closed; each request calls `collect` or `health`."""
    open_connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            # On a timeout, a request without end, or a scraper that hangs up, nobody is left to be told.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if open_connections <= CONNECTIONS:
                    async with asyncio.timeout(REQUEST_SECONDS):
                        request = await reader.readuntil(b"\r\n\r\n")
                        writer.write(_response(request, lambda: render(collect(), node=node), health))
                        await writer.drain()
        finally:
            open_connections -= 1
            writer.close()

    return await asyncio.start_server(answer, *listen, limit=REQUEST_BYTES)


def _response(request: bytes, body: Callable[[], str], health: "Callable[[], Health] | None") -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, text = "200 OK", ""
    if path not in (b"/metrics", *((b"/livez", b"/readyz") if health is not None else ())):
        status, text = "404 Not Found", "there is /metrics\n"
    elif method not in (b"GET", b"HEAD"):
        status, text = "405 Method Not Allowed", "GET, please\n"
    elif path == b"/metrics" or health is None:
        text = body()
    else:
        now = health()
        text = "".join(f"{each}\n" for each in now.problems) or "ok\n"
        if not (now.is_live if path == b"/livez" else now.is_ready):
            status = "503 Service Unavailable"
    answer = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(answer)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else answer)
