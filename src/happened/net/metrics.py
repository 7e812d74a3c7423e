"""A node's numbers in Prometheus's text format, over the least HTTP that a scraper needs.

One answer per connection, to GET /metrics, and to /livez and /readyz where a node's health is known; a
request has REQUEST_SECONDS and REQUEST_BYTES.
The numbers are no secret to whoever can reach the port: names of peers, counts and sizes.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
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
"""Numbers of a node that only grow, but for a restart."""
GAUGES = {
    *("undelivered", "unacknowledged", "held", "held_bytes", "queued", "queued_bytes", "staged_bytes"),
    *("quarantined", "journal_bytes", "peer_outbox_frames", "peer_outbox_bytes", "peer_parked_bytes"),
    *("peer_paused", "peer_calling", "peer_called", "peer_gone"),
}

Numbers = Mapping[str, Any]


def render(numbers: Numbers, *, node: str) -> str:
    """Render numbers by name; a mapping of mappings (per peer, say) gets a label, its key's singular.

    {"sent": 7, "peers": {"bob": {"held": 1}}} becomes happened_sent and happened_peer_held{peer="bob"}.
    A histogram has its buckets. What is none of these is left out.
    """
    samples: dict[str, list[str]] = {}
    for name, labels, value in _samples(numbers, {"node": node}):
        samples.setdefault(name, [f"# TYPE {name} {_type(name)}"]).append(_sample(name, labels, value))
    for key, value in numbers.items():
        if isinstance(value, Histogram):
            name = _name(key)
            samples[name] = [f"# TYPE {name} histogram", *_buckets(name, value, {"node": node})]
    return "".join(f"{line}\n" for _, lines in sorted(samples.items()) for line in lines)


def _type(name: str) -> str:
    plain = name.removeprefix(PREFIX)
    if plain in COUNTERS:
        return "counter"
    return "gauge" if plain in GAUGES else "untyped"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(f'{key}="{_escape(label)}"' for key, label in labels.items())
    return f"{name}{{{text}}} {_number(value)}"


def _buckets(name: str, histogram: Histogram, labels: dict[str, str]) -> Iterator[str]:
    """Counts up to each bound, the sum and the count, as Prometheus reads them."""
    count = 0
    for bound, inside in zip((*map(repr, BOUNDS), "+Inf"), histogram.counts, strict=True):
        count += inside
        yield _sample(f"{name}_bucket", labels | {"le": bound}, count)
    yield _sample(f"{name}_sum", labels, histogram.sum)
    yield _sample(f"{name}_count", labels, count)


def _samples(numbers: Numbers, labels: dict[str, str]) -> Iterator[tuple[str, dict[str, str], float]]:
    for key, value in numbers.items():
        if isinstance(value, bool | int | float):
            yield _name(key), labels, value
        elif isinstance(value, Mapping):
            label = key.removesuffix("s")
            for member, inner in value.items():
                of_member = labels | {_plain(label): str(member)}
                if isinstance(inner, bool | int | float):
                    yield _name(label), of_member, inner
                elif isinstance(inner, Mapping):
                    for name, number in inner.items():
                        if isinstance(number, bool | int | float):
                            yield _name(f"{label}_{name}"), of_member, number


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _name(name: str) -> str:
    return PREFIX + _plain(name)


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool | int) else repr(value)


def _escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def serve_metrics(
    listen: tuple[str, int],
    collect: Callable[[], Numbers],
    *,
    node: str,
    health: Callable[[], "Health"] | None = None,
) -> asyncio.Server:
    """Answer until the server is closed; `collect` and `health` are called for each request."""

    def respond(request: bytes) -> bytes:
        return _response(request, lambda: render(collect(), node=node), health)

    open_connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        try:
            # TimeoutError, a request without end, a scraper that hangs up: there is nobody to tell.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                if open_connections <= CONNECTIONS:
                    async with asyncio.timeout(REQUEST_SECONDS):
                        request = await reader.readuntil(b"\r\n\r\n")
                        writer.write(respond(request))
                        await writer.drain()
        finally:
            open_connections -= 1
            writer.close()

    return await asyncio.start_server(answer, *listen, limit=REQUEST_BYTES)


def _response(request: bytes, body: Callable[[], str], health: "Callable[[], Health] | None" = None) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path not in (b"/metrics", *((b"/livez", b"/readyz") if health is not None else ())):
        return _http("404 Not Found", "there is /metrics\n")
    if method not in (b"GET", b"HEAD"):
        return _http("405 Method Not Allowed", "GET, please\n")
    if path == b"/metrics" or health is None:
        return _http("200 OK", body(), with_body=method == b"GET")
    now = health()
    status = "200 OK" if (now.is_live if path == b"/livez" else now.is_ready) else "503 Service Unavailable"
    return _http(status, "".join(f"{each}\n" for each in now.problems) or "ok\n", with_body=method == b"GET")


def _http(status: str, text: str, *, with_body: bool = True) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
