"""Serve a view of a large or growing trace to the browser on this machine and to no other.

The server listens on 127.0.0.1 only. Every request must name this server as its host, which defeats DNS
rebinding; if it names an origin, that must be a page of this server; and it must carry the token from the
address that `happened view --serve` prints. Paths are looked up in a table, never in a file system. No
request changes anything.
"""

import hmac
import json
import os
import secrets
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from ..causality.linearization import Ints
from ..causality.reach import Extent, between, causal_path, future, past
from ..core.errors import CausalityError, LocalProtocolError
from ..trace import locate
from ..trace.store import StorePath
from .pages import MOST_COMPUTATIONS, Viewed, viewed
from .prepared import Prepared
from .query import matching
from .scene import compressed, scene
from .viewer_page import html, policy

MOST_EVENTS = 40_000
"""Events in one window: some 2 MB, which a browser draws at once."""
MOST_FOUND = 1_000
COLUMNS = 1_024  # columns of the overview
SHARE = 4  # re-reading the trace takes at most 1/SHARE of the time
ADDRESS = "127.0.0.1"
MOST_AT_ONCE = 8  # requests
MOST_CONNECTIONS = 64  # connections; a browser opens six
PATIENCE = 30  # seconds to wait for a request
POLL = 2000  # milliseconds between the page's polls for growth of the trace

Query = dict[str, str]
Answer = tuple[str, bytes]  # content type, content


@dataclass(eq=False)
class Windows:
    """The windows of one computation by levels, which are positions on its logical time axis."""

    prepared: Prepared

    @cached_property
    def _up_to(self) -> Ints:
        """The number of events with a level of at most 0, 1, …"""
        return np.concatenate([[0], np.cumsum(np.bincount(self.prepared.levels)[1:])])

    @property
    def depth(self) -> int:
        return len(self._up_to) - 1

    def window(self, low: int, high: int) -> bytes:
        """The scene of these levels and a margin; if these have too many events, of those in the middle."""
        if self.prepared.c.events <= MOST_EVENTS:
            return scene(self.prepared)
        low, high = self._bounded(low, high)
        return scene(self.prepared, between(self.prepared.c, self.prepared.levels, low, high), (low, high))

    def _bounded(self, low: int, high: int) -> tuple[int, int]:
        depth = self.depth
        low, high = sorted((min(max(low, 1), depth), min(max(high, 1), depth)))
        middle, wanted = (low + high) // 2, 2 * (high - low + 1)

        def events(half: int) -> int:
            return int(self._up_to[min(depth, middle + half)] - self._up_to[max(1, middle - half) - 1])

        # The largest half width, up to the wanted one, whose window has few enough events.
        half = max(0, bisect_right(range(wanted + 1), MOST_EVENTS, key=events) - 1)
        return max(1, middle - half), min(depth, middle + half)

    def slice(self, e: int, direction: str) -> bytes:
        """The scene of an event's past or future; if over MOST_EVENTS events, the nearest levels only."""
        c, levels = self.prepared.c, self.prepared.levels
        extent = past(c, e) if direction == "past" else future(c, e)
        note = f"The {direction} of {c.event(e).id}."
        if extent.events > MOST_EVENTS:
            distance = np.where(extent.mask(c), np.abs(levels - levels[e]), np.iinfo(np.int64).max)
            farthest = np.partition(distance, MOST_EVENTS)[MOST_EVENTS] - 1
            near = between(c, levels, levels[e] - farthest, levels[e] + farthest)
            extent = Extent(np.maximum(extent.begin, near.begin), np.minimum(extent.end, near.end))
            note += f" Its nearest {extent.events:,} events are shown."
        return scene(self.prepared, extent, note=note)

    def find(self, query: str) -> dict[str, Any]:
        """The events of the whole computation that match a query: their number, the first MOST_FOUND by
        level, and their number in each of COLUMNS stretches of the time axis."""
        c, levels = self.prepared.c, self.prepared.levels
        mask = matching(self.prepared, query)
        events = np.zeros(0, np.int64) if mask is None else np.flatnonzero(mask)
        columns = np.bincount((levels[events] - 1) * COLUMNS // max(self.depth, 1), minlength=COLUMNS)
        first = events[np.argsort(levels[events], kind="stable")][:MOST_FOUND].tolist()
        return {
            "count": int(events.size),
            "events": [{"event": c.event(e).id, "level": int(levels[e])} for e in first],
            "columns": columns.tolist(),
        }

    def reach(self, e: int) -> dict[str, int]:
        """How many events happened before and after the given one."""
        c = self.prepared.c
        return {"past": past(c, e).events - 1, "future": future(c, e).events - 1}

    def path(self, first: int, last: int) -> list[dict[str, Any]] | None:
        """The causal path between two events; None if the first did not happen before the last."""
        c, vectors = self.prepared.c, self.prepared.vectors
        if vectors is None or first == last or past(c, last).end[c.process[first]] < c.seq[first]:
            return None
        steps = causal_path(c, vectors, first, last)
        return [{"event": c.event(e).id, "level": int(self.prepared.levels[e])} for e in steps]


class Followed:
    """The trace at a path. `version` changes with the displayed data; `trouble` says why an update failed.

    A reader may see a delivery before the part with its message's send exists: then the trace is judged as it
    is, and again once it has grown.
    """

    def __init__(self, path: str, *, order: str = "causal", complete: bool | None = None) -> None:
        self._path = path
        self._order = order
        self._complete = complete
        self._lock = threading.RLock()
        self.trouble = ""
        self.version = ""
        self._next = 0.0
        self._read(self._fingerprint())

    def refresh(self) -> None:
        """Read the trace again if it has grown."""
        with self._lock:
            if time.monotonic() < self._next:
                return
            try:
                found = self._fingerprint()
                if found != self.version:
                    self._read(found)
                self.trouble = ""
            except (CausalityError, OSError) as error:
                self.trouble = f"The trace has changed and cannot be read: {error}"

    def about(self) -> dict[str, Any]:
        with self._lock:
            left = len(self._viewed.computations) - MOST_COMPUTATIONS
            notes = [f"{left:,} smaller computations are left out."] if left > 0 else []
            return self._viewed.about(MOST_COMPUTATIONS, notes)

    def windows(self, computation: int) -> Windows:
        """The windows of the computation with this number in `about`; of the first if none exists."""
        with self._lock:
            known = self._windows
            if not known:
                raise LocalProtocolError("there are no events yet")
            return known[computation if 0 <= computation < len(known) else 0]

    def _read(self, fingerprint: str) -> None:
        began = time.monotonic()
        self._viewed: Viewed = viewed(self._path, order=self._order, complete=self._complete)
        self._windows = [Windows(each) for each in self._viewed.computations]
        self.version = fingerprint
        ended = time.monotonic()
        self._next = ended + (ended - began) * (SHARE - 1)

    def _fingerprint(self) -> str:
        """A digest of the names, sizes and times of the parts: it changes when a part is written."""
        at = locate(self._path)
        said = []
        for part in at.parts or (at.root,):
            if isinstance(part, StorePath):
                said.append(str(part))
            else:
                state = os.stat(part)
                said.append(f"{part.name}:{state.st_size}:{state.st_mtime_ns}")
        return f"{len(said)}-{hash(tuple(said)) & (2**63 - 1):x}"


class _HttpRefusal(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ViewServer(ThreadingHTTPServer):
    """Serves a trace that may be growing. `address` is the URL to open; `serve_forever` starts serving."""

    daemon_threads = True

    def __init__(self, followed: Followed, port: int = 0, token: str | None = None) -> None:
        super().__init__((ADDRESS, port), _PageHandler)
        self.followed = followed
        self.token = token or secrets.token_urlsafe(24)
        self.port = int(self.server_address[1])
        self.places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.answers: dict[str, Callable[[Query], Answer]] = {
            "/": self._page,
            "/status": self._status,
            "/scene": self._scene,
            "/reach": lambda query: _json(self._windows(query).reach(*self._events(query, "event"))),
            "/path": lambda query: _json(self._windows(query).path(*self._events(query, "first", "last"))),
            "/find": lambda query: _json(self._windows(query).find(query.get("find", ""))),
        }

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle each connection in a thread, at most MOST_CONNECTIONS at once; close further connections."""
        if threading.active_count() > MOST_CONNECTIONS:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    @property
    def hosts(self) -> tuple[str, ...]:
        return (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")

    @property
    def address(self) -> str:
        return f"http://{self.hosts[0]}/?token={self.token}"

    def _page(self, query: Query) -> Answer:
        serve = {"token": self.token, "version": self.followed.version, "every": POLL}
        text = html(self.followed.about() | {"serve": serve}, (), "'self'")
        return "text/html; charset=utf-8", text.encode()

    def _status(self, query: Query) -> Answer:
        self.followed.refresh()
        said: dict[str, Any] = {"version": self.followed.version, "trouble": self.followed.trouble}
        if query.get("version") != self.followed.version:
            said["about"] = self.followed.about()
        return _json(said)

    def _scene(self, query: Query) -> Answer:
        windows = self._windows(query)
        direction = next((name for name in ("past", "future") if name in query), None)
        if direction is not None:
            (event,) = self._events(query, direction)
            block = windows.slice(event, direction)
        else:
            low = _number(query, "from", 1)
            block = windows.window(low, _number(query, "to", low + 200))
        return "application/octet-stream", compressed(block)

    def _windows(self, query: Query) -> Windows:
        return self.followed.windows(_number(query, "computation", 0))

    def _events(self, query: Query, *names: str) -> list[int]:
        windows = self._windows(query)
        return [_event(windows, query.get(name, "")) for name in names]


def _json(value: Any) -> Answer:
    return "application/json", json.dumps(value).encode()


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if len(text) > 15 or not text.removeprefix("-").isdecimal() or not text.isascii():
        raise _HttpRefusal(HTTPStatus.BAD_REQUEST, f"{name} is no number")
    return int(text)


def _event(windows: Windows, name: str) -> int:
    process, _, seq = name.rpartition("#")
    try:
        return windows.prepared.c.index(process, _number({"seq": seq}, "seq", 0))
    except LookupError:
        raise _HttpRefusal(HTTPStatus.NOT_FOUND, "no such event") from None


class _PageHandler(BaseHTTPRequestHandler):
    server: ViewServer
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"
    server_version = "happened"
    sys_version = ""

    def do_GET(self) -> None:
        status, kind, body = self._answered()
        # A slow reader no longer occupies one of the limited places.
        with suppress(ConnectionError):
            self._answer(status, kind, body)

    def _answered(self) -> tuple[HTTPStatus, str, bytes]:
        if not self.server.places.acquire(timeout=PATIENCE):
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"too many requests at once"
        try:
            return HTTPStatus.OK, *self._checked()
        except _HttpRefusal as refusal:
            return refusal.status, "text/plain; charset=utf-8", str(refusal).encode()
        except (CausalityError, OSError) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", str(error).encode()
        finally:
            self.server.places.release()

    def _checked(self) -> tuple[str, bytes]:
        """Answer a request after checking its host, origin, path and token."""
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            raise _HttpRefusal(HTTPStatus.FORBIDDEN, "this server has another name")
        site = self.headers.get("Sec-Fetch-Site", "none")
        if origins not in ([], [f"http://{hosts[0]}"]) or site not in ("none", "same-origin"):
            raise _HttpRefusal(HTTPStatus.FORBIDDEN, "pages of other servers get no answer")
        try:
            asked = urlsplit(self.path)
        except ValueError:
            raise _HttpRefusal(HTTPStatus.NOT_FOUND, "there is nothing here") from None
        if asked.scheme or asked.netloc or asked.path not in self.server.answers:
            raise _HttpRefusal(HTTPStatus.NOT_FOUND, "there is nothing here")
        try:
            given = parse_qs(asked.query, max_num_fields=10)
        except ValueError:
            raise _HttpRefusal(HTTPStatus.BAD_REQUEST, "too many questions at once") from None
        query = {name: values[-1] for name, values in given.items()}
        # The page is opened by its address; its script sends the token in a header, which no HTML form can.
        token = query.get("token") if asked.path == "/" else self.headers.get("X-Happened-Token")
        if not hmac.compare_digest((token or "").encode(), self.server.token.encode()):
            reason = "the token is missing or another one; use the address printed"
            raise _HttpRefusal(HTTPStatus.FORBIDDEN, reason)
        return self.server.answers[asked.path](query)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy("'self'") + "; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: answers to the page report errors."""
