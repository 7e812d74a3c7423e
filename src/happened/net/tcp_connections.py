"""The two ends of a TCP connection (tcp.py): handshake, hellos, records and signs of life."""

import asyncio
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

from ..core.errors import RemoteProtocolError
from . import records
from .handshake import HandshakeError
from .identity import certificate_lasts
from .limits import Limits
from .records import LENGTH, RECORD_BODIES, RECORD_BYTES, Records
from .terms import CHECKSUM
from .transport import Guard, Hello, Host

WRITE_AHEAD = 1 << 20
"""How many bytes may wait in a connection's write buffer."""
SILENT_BEATS = 3
"""Heartbeats without a sign of life after which a connection ends."""
NUMBER = itemgetter(0)
"""Takes the number of a frame."""


class ConnectionOwner(Protocol):
    """The transport (tcp.py), as its connections see it."""

    limits: Limits
    guard: Guard
    strangers: dict["Connection", None]

    @property
    def host(self) -> Host: ...
    def stranger(self, connection: "Connection") -> None: ...
    def check_peer(self, name: str) -> None: ...
    def welcome(self, connection: "Called") -> None: ...
    def forget(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """What both ends of a connection do: the handshake, records, signs of life."""

    outgoing: bool

    def __init__(self, owner: ConnectionOwner, wanted: str | None) -> None:
        self._owner = owner
        self._wanted = wanted
        self.peer = ""
        self._is_proven = False  # the handshake is over at this end: records follow
        self._records = Records(owner.limits.frame + RECORD_BYTES + 64)
        self._reason = ""
        self._heard = True
        self._silent = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._lasts: float | None = None  # seconds for which the peer's certificate was valid at the start
        self._is_paused = False
        self._may_write = True
        self._agreed = False  # both have said hello
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        address = transport.get_extra_info("peername")
        self._address = f"{address[0]}" if address else "somebody"
        self._after("watch", self._owner.limits.handshake, "it did not say who it is in time")
        if not self.outgoing:
            self._owner.stranger(self)
        try:
            tls = transport.get_extra_info("ssl_object")
            self._lasts = certificate_lasts(tls)
            self._handshake = self._owner.guard.handshake(self._owner.host.name, self._wanted, tls)
            self._transport.write(self._handshake.begin())
        except RemoteProtocolError as error:
            self._refuse(error)

    def _after(self, what: str, seconds: float, act: Callable[[], None] | str) -> None:
        """After these seconds call `act`, or end for that reason; replaces an earlier plan for `what`."""
        if what in self._timers:
            self._timers[what].cancel()
        act = partial(self.end, act) if isinstance(act, str) else act
        self._timers[what] = asyncio.get_running_loop().call_later(seconds, act)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._ended:
            return
        try:
            if not self.peer:
                self._transport.write(self._handshake.receive(data))
                if self._handshake.peer is not None:
                    self._is_proven = True
                    self._owner.check_peer(self._handshake.peer)
                    self.peer = self._handshake.peer
                    self._speak_first()
                data = self._handshake.rest
            if self.peer:
                longest = self._owner.limits.frame
                for record in self._records.feed(data):
                    self._take(records.frames_in(self._handshake.channel.open(record), longest))
                    if self._ended:
                        return
        except RemoteProtocolError as error:
            self._refuse(error)

    def _speak_first(self) -> None:
        """The peer has just been authenticated: the caller says hello."""

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        """Take the frames of one record, which has arrived."""
        raise NotImplementedError

    def _agree(self) -> None:
        """Both ends have said hello and can work together."""
        self._agreed = True
        self._owner.strangers.pop(self, None)
        self._heard = True
        self._after("watch", self._owner.limits.heartbeat, self._beat)
        if self._lasts is not None:
            self._after("expiry", self._lasts, "its certificate has expired")
        self._owner.host.connected(self.peer, self.outgoing)

    def write(self, frames: bytes) -> None:
        sealed = self._handshake.channel.seal(frames)
        self._transport.write(LENGTH.pack(len(sealed)) + sealed)

    def say(self, **said: Any) -> None:
        if not self._ended:
            self.write(records.control(**said))

    def _say_hello(self, hello: Hello, **more: int) -> None:
        self.say(**records.with_check(hello=records.hello_to_json(hello), **more))

    def end(self, reason: str, *, at_once: bool = False) -> None:
        """Close the connection; a reason that is not empty is logged. `at_once`: data that was written and
        has not left is dropped."""
        if self._ended:
            return
        self._ended = True
        self._reason = reason
        if at_once:
            self._owner.forget(self)
            self._transport.abort()
        else:
            self._transport.close()
            # A peer that does not read must not keep the connection open.
            asyncio.get_running_loop().call_later(1.0, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        for timer in self._timers.values():
            timer.cancel()
        self._owner.forget(self)
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
            is_frame = self._agreed and not self.outgoing
            which = {"number": self._owner.host.expects(self.peer)} if is_frame else {}
            self.say(refused=str(error)[:500], **which)
        self.end(str(error))

    def _protect(self, ours: Hello, theirs: Hello) -> None:
        """Both ends have said hello; from now on, data in either direction is checked for damage."""
        if CHECKSUM in ours.terms.features & theirs.terms.features:
            self._handshake.add_checksums()

    def _beat(self) -> None:
        self._silent = 0 if self._heard or self._is_paused else self._silent + 1
        self._heard = False
        if self._silent >= SILENT_BEATS:
            self.end("no sign of life", at_once=True)
            return
        if self._may_write and not self._ended:
            self.write(records.control())
        self._after("watch", self._owner.limits.heartbeat, self._beat)


class Called(Connection):
    """The receiving end of a peer's link to us."""

    outgoing = False

    def __init__(self, owner: ConnectionOwner) -> None:
        super().__init__(owner, None)
        self._unsaid: int | None = None
        self._unmet: Hello | None = None  # the caller's hello, until the caller has accepted ours

    def acknowledge(self, number: int) -> None:
        """Acknowledge frames up to this number; a caller that does not read gets the latest number when it
        reads again."""
        if self._may_write:
            self.say(have=number)
        else:
            self._unsaid = number

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unsaid is not None:
            number, self._unsaid = self._unsaid, None
            self.say(have=number)

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        host = self._owner.host
        if self._unmet is not None and frames:  # remember a caller that goes on after our hello
            number, body = frames[0]
            if number or "refused" not in records.read_control(body):
                host.meet(self.peer, self._unmet)
                self._unmet = None
        if self._agreed and all(map(NUMBER, frames)):  # nearly always
            host.arrived(self.peer, frames)
            return
        for number, body in frames:
            if number:
                if not self._agreed:
                    raise RemoteProtocolError("frames come before a hello")
                host.arrived(self.peer, [(number, body)])
            elif (said := records.read_control(body)) and "refused" in said:
                self.end(f"it refused us: {said['refused']!s:.500}")
            elif "hello" in said and not self._agreed:
                self._unmet, ours = records.checked_hello(said), host.hello(self.peer)
                host.check(self.peer, self._unmet)
                self._agree()
                self._owner.welcome(self)
                host.numbered_in(self.peer, self._unmet.lives)  # before the caller may send by another medium
                self._say_hello(ours, have=host.received(self.peer))
                self._protect(ours, self._unmet)


class Calling(Connection):
    """The sending end of our link to a peer."""

    outgoing = True

    def __init__(self, owner: ConnectionOwner, peer: str, probes: bool) -> None:
        """`probes`: send the first frame alone, since the peer refused one."""
        super().__init__(owner, peer)
        self._sent = self._began = 0
        self._probes = probes
        self.has_progressed = self.was_refused = False
        self.is_lost = asyncio.Event()
        self._longest = owner.limits.frame  # the longest frame that the peer takes
        self._ours: Hello | None = None

    def _speak_first(self) -> None:
        self._ours = self._owner.host.hello(self.peer)
        self._say_hello(self._ours)

    def _take(self, frames: list[tuple[int, bytes]]) -> None:
        host = self._owner.host
        for number, body in frames:
            if number:
                raise RemoteProtocolError("frames come against the direction of their link")
            said = records.read_control(body)
            if "refused" in said:
                reason = f"it refused us: {said['refused']!s:.500}"
                if self._agreed:
                    self.was_refused = True
                    refused = records.number_in(said, "number") if "number" in said else self._sent
                    if self._began < refused <= self._sent:
                        host.set_aside(self.peer, refused, reason)
                self.end(reason)
            elif "hello" in said and not self._agreed:
                self._greeted(said)
            elif self._agreed and "have" in said:
                host.freed(self.peer, have := records.number_in(said, "have"))
                if have > self._began:
                    self.has_progressed = True
                    if self._probes:
                        self._probes = False
                        self.pump()
            elif self._agreed:
                self.has_progressed = True  # the peer has not hung up on what we sent

    def _greeted(self, said: dict[str, Any]) -> None:
        host, theirs = self._owner.host, records.checked_hello(said)
        if self._ours is not None:
            self._protect(self._ours, theirs)
        host.check(self.peer, theirs)
        self._sent = self._began = records.number_in(said, "have")
        host.resumes(self.peer, self._sent, theirs.heard)
        host.meet(self.peer, theirs)
        self._longest = theirs.terms.frame or self._longest
        self._agree()
        self.say()  # the peer then knows that we accept it, too
        self.pump()

    def pump(self) -> None:
        """Send released frames, as long as the connection and the peer take them."""
        outbox = self._owner.host.outbox(self.peer)
        while self._may_write and self._agreed and not self._ended and outbox.released > self._sent:
            if self._probes and self._sent > self._began:
                return
            if not (frames := outbox.after(self._sent, 1 if self._probes else RECORD_BODIES)):
                return
            record = records.frames_out(frames)
            if len(record) > RECORD_BYTES or len(record) > self._longest:
                if not (fitting := records.fit_record(frames, self._longest)):
                    number, frame = frames[0]
                    why = f"it has {len(frame)} bytes, and {self.peer!r} takes {self._longest}"
                    self._owner.host.set_aside(self.peer, number, f"{why}: raise limits.frame there")
                    return
                frames, record = fitting, records.frames_out(fitting)
            self._sent = frames[-1][0]
            self.write(record)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.is_lost.set()
