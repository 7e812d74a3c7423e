"""Accepts TCP connections, counts them from their first instant, and reports those that TLS refuses.

asyncio's own server shows a connection only after its TLS handshake, and none whose handshake fails. With it,
a flood of connections that never begin TLS would be bounded by descriptors alone, and a wrong certificate
would leave no trace.

Bounds     at most `limits.strangers` connections have sent nothing, and as many are within their TLS
           handshake, each for a bounded time; one more ends the oldest of its kind. So a peer that calls and
           speaks at once is not pushed out by any number of others that are silent. One is accepted
           in each turn of the event loop: a burst does not stop what else it does.
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
        context: Callable[[], ssl.SSLContext | None],
        seconds: float,
        most: int,
        refused: Callable[[str, bool, str], None],
    ) -> None:
        self.sockets = sockets
        self._factory, self._context = factory, context
        self._seconds, self._most, self._refused = seconds, most, refused
        self._silent: _Bounded = {}
        self._greeting: _Bounded = {}  # TLS handshakes under way
        self._tasks = [asyncio.create_task(self._accept(each)) for each in sockets]

    def close(self) -> None:
        for task in (*self._tasks, *self._silent, *self._greeting):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, *self._silent, *self._greeting, return_exceptions=True)
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
            task = loop.create_task(self._greet(connection, address[0]))
            self._enter(self._silent, task, address[0])
            task.add_done_callback(self._forget)
            await asyncio.sleep(0)  # `sock_accept` does not wait as long as others are in the queue

    def _enter(self, kind: "_Bounded", task: asyncio.Task[None], host: str) -> None:
        """Count a connection, and end the oldest of its kind if they are too many."""
        if len(kind) >= self._most:
            oldest, from_host = next(iter(kind.items()))
            del kind[oldest]
            oldest.cancel()
            self._refused(from_host, False, "too many connections that have not said who they are")
        kind[task] = host

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._silent.pop(task, None)
        self._greeting.pop(task, None)

    async def _greet(self, connection: socket.socket, host: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await _first_byte(connection)
            task = asyncio.current_task()
            if task in self._silent:
                del self._silent[task]
                self._enter(self._greeting, task, host)
            context = self._context()
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory,
                connection,
                ssl=context,
                ssl_handshake_timeout=self._seconds if context is not None else None,
            )
        except TimeoutError:
            connection.close()
            self._refused(host, False, "it did not say who it is in time")
        except OSError as error:  # errors of TLS are OSErrors too
            connection.close()
            self._refused(host, False, f"no TLS: {_why(error)}")
        except asyncio.CancelledError:
            connection.close()
            raise


_Bounded = dict[asyncio.Task[None], str]
"""Connections, oldest first, each with the host it comes from."""


def _why(error: OSError) -> str:
    """Why TLS failed: for a certificate, what is wrong with that one."""
    told = (getattr(error, "reason", None), getattr(error, "verify_message", None))
    return ": ".join(each for each in told if each) or str(error) or type(error).__name__


async def _first_byte(connection: socket.socket) -> None:
    """Wait until something can be read, or the other side has hung up; nothing is taken."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(connection)


async def open_listener(
    factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    node: Host,
    limits: Limits,
    context: Callable[[], ssl.SSLContext | None] = lambda: None,
) -> Listener:
    """Listen on every address of the host, like asyncio's create_server; `node` is told whom TLS refused.
    Each connection asks for its own `context`, since certificates are renewed."""
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
    seconds = limits.handshake or 0.001
    return Listener(sockets, factory, context, seconds, limits.strangers, node.disconnected)
