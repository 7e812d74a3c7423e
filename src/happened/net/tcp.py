"""Links over TCP: a connection for each direction of each pair of processes.

The sender of a link calls; frames go from caller to called, and acknowledgements come back. After the
handshake (who are you), both say hello (can we work together), and the called end says which frames it has:
the caller sends the frames after those. Neither end stores anything about the other before both have accepted
each other: the caller once it has the other's hello, the called end once anything but a refusal follows its
own hello. A connection that fails in any way is closed, and the caller calls again after a growing delay.
After a frame was refused, the caller sends that frame alone until it is acknowledged.

Promises   those of transport.py. A peer is the process that the guard says it is. A name that is not a
           peer's, a second node of a peer's name with another incarnation, or bytes that break a rule end the
           connection; the reason is logged once, and other links are not affected.
Bounds     a connection holds one record being received and about one being sent. At most `limits.strangers`
           connections have not said who they are, each for at most `limits.handshake` seconds.
"""

import asyncio
import contextlib
import ipaddress
import random
import socket
from functools import partial

from .errors import NodeError
from .handshake import HandshakeError, Reason
from .limits import Limits
from .tcp_connections import Called, Calling, Connection
from .transport import Guard, Host, Transport

BACKLOG = 100
WITHOUT_DESCRIPTORS_SECONDS = 0.1
_Bounded = dict[asyncio.Task[None], str]
"""Connections, oldest first, each with the host that it comes from."""


class TcpTransport(Transport):
    """The TCP links of one node. `listen` is "host:port", port 0 for any; `address` has the actual port."""

    _links: "dict[str, TcpLink]"

    def __init__(self, listen: str, guard: Guard, limits: Limits | None = None) -> None:
        super().__init__()
        self._listen = split_address(listen)
        self.guard = guard
        self.limits = limits or Limits()
        self._removed: set[str] = set()  # names of former peers
        self.strangers: dict[Connection, None] = {}  # connections that have not said who they are, and hello
        self._server: Listener | None = None
        self.address = listen

    @property
    def max_payload(self) -> int:
        return self.limits.payload

    async def start(self, host: Host) -> None:
        self._host = host
        where, port = self._listen
        self._check_local(where, "listens on")
        try:
            self._server = await Listener.on(where, port, self)
        except OSError as error:
            raise NodeError(
                f"{host.name!r} cannot listen on {where}:{port}: {error.strerror or error}; is another node "
                "of this name running?"
            ) from error
        bound = self._server.sockets[0].getsockname()
        self.address = f"{where or bound[0]}:{bound[1]}"
        self._make_links()

    def check_address(self, peer: str, address: str) -> None:
        self._check_local(split_address(address)[0], f"calls {peer!r} at")

    def _check_local(self, where: str, what: str) -> None:
        is_local = where == "localhost"
        with contextlib.suppress(ValueError):
            is_local = is_local or ipaddress.ip_address(where).is_loopback
        if self.guard.local_only and not is_local:
            raise NodeError(
                f"{what} {where!r}, which is not loopback, without authentication; give certificates or a "
                "shared key, or allow plaintext anywhere by name"
            )

    def _link_with(self, peer: str) -> "TcpLink":
        return TcpLink(self, peer, *split_address(self._addresses[peer]))

    def remove_peer(self, peer: str) -> None:
        if peer in self._addresses:
            self._removed.add(peer)
        super().remove_peer(peer)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
        for connection in list(self.strangers):
            connection.end("")
        if self._server is not None:
            await self._server.wait_closed()
        await asyncio.sleep(0)  # lets connections learn that they are closed

    # Reports of connections.

    def stranger(self, connection: Connection) -> None:
        """Note an accepted connection that has not said who it is."""
        self.strangers[connection] = None
        if len(self.strangers) > self.limits.strangers:
            oldest = next(iter(self.strangers))
            oldest.end("too many connections that have not said who they are", at_once=True)

    def check_peer(self, name: str) -> None:
        """Raise HandshakeError unless the process of this name is a peer."""
        if name not in self._addresses:
            what = "no longer a peer" if name in self._removed else "not a peer"
            raise HandshakeError(Reason.UNWELCOME, f"{name!r} is {what} of {self.host.name!r}")

    def welcome(self, connection: Called) -> None:
        """Make this connection the peer's link to us, and end an older connection of that peer."""
        self.check_peer(connection.peer)
        link = self._links[connection.peer]
        before, link.called = link.called, connection
        if before is not None and before is not connection:
            before.end("it called again")
        if connection.peer in self._paused:
            connection.pause_reading()

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self.strangers.pop(connection, None)
        link = self._links.get(connection.peer)
        if link is not None and link.called is connection:
            link.called = None


class TcpLink:
    """The link with one peer: the connection that the peer made, and ours, made again when it is lost."""

    def __init__(self, owner: TcpTransport, peer: str, where: str, port: int) -> None:
        self._owner, self._peer = owner, peer
        self._where, self._port = where, port
        self.called: Called | None = None
        self.calling: Calling | None = None
        self._wake: asyncio.Handle | None = None
        self._task = asyncio.get_running_loop().create_task(self._call())

    async def _call(self) -> None:
        limits, attempt, probes = self._owner.limits, 0, False
        while True:
            try:
                async with asyncio.timeout(limits.handshake):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        partial(Calling, self._owner, self._peer, probes),
                        self._where,
                        self._port,
                        ssl=self._owner.guard.tls(server=False),
                    )
            except (OSError, UnicodeError) as error:  # UnicodeError: IDNA refuses the host name
                self._owner.host.disconnected(self._peer, True, str(error) or "no answer in time")
            else:
                self.calling = connection
                self._pump()  # frames released since the peer's hello woke nobody
                await connection.is_lost.wait()
                self.calling, probes = None, connection.was_refused
                attempt = 0 if connection.has_progressed else attempt
            most = min(limits.last_retry, limits.first_retry * 2 ** min(attempt, 30))
            attempt += 1
            await asyncio.sleep(most * random.uniform(0.5, 1.0))

    def wake(self) -> None:
        if self._wake is None and self.calling is not None:
            self._wake = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._wake = None
        if self.calling is not None and self.calling.peer:
            self.calling.pump()

    def durable(self, number: int) -> None:
        if self.called is not None:
            self.called.acknowledge(number)

    def pause(self) -> None:
        if self.called is not None:
            self.called.pause_reading()

    def resume(self) -> None:
        if self.called is not None:
            self.called.resume_reading()

    def close(self, reason: str = "") -> None:
        self._task.cancel()
        if self._wake is not None:
            self._wake.cancel()
        if self.calling is not None:
            self.calling.end("")
        if self.called is not None:
            self.called.end(reason)


class Listener:
    """Accepts connections until closed, counts them from their first instant, and reports those that TLS
    refuses. asyncio's own server shows a connection only after a successful TLS handshake, so that only
    descriptors would bound a flood of connections without one.

    Bounds     at most `limits.strangers` connections have sent nothing, and as many are in their TLS
               handshake, each for a bounded time; one more ends the oldest of its kind. So silent
               connections, however many, do not push out a caller that speaks at once. Each turn of the event
               loop accepts one connection: a burst does not stop other work.
    """

    def __init__(self, sockets: list[socket.socket], owner: TcpTransport) -> None:
        self.sockets, self._owner = sockets, owner
        self._seconds = owner.limits.handshake or 0.001
        self._silent: _Bounded = {}
        self._greeting: _Bounded = {}  # TLS handshakes under way
        self._tasks = [asyncio.create_task(self._accept(each)) for each in sockets]

    @classmethod
    async def on(cls, host: str, port: int, owner: TcpTransport) -> "Listener":
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
        for each in self.sockets:  # from now on nobody waits on their descriptors
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
        """Count a connection, and end the oldest of its kind if there are too many."""
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
                # Wait until something can be read, or the other side has hung up; read nothing yet.
                loop.add_reader(connection, came.set)
                try:
                    await came.wait()
                finally:
                    loop.remove_reader(connection)
            task = asyncio.current_task()
            if task in self._silent:
                del self._silent[task]
                self._enter(self._greeting, task, host)
            context = self._owner.guard.tls(server=True)  # anew each time, since certificates are renewed
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


def _why(error: OSError) -> str:
    """Why TLS failed: if a certificate was refused, what is wrong with it."""
    told = (getattr(error, "reason", None), getattr(error, "verify_message", None))
    return ": ".join(each for each in told if each) or str(error) or type(error).__name__


def split_address(address: str) -> tuple[str, int]:
    """Take "host:port" apart, where an IPv6 host is in brackets; NodeError if it is no such address."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise NodeError(f"{address!r} is no address: write host:port, such as 127.0.0.1:7001 or [::1]:7001")
    return host.removeprefix("[").removesuffix("]"), int(port)
