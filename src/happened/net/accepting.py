"""Accepts TCP connections, counts them from their first instant, and reports those that TLS refuses.

asyncio's own server shows a connection only after its TLS handshake, and none whose handshake fails. With it,
a flood of connections that never begin TLS would be bounded by descriptors alone, and a wrong certificate
would leave no trace.

Bounds     at most `limits.strangers` connections are within their TLS handshake, each for a bounded time; one
           more ends the oldest.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from .limits import Limits
from .transport import Host

BACKLOG = 100
WITHOUT_DESCRIPTORS_SECONDS = 0.1


class Listener:
    """Accepts connections until it is closed, like asyncio's server; `open_listener` makes one."""

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext | None,
        seconds: float | None,
        most: int,
        refused: Callable[[str, bool, str], None],
    ) -> None:
        self.sockets = sockets
        self._factory, self._context = factory, context
        self._seconds, self._most, self._refused = seconds, most, refused
        self._greeting: dict[asyncio.Task[None], str] = {}  # TLS handshakes under way, oldest first: the host
        self._tasks = [asyncio.create_task(self._accept(each)) for each in sockets]

    def close(self) -> None:
        for task in (*self._tasks, *self._greeting):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, *self._greeting, return_exceptions=True)
        for each in self.sockets:  # only now does nobody wait on their descriptors
            each.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # the caller hung up before we accepted, or no descriptors are left
                self._refused("somebody", False, f"not accepted: {error.strerror or error}")
                await asyncio.sleep(WITHOUT_DESCRIPTORS_SECONDS)
                continue
            if len(self._greeting) >= self._most:
                oldest, host = next(iter(self._greeting.items()))
                del self._greeting[oldest]
                oldest.cancel()
                self._refused(host, False, "too many connections that have not said who they are")
            task = loop.create_task(self._greet(connection, address[0]))
            self._greeting[task] = address[0]
            task.add_done_callback(lambda done: self._greeting.pop(done, None))

    async def _greet(self, connection: socket.socket, host: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory, connection, ssl=self._context, ssl_handshake_timeout=self._seconds
            )
        except OSError as error:  # errors of TLS and the timeout are OSErrors too
            connection.close()
            self._refused(
                host, False, f"no TLS: {getattr(error, 'reason', None) or error or type(error).__name__}"
            )
        except asyncio.CancelledError:
            connection.close()
            raise


async def open_listener(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    node: Host,
    limits: Limits,
    ssl: ssl.SSLContext | None = None,
    ssl_handshake_timeout: float | None = None,
) -> Listener:
    """Listen on every address of the host, like asyncio's create_server; `node` is told whom TLS refused."""
    loop = asyncio.get_running_loop()
    places = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(places):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            listening.setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return Listener(sockets, factory, ssl, ssl_handshake_timeout, limits.strangers, node.disconnected)
