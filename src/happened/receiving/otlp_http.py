"""OTLP over HTTP: POST /v1/traces, protobuf or JSON, plain or gzip, with Content-Length or in chunks.

Refusals have the codes of OTLP: 400 for a malformed request, 429 with Retry-After when there is no room, 503
when there are too many connections. A connection whose request is incomplete is closed when another one needs
its place, or after PATIENCE, so that half a request takes no place from a whole one.

A web page of another site cannot send anything here: browsers send both content types to another origin only
after a CORS preflight, and this server allows none.
"""

import socket
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .export_requests import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, Encoding, Malformed, status, success
from .intake import RETRY_AFTER, Full, Intake

PATH = "/v1/traces"
MOST_BYTES = 16 << 20  # of a request, compressed or not
MOST_CONNECTIONS = 64
POLL = 0.1  # seconds between two checks whether the server should stop
PATIENCE = 30  # seconds in which a request must arrive whole, or a connection's next request must begin
LEAVING = 1.0  # seconds in which the thread of a connection that was let go must end
PIECE = 1 << 16  # bytes that are read at once
MOST_UNREAD = 4 * MOST_BYTES  # the most bytes of a refused request that are read and discarded
UNREAD_SECONDS = 5  # the longest time for that
LONGEST_LINE = 1000  # the most bytes in a line between chunks
MOST_TRAILERS = 100
BUSY = (
    f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: {RETRY_AFTER}\r\nContent-Length: 0\r\n"
    "Connection: close\r\n\r\n"
).encode()


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpReceiver(ThreadingHTTPServer):
    """Listens on an address as soon as it is created; `start` serves in a thread, `stop` ends the thread."""

    daemon_threads = True
    allow_reuse_port = False
    request_queue_size = 2 * MOST_CONNECTIONS  # only an accepted connection can be refused with an answer

    def __init__(self, intake: Intake, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.intake = intake
        self.port = int(self.server_address[1])
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._awaited: dict[socket.socket, float] = {}  # since when we wait for the sender, oldest first
        self._let_go: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL,), name="otlp-http", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve each connection in a thread, at most MOST_CONNECTIONS: for a new connection, the one whose
        sender we have been waiting for longest is let go."""
        free = self._places.acquire(blocking=False)
        if not free and self._let_one_go(time.monotonic()):
            free = self._places.acquire(timeout=LEAVING)
        if not free:
            self.intake.refuse()
            request.settimeout(1)
            with suppress(OSError):
                request.sendall(BUSY)
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_come(request)
            with self._lock:
                self._let_go.discard(request)
            self._places.release()

    def service_actions(self) -> None:
        """Called regularly by the server's loop, between checks for new connections."""
        while self._let_one_go(time.monotonic() - PATIENCE):
            pass

    def waits_for(self, connection: socket.socket) -> None:
        with self._lock:
            self._awaited.pop(connection, None)
            self._awaited[connection] = time.monotonic()

    def has_come(self, connection: socket.socket) -> None:
        with self._lock:
            self._awaited.pop(connection, None)

    def was_let_go(self, connection: socket.socket) -> bool:
        with self._lock:
            return connection in self._let_go

    def _let_one_go(self, before: float) -> bool:
        """Stop reading the connection that we have waited for longest, if since before `before`; returns
        whether there is one."""
        with self._lock:
            oldest, since = next(iter(self._awaited.items()), (None, before))
            if oldest is None or since > before:
                return False
            del self._awaited[oldest]
            self._let_go.add(oldest)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RD)
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing: if a connection breaks, its sender opens another one."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpReceiver
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"
    server_version = "happened"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.server.waits_for(self.connection)

    def parse_request(self) -> bool:
        """Called when the request's first line has arrived."""
        self.server.waits_for(self.connection)
        return super().parse_request()

    def do_POST(self) -> None:
        encoding, intake = Encoding.JSON, self.server.intake
        try:
            encoding = self._encoding()
            size = None if self._in_chunks() else self._size()
            with intake.coming() as more:
                body = self._chunks(more) if size is None else self._read(size, more)
                self.server.has_come(self.connection)
                with intake.room(0):
                    request = intake.take(encoding, self._unpacked(body), "HTTP")
            self._answer(HTTPStatus.OK, encoding, success(encoding, request.left_out))
        except Full as full:
            self._answer_full(encoding, full)
        except (Malformed, _Refusal) as error:
            if self.server.was_let_go(self.connection):  # cut short by us, so the request may be valid
                intake.refuse()
                self._answer_full(encoding, Full("it was too long in coming"))
                return
            code = error.status if isinstance(error, _Refusal) else HTTPStatus.BAD_REQUEST
            self._answer(code, encoding, status(encoding, INVALID_ARGUMENT, str(error)))
        self.server.waits_for(self.connection)

    def _answer_full(self, encoding: Encoding, full: Full) -> None:
        body = status(encoding, RESOURCE_EXHAUSTED, str(full))
        self._answer(HTTPStatus.TOO_MANY_REQUESTS, encoding, body, full.seconds)

    def _encoding(self) -> Encoding:
        if self.path.partition("?")[0] != PATH:
            raise _Refusal(HTTPStatus.NOT_FOUND, f"only spans are received, at {PATH}")
        kind = (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        try:
            return Encoding(kind)
        except ValueError:
            known = " or ".join(each.value for each in Encoding)
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {known}, not {kind!r}") from None

    def _size(self) -> int:
        length = self.headers.get("Content-Length") or ""
        if not length.isdecimal() or not length.isascii() or len(length) > 15:
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, "say how long the request is: Content-Length")
        if int(length) > MOST_BYTES:
            raise _too_large()
        return int(length)

    def _in_chunks(self) -> bool:
        return (self.headers.get("Transfer-Encoding") or "").strip().lower() == "chunked"

    def _read(self, size: int, more: Callable[[int], None]) -> bytes:
        """Read `size` bytes; `more` reserves room for each piece before it is read."""
        body = bytearray()
        while left := size - len(body):
            wanted = min(left, PIECE)
            more(wanted)
            piece = self.rfile.read(wanted)
            if len(piece) < wanted:
                raise Malformed("ended before its length")
            body += piece
        return bytes(body)

    def _chunks(self, more: Callable[[int], None]) -> bytes:
        """Read a body in chunks (RFC 9112, section 7.1)."""
        body = bytearray()
        while size := self._chunk_size():
            if len(body) + size > MOST_BYTES:
                raise _too_large()
            body += self._read(size, more)
            if self._line() != b"":
                raise Malformed("has a chunk that is longer than it says")
        for _ in range(MOST_TRAILERS):
            if self._line() == b"":
                return bytes(body)
        raise Malformed("does not end after its last chunk")

    def _chunk_size(self) -> int:
        size = self._line().partition(b";")[0].strip()
        if not size or len(size) > 15 or size.strip(b"0123456789abcdefABCDEF"):
            raise Malformed("has a chunk of no length")
        return int(size, 16)

    def _line(self) -> bytes:
        line = self.rfile.readline(LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise Malformed("ended between chunks")
        return line.rstrip(b"\r\n")

    def _unpacked(self, body: bytes) -> bytes:
        match (self.headers.get("Content-Encoding") or "identity").strip().lower():
            case "identity":
                return body
            case "gzip":
                return _unzipped(body)
            case other:
                raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"compress with gzip, not {other!r}")

    def _answer(self, code: HTTPStatus, encoding: Encoding, body: bytes, retry: int | None = None) -> None:
        if code != HTTPStatus.OK:
            self.close_connection = True  # the request's body may not have been read
        self.send_response(code)
        self.send_header("Content-Type", encoding.value)
        self.send_header("Content-Length", str(len(body)))
        if retry is not None:
            self.send_header("Retry-After", str(retry))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        if self.close_connection:
            self._forget_the_rest()

    def _forget_the_rest(self) -> None:
        """Read the rest of the request, within bounds: closing the connection earlier would reset it, and a
        sender that reads the answer only after sending everything would not see the answer."""
        if self.server.was_let_go(self.connection):
            return
        end, left = time.monotonic() + UNREAD_SECONDS, MOST_UNREAD
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := end - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                if not (read := len(self.connection.recv(1 << 16))):
                    break
                left -= read

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: refusals are counted, and the sender gets an answer."""


def _too_large(when: str = "") -> _Refusal:
    return _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MOST_BYTES:,} bytes{when}")


def _unzipped(data: bytes) -> bytes:
    """Decompress all members of a gzip file, one after another (RFC 1952, section 2.2)."""
    body = bytearray()
    while True:
        stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            body += stream.decompress(data, MOST_BYTES - len(body) + 1)
        except zlib.error as error:
            raise Malformed(f"is no gzip: {error}") from None
        if len(body) > MOST_BYTES:
            raise _too_large(" when unpacked")
        if not stream.eof:
            raise Malformed("is gzip that was cut")
        data = stream.unused_data
        if not data:
            return bytes(body)
