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
import random
import socket
from collections import OrderedDict
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from ..core.errors import RemoteProtocolError
from .accepting import Listener, open_listener
from .errors import NodeError
from .handshake import HandshakeError, Reason
from .identity import certificate_lasts
from .limits import Limits
from .records import (
    LENGTH,
    RECORD_BODIES,
    RECORD_BYTES,
    Records,
    checked_hello,
    control,
    fit_record,
    frames_in,
    frames_out,
    hello_to_json,
    number_in,
    read_control,
    with_check,
)
from .terms import CHECKSUM
from .transport import Guard, Hello, Host

WRITE_AHEAD = 1 << 20
"""Bytes that may wait in a connection's write buffer."""
SILENT_BEATS = 3
"""Heartbeats without a sign of life after which a connection ends."""
NUMBER = itemgetter(0)
"""Of a frame."""


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
        self._callers: dict[str, _Caller] = {}
        self._called: dict[str, _Called] = {}
        self._strangers: OrderedDict[_Connection, None] = OrderedDict()
        self._paused: set[str] = set()
        self._server: Listener | None = None
        self.address = listen

    async def start(self, host: Host) -> None:
        self.host = host
        where, port = self._listen
        self._check_local(where, "listens on")
        try:
            self._server = await open_listener(
                lambda: _Called(self), where, port, host, self.limits, lambda: self.guard.tls(server=True)
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
        self._callers[peer] = _Caller(self, peer, where, port)

    def _check_local(self, where: str, what: str) -> None:
        if self.guard.local_only and not _is_loopback(where):
            raise NodeError(
                f"{what} {where!r}, which is not loopback, without authentication; give certificates or a "
                "shared key, or allow plaintext anywhere by name"
            )

    # What connections report.

    def stranger(self, connection: "_Connection") -> None:
        """A connection was accepted, and has not said who it is."""
        self._strangers[connection] = None
        if len(self._strangers) > self.limits.strangers:
            oldest = next(iter(self._strangers))
            oldest.abort("too many connections that have not said who they are")

    def known(self, connection: "_Connection") -> None:
        """A connection has said who it is, and hello."""
        self._strangers.pop(connection, None)

    def welcome(self, connection: "_Called", peer: str) -> None:
        """Make this connection the peer's link to us; an older connection of that peer ends."""
        before = self._called.get(peer)
        self._called[peer] = connection
        if before is not None and before is not connection:
            before.end("it called again")
        if peer in self._paused:
            connection.pause_reading()

    def forgotten(self, connection: "_Connection") -> None:
        """A connection has ended."""
        self._strangers.pop(connection, None)
        if connection.peer and self._called.get(connection.peer) is connection:
            del self._called[connection.peer]

    def check_peer(self, name: str) -> None:
        """Raise HandshakeError unless the process of this name is a peer."""
        if name not in self._addresses:
            what = "no longer a peer" if name in self._removed else "not a peer"
            raise HandshakeError(Reason.UNWELCOME, f"{name!r} is {what} of {self.host.name!r}")


class _Connection(asyncio.Protocol):
    """What both ends of a connection do: the handshake, records, signs of life."""

    outgoing: bool

    def __init__(self, owner: TcpTransport, wanted: str | None) -> None:
        self._owner = owner
        self._wanted = wanted
        self.peer = ""
        self._is_proven = False  # the handshake is over at this end: what follows it are records
        self._records = Records(owner.limits.frame + RECORD_BYTES + 64)
        self._reason = ""
        self._heard = True
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lasts: float | None = None  # seconds that the peer's certificate was still valid at first
        self._expiry: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._may_write = True
        self._agreed = False  # both have said hello
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, limits = self._owner.host, self._owner.limits
        address = transport.get_extra_info("peername")
        self._address = f"{address[0]}" if address else "somebody"
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limits.handshake, self._too_slow)
        if not self.outgoing:
            self._owner.stranger(self)
        try:
            tls = transport.get_extra_info("ssl_object")
            self._lasts = certificate_lasts(tls)
            self._handshake = self._owner.guard.handshake(host.name, self._wanted, tls)
            self._transport.write(self._handshake.begin())
        except RemoteProtocolError as error:
            self._refuse(error)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._ended:
            return
        try:
            if not self.peer:
                data = self._shake_hands(data)
            if self.peer:
                for record in self._records.feed(data):
                    self._take(frames_in(self._handshake.channel.open(record), self._owner.limits.frame))
                    if self._ended:
                        return
        except RemoteProtocolError as error:
            self._refuse(error)

    def _shake_hands(self, data: bytes) -> bytes:
        """Take bytes of the handshake; returns those that follow it, once we know our peer."""
        self._transport.write(self._handshake.receive(data))
        peer = self._handshake.peer
        if peer is None:
            return b""
        self._is_proven = True
        self._owner.check_peer(peer)
        self.peer = peer
        self._introduced()
        return self._handshake.rest

    def _introduced(self) -> None:
        """Speak first, if it is for this end to do so: the peer has just been authenticated."""
        raise NotImplementedError

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        """Take the frames of one record."""
        raise NotImplementedError

    def _agree(self) -> None:
        """Both ends have said hello and can work together."""
        self._agreed = True
        self._owner.known(self)
        if self._timer is not None:
            self._timer.cancel()
        self._heard = True
        self._timer = asyncio.get_running_loop().call_later(self._owner.limits.heartbeat, self._beat)
        self._owner.host.connected(self.peer, self.outgoing)
        if self._lasts is not None:
            self._expiry = asyncio.get_running_loop().call_later(self._lasts, self._expired)

    def _expired(self) -> None:
        self.end("its certificate has expired")

    def write(self, frames: bytes) -> None:
        sealed = self._handshake.channel.seal(frames)
        self._transport.write(LENGTH.pack(len(sealed)) + sealed)

    def say(self, **said: Any) -> None:
        if not self._ended:
            self.write(control(**said))

    def end(self, reason: str) -> None:
        """Close the connection, for a reason that is logged unless it is empty."""
        if not self._ended:
            self._ended = True
            self._reason = reason
            self._transport.close()
            # A peer that does not read must not keep us.
            asyncio.get_running_loop().call_later(1.0, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close the connection at once: what was written and has not left is dropped."""
        if not self._ended:
            self._ended = True
            self._reason = reason
            self._owner.forgotten(self)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        self._owner.forgotten(self)
        reason = self._reason or (str(error) if error is not None else "the other side closed it")
        self._owner.host.disconnected(self.peer or self._wanted or self._address, self.outgoing, reason)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._ended:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._silent = 0
        if not self._ended:
            self._transport.resume_reading()

    def _refuse(self, error: RemoteProtocolError) -> None:
        if isinstance(error, HandshakeError) and not self._is_proven:
            self._transport.write(error.answer)
        elif self._is_proven:
            self.say(refused=str(error)[:500], **self._refused_frame())
        self.end(str(error))

    def _refused_frame(self) -> dict[str, int]:
        """Which of the peer's frames is refused, if frames may come already."""
        return {}

    def _protect(self, ours: Hello, theirs: Hello) -> None:
        """Both hellos were told; what follows them, in either direction, is checked for damage."""
        if CHECKSUM in ours.terms.features & theirs.terms.features:
            self._handshake.add_checksums()

    def _too_slow(self) -> None:
        self.end("it did not say who it is in time")

    def _beat(self) -> None:
        self._silent = 0 if self._heard or self._is_paused else self._silent + 1
        self._heard = False
        if self._silent >= SILENT_BEATS:
            self._reason = "no sign of life"
            self._transport.abort()
            return
        if self._may_write and not self._ended:
            self.write(control())
        self._timer = asyncio.get_running_loop().call_later(self._owner.limits.heartbeat, self._beat)


class _Called(_Connection):
    """The receiving end of a peer's link to us."""

    outgoing = False

    def __init__(self, owner: TcpTransport) -> None:
        super().__init__(owner, None)
        self._unsaid: int | None = None
        self._unmet: Hello | None = None  # the caller's hello, until we know that it has accepted ours

    def acknowledge(self, number: int) -> None:
        """Acknowledge frames up to this number; a caller that does not read gets the last number once it
        does."""
        if self._may_write:
            self.say(have=number)
        else:
            self._unsaid = number

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unsaid is not None:
            number, self._unsaid = self._unsaid, None
            self.say(have=number)

    def _introduced(self) -> None:
        pass  # the caller speaks first

    def _refused_frame(self) -> dict[str, int]:
        return {"number": self._owner.host.expects(self.peer)} if self._agreed else {}

    def _meet(self, caller: Hello, frames: list[tuple[int, bytes]]) -> None:
        """Remember a caller that goes on after our hello."""
        if frames and (frames[0][0] or "refused" not in read_control(frames[0][1])):
            self._owner.host.meet(self.peer, caller)
            self._unmet = None

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        host = self._owner.host
        if self._unmet is not None:
            self._meet(self._unmet, frames)
        if self._agreed and all(map(NUMBER, frames)):
            host.arrived(self.peer, frames)
            return
        for number, body in frames:
            if number:
                if not self._agreed:
                    raise RemoteProtocolError("frames come before a hello")
                host.arrived(self.peer, [(number, body)])
            elif (said := read_control(body)) and "refused" in said:
                self.end(f"it refused us: {said['refused']!s:.500}")
            elif "hello" in said and not self._agreed:
                self._unmet, ours = checked_hello(said), host.hello(self.peer)
                host.check(self.peer, self._unmet)
                self._agree()
                self._owner.welcome(self, self.peer)
                host.numbered_in(self.peer, self._unmet.lives)  # before it may send by another medium
                self.say(**with_check(hello=hello_to_json(ours), have=host.received(self.peer)))
                self._protect(ours, self._unmet)


class _Outgoing(_Connection):
    """The sending end of our link to a peer."""

    outgoing = True

    def __init__(
        self, owner: TcpTransport, peer: str, probes: bool, closed: Callable[[bool, bool], None]
    ) -> None:
        """`probes`: send the first frame alone, since the peer refused one."""
        super().__init__(owner, peer)
        self._sent = self._began = 0
        self._probes = probes
        self._closed = closed
        self._progress = self._was_refused = False
        self._longest = owner.limits.frame  # that the peer takes
        self._ours: Hello | None = None

    def _introduced(self) -> None:
        self._ours = self._owner.host.hello(self.peer)
        self.say(**with_check(hello=hello_to_json(self._ours)))

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        host = self._owner.host
        for number, body in frames:
            if number:
                raise RemoteProtocolError("frames come against the direction of their link")
            said = read_control(body)
            if "refused" in said:
                self._note_refusal(said)
            elif "hello" in said and not self._agreed:
                self._greeted(said)
            elif self._agreed and "have" in said:
                host.freed(self.peer, have := number_in(said, "have"))
                if have > self._began:
                    self._progress = True
                    if self._probes:
                        self._probes = False
                        self.pump()
            elif self._agreed:
                self._progress = True  # it has not hung up on what we sent

    def _greeted(self, said: dict[str, Any]) -> None:
        host, theirs = self._owner.host, checked_hello(said)
        if self._ours is not None:
            self._protect(self._ours, theirs)
        host.check(self.peer, theirs)
        self._sent = self._began = number_in(said, "have")
        host.resumes(self.peer, self._sent, theirs.heard)
        host.meet(self.peer, theirs)
        self._longest = theirs.terms.frame or self._longest
        self._agree()
        self.say()  # so that it can be sure of us, too
        self.pump()

    def _note_refusal(self, said: dict[str, Any]) -> None:
        reason = f"it refused us: {said['refused']!s:.500}"
        if self._agreed:
            self._was_refused = True
            number = number_in(said, "number") if "number" in said else self._sent
            if self._began < number <= self._sent:
                self._owner.host.set_aside(self.peer, number, reason)
        self.end(reason)

    def pump(self) -> None:
        """Send what is released, as long as the connection takes it and the peer takes the frames."""
        outbox = self._owner.host.outbox(self.peer)
        while self._may_write and self._agreed and not self._ended and outbox.released > self._sent:
            if self._probes and self._sent > self._began:
                return
            if not (frames := outbox.after(self._sent, 1 if self._probes else RECORD_BODIES)):
                return
            record = frames_out(frames)
            if len(record) > RECORD_BYTES or len(record) > self._longest:
                if not (fitting := fit_record(frames, self._longest)):
                    number, frame = frames[0]
                    why = f"it has {len(frame)} bytes, and {self.peer!r} takes {self._longest}"
                    self._owner.host.set_aside(self.peer, number, f"{why}: raise limits.frame there")
                    return
                frames, record = fitting, frames_out(fitting)
            self._sent = frames[-1][0]
            self.write(record)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._closed(self._progress, self._was_refused)


class _Caller:
    """Keeps a connection to one peer: makes it, and makes it again when it is lost."""

    def __init__(self, owner: TcpTransport, peer: str, where: str, port: int) -> None:
        self._owner = owner
        self._peer = peer
        self._where, self._port = where, port
        self._attempt = 0
        self._probes = False  # the peer has refused a frame
        self._connection: _Outgoing | None = None
        self._stopped = False
        self._dice = random.Random()
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.Handle | None = None
        self._task = asyncio.get_running_loop().create_task(self._connect())

    def wake(self) -> None:
        if self._wake is None and self._connection is not None:
            self._wake = asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._wake = None
        if self._connection is not None and self._connection.peer:
            self._connection.pump()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        limits = self._owner.limits
        try:
            context = self._owner.guard.tls(server=False)
            made = loop.create_connection(
                lambda: _Outgoing(self._owner, self._peer, self._probes, self._lost),
                self._where,
                self._port,
                ssl=context,
            )
            _, connection = await asyncio.wait_for(made, limits.handshake)
            self._connection = connection if not connection._ended else None
            self._pump()  # what was released since the peer's hello woke nobody
            if self._stopped:  # before Python 3.12 `wait_for` can lose a cancellation
                connection.end("")
        except (OSError, TimeoutError, UnicodeError) as error:  # the last: no host name, says IDNA
            self._owner.host.disconnected(self._peer, True, str(error) or "no answer in time")
            self._again()

    def _lost(self, progress: bool, was_refused: bool) -> None:
        self._connection = None
        self._probes = was_refused
        if progress:
            self._attempt = 0
        self._again()

    def _again(self) -> None:
        if self._stopped:
            return
        limits = self._owner.limits
        most = min(limits.last_retry, limits.first_retry * 2 ** min(self._attempt, 30))
        self._attempt += 1
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(most * self._dice.uniform(0.5, 1.0), self._retry)

    def _retry(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._connect())

    def stop(self) -> None:
        self._stopped = True
        self._task.cancel()
        for handle in (self._timer, self._wake):
            if handle is not None:
                handle.cancel()
        if self._connection is not None:
            self._connection.end("")


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
