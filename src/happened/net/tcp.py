"""Links over TCP: a connection for each direction of each pair of processes.

The sender of a link calls; frames go from caller to called, and acknowledgements come back. After the
handshake (who are you), both say hello (can we work together), and the called end says which frames it has:
the caller goes on after those. Neither remembers anything of the other before both have accepted each other:
the caller once it has the other's hello, the called once something but a refusal follows its own. A
connection that fails in any way is closed, and the caller calls again after a delay that grows. After a frame
was refused, it is the only one that is sent until it is acknowledged.

Promises   those of transport.py. A peer is who the guard says it is. A name that is not a peer's, a second
           node of a peer's name with another incarnation, or bytes that break a rule end the connection; the
           reason is logged once, and other links do not notice.
Bounds     a connection holds one record being received and about one being sent. At most `limits.strangers`
           connections have not said who they are, each for `limits.handshake` seconds.
"""

import asyncio
import ipaddress
from collections import OrderedDict

from .accepting import Listener, open_listener
from .errors import NodeError
from .handshake import HandshakeError, Reason
from .limits import Limits
from .tcp_connections import Called, Caller, Connection
from .transport import Guard, Host


class TcpTransport:
    """The TCP links of one node. `listen` is "host:port", port 0 for any; `address` is what it became."""

    keeps_order = True
    acknowledges_for_peers = True

    def __init__(self, listen: str, guard: Guard, limits: Limits | None = None) -> None:
        self._listen = split_address(listen)
        self.guard = guard
        self.limits = limits or Limits()
        self.max_payload = self.limits.payload
        self._addresses: dict[str, tuple[str, int]] = {}
        self._removed: set[str] = set()  # who was a peer
        self._callers: dict[str, Caller] = {}
        self._called: dict[str, Called] = {}
        self._strangers: OrderedDict[Connection, None] = OrderedDict()
        self._paused: set[str] = set()
        self._server: Listener | None = None
        self.address = listen

    async def start(self, host: Host) -> None:
        self.host = host
        where, port = self._listen
        self._check_local(where, "listens on")
        try:
            self._server = await open_listener(
                lambda: Called(self), where, port, host, self.limits, lambda: self.guard.tls(server=True)
            )
        except OSError as error:
            raise NodeError(
                f"{host.name!r} cannot listen on {where}:{port}: {error.strerror or error}; is another node "
                "of this name running?"
            ) from error
        bound = self._server.sockets[0].getsockname()
        self.address = f"{where or bound[0]}:{bound[1]}"
        for peer in self._addresses:
            self._call(peer)

    def check_address(self, peer: str, address: str) -> None:
        where, _ = split_address(address)
        self._check_local(where, f"calls {peer!r} at")

    def add_peer(self, peer: str, address: str) -> None:
        self.check_address(peer, address)
        where, port = split_address(address)
        self._addresses[peer] = (where, port)
        self._removed.discard(peer)
        if self._server is not None and peer not in self._callers:
            self._call(peer)

    def remove_peer(self, peer: str) -> None:
        if self._addresses.pop(peer, None) is not None:
            self._removed.add(peer)
        if peer in self._callers:
            self._callers.pop(peer).stop()
        if peer in self._called:
            self._called[peer].end("it is no longer a member")

    def wake(self, peer: str) -> None:
        if peer in self._callers:
            self._callers[peer].wake()

    def durable(self, peer: str, number: int) -> None:
        if peer in self._called:
            self._called[peer].acknowledge(number)

    def pause(self, peer: str) -> None:
        self._paused.add(peer)
        if peer in self._called:
            self._called[peer].pause_reading()

    def resume(self, peer: str) -> None:
        self._paused.discard(peer)
        if peer in self._called:
            self._called[peer].resume_reading()

    async def close(self) -> None:
        for caller in self._callers.values():
            caller.stop()
        self._callers.clear()
        if self._server is not None:
            self._server.close()
        for connection in [*self._called.values(), *self._strangers]:
            connection.end("")
        if self._server is not None:
            await self._server.wait_closed()
        await asyncio.sleep(0)  # connections learn that they are closed

    def _call(self, peer: str) -> None:
        where, port = self._addresses[peer]
        self._callers[peer] = Caller(self, peer, where, port)

    def _check_local(self, where: str, what: str) -> None:
        if self.guard.local_only and not _is_loopback(where):
            raise NodeError(
                f"{what} {where!r}, which is not loopback, without authentication; give certificates or a "
                "shared key, or allow plaintext anywhere by name"
            )

    # What connections report.

    def stranger(self, connection: "Connection") -> None:
        """A connection was accepted, and has not said who it is."""
        self._strangers[connection] = None
        if len(self._strangers) > self.limits.strangers:
            oldest = next(iter(self._strangers))
            oldest.abort("too many connections that have not said who they are")

    def known(self, connection: "Connection") -> None:
        """A connection has said who it is, and hello."""
        self._strangers.pop(connection, None)

    def welcome(self, connection: "Called", peer: str) -> None:
        """Make this connection the peer's link to us; an older connection of that peer ends."""
        before = self._called.get(peer)
        self._called[peer] = connection
        if before is not None and before is not connection:
            before.end("it called again")
        if peer in self._paused:
            connection.pause_reading()

    def forgotten(self, connection: "Connection") -> None:
        """A connection has ended."""
        self._strangers.pop(connection, None)
        if connection.peer and self._called.get(connection.peer) is connection:
            del self._called[connection.peer]

    def check_peer(self, name: str) -> None:
        """Raise HandshakeError unless the process of this name is a peer."""
        if name not in self._addresses:
            what = "no longer a peer" if name in self._removed else "not a peer"
            raise HandshakeError(Reason.UNWELCOME, f"{name!r} is {what} of {self.host.name!r}")


def split_address(address: str) -> tuple[str, int]:
    """Take "host:port" apart, where an IPv6 host is in brackets; NodeError if it is no such address."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise NodeError(f"{address!r} is no address: write host:port, such as 127.0.0.1:7001 or [::1]:7001")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
