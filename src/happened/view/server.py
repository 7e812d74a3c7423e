"""A view of a large or growing trace, served to the browser of this machine and to nobody else.

It listens on 127.0.0.1 only. Every request must name this server as its host, so that no other name can be
made to lead here; must come from a page of this server, if it says where it comes from; and must bring the
token that is in the address which `happened view --serve` prints. Paths are looked up in a table and never in
a file system. Nothing can be changed by a request.
"""

import hmac
import json
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..core.errors import CausalityError
from .followed import Followed
from .packing import compressed
from .viewer_page import html, policy
from .windows import Windows

ADDRESS = "127.0.0.1"
MOST_AT_ONCE = 8  # requests
MOST_CONNECTIONS = 64  # a browser opens six
PATIENCE = 30  # seconds for a request to come
POLL = 2000  # milliseconds between questions of the page whether the trace has grown

Query = dict[str, str]


class _HttpRefusal(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ViewServer(ThreadingHTTPServer):
    """Serve a trace that is followed while it grows. `address` is what to open; `serve_forever` serves."""

    daemon_threads = True

    def __init__(self, followed: Followed, port: int = 0, token: str | None = None) -> None:
        super().__init__((ADDRESS, port), _PageHandler)
        self.followed = followed
        self.token = token or secrets.token_urlsafe(24)
        self.port = int(self.server_address[1])
        self.places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self.answers: dict[str, Callable[[Query], tuple[str, bytes]]] = {
            "/": self._page,
            "/scene": self._scene,
            "/status": self._status,
            "/reach": self._reach,
            "/path": self._path,
            "/find": self._find,
        }

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for each connection, and no more of them than MOST_CONNECTIONS: others are closed."""
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

    def _page(self, query: Query) -> tuple[str, bytes]:
        serve = {"token": self.token, "version": self.followed.version, "every": POLL}
        return "text/html; charset=utf-8", html(
            self.followed.about() | {"serve": serve}, (), "'self'"
        ).encode()

    def _windows(self, query: Query) -> Windows:
        return self.followed.windows(_number(query, "computation", 0))

    def _scene(self, query: Query) -> tuple[str, bytes]:
        windows = self._windows(query)
        for direction in ("past", "future"):
            if direction in query:
                block = windows.slice(_event(windows, query[direction]), direction)
                return "application/octet-stream", compressed(block)
        low = _number(query, "from", 1)
        return "application/octet-stream", compressed(windows.window(low, _number(query, "to", low + 200)))

    def _status(self, query: Query) -> tuple[str, bytes]:
        self.followed.refresh()
        said: dict[str, Any] = {"version": self.followed.version, "trouble": self.followed.trouble}
        if query.get("version") != self.followed.version:
            said["about"] = self.followed.about()
        return "application/json", json.dumps(said).encode()

    def _reach(self, query: Query) -> tuple[str, bytes]:
        windows = self._windows(query)
        return "application/json", json.dumps(windows.reach(_event(windows, query.get("event", "")))).encode()

    def _find(self, query: Query) -> tuple[str, bytes]:
        found = self._windows(query).find(query.get("find", ""))
        return "application/json", json.dumps(found).encode()

    def _path(self, query: Query) -> tuple[str, bytes]:
        windows = self._windows(query)
        ends = (_event(windows, query.get(name, "")) for name in ("first", "last"))
        return "application/json", json.dumps(windows.path(*ends)).encode()


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
        # Who reads slowly, or not at all, has no place by now that others wait for.
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
        if origins not in ([], [f"http://{hosts[0]}"]):
            raise _HttpRefusal(HTTPStatus.FORBIDDEN, "pages of other servers get no answer")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
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
        # A page is opened by its address; its script sends the token in a header, which no form can.
        token = query.get("token") if asked.path == "/" else self.headers.get("X-Happened-Token")
        if not hmac.compare_digest((token or "").encode(), self.server.token.encode()):
            raise _HttpRefusal(
                HTTPStatus.FORBIDDEN, "the token is missing or another one; use the address printed"
            )
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
        """Log nothing: errors are part of the answer to the page."""
