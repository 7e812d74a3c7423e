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
from typing import TYPE_CHECKING

from .tcp_connections import Called

if TYPE_CHECKING:
    from .tcp import TcpTransport

BACKLOG = 100
WITHOUT_DESCRIPTORS_SECONDS = 0.1


class Listener:
    """Accepts connections for a transport until it is closed, like asyncio's server; `on` makes one."""

    def __init__(self, sockets: list[socket.socket], owner: "TcpTransport") -> None:
        self.sockets, self._owner = sockets, owner
        self._seconds = owner.limits.handshake or 0.001
        self._silent: _Bounded = {}
        self._greeting: _Bounded = {}  # TLS handshakes under way
        self._tasks = [asyncio.create_task(self._accept(each)) for each in sockets]

    @classmethod
    async def on(cls, host: str, port: int, owner: "TcpTransport") -> "Listener":
        """Listen on every address of the host, like asyncio's create_server."""
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
        return cls(sockets, owner)

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
                self._refuse("somebody", f"not accepted: {error.strerror or error}")
                await asyncio.sleep(WITHOUT_DESCRIPTORS_SECONDS)
                continue
            task = loop.create_task(self._greet(connection, address[0]))
            self._enter(self._silent, task, address[0])
            task.add_done_callback(self._forget)
            await asyncio.sleep(0)  # `sock_accept` does not wait as long as others are in the queue

    def _enter(self, kind: "_Bounded", task: asyncio.Task[None], host: str) -> None:
        """Count a connection, and end the oldest of its kind if they are too many."""
        if len(kind) >= self._owner.limits.strangers:
            oldest = next(iter(kind))
            oldest.cancel()
            self._refuse(kind.pop(oldest), "too many connections that have not said who they are")
        kind[task] = host

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._silent.pop(task, None)
        self._greeting.pop(task, None)

    def _refuse(self, host: str, reason: str) -> None:
        self._owner.host.disconnected(host, False, reason)

    async def _greet(self, connection: socket.socket, host: str) -> None:
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with asyncio.timeout(self._seconds):
                # Until something can be read, or the other side has hung up; nothing is taken.
                loop.add_reader(connection, came.set)
                try:
                    await came.wait()
                finally:
                    loop.remove_reader(connection)
            task = asyncio.current_task()
            if task in self._silent:
                del self._silent[task]
                self._enter(self._greeting, task, host)
            context = self._owner.guard.tls(server=True)  # each time, since certificates are renewed
            await loop.connect_accepted_socket(
                lambda: Called(self._owner),
                connection,
                ssl=context,
                ssl_handshake_timeout=self._seconds if context is not None else None,
            )
        except TimeoutError:
            connection.close()
            self._refuse(host, "it did not say who it is in time")
        except OSError as error:  # errors of TLS are OSErrors too
            connection.close()
            self._refuse(host, f"no TLS: {_why(error)}")
        except asyncio.CancelledError:
            connection.close()
            raise


_Bounded = dict[asyncio.Task[None], str]
"""Connections, oldest first, each with the host it comes from."""


def _why(error: OSError) -> str:
    """Why TLS failed: for a certificate, what is wrong with that one."""
    told = (getattr(error, "reason", None), getattr(error, "verify_message", None))
    return ": ".join(each for each in told if each) or str(error) or type(error).__name__
