"""A broadcast medium beside TCP links: UDP multicast, which carries a frame once for all its destinations.

    datagram   kind, body; where nodes sign, the sender's signature of both (signatures.py); with a key, the
               first 16 bytes of HMAC-SHA-256 over all that
    FRAMES     body of this kind: a packet (wire/packets.py)
    BEACON     body of this kind: the sender's name, its incarnation, and the tags of peers that it hears

Assumes    links that say which process a peer is, and its incarnation (transport.py). Datagrams may be lost,
           repeated, reordered and forged.
Promises   what the links promise. The link sends a frame that is not acknowledged `repair` seconds after it
           was sent (more, if its receiver has been slow before: MOST_PATIENCE). It sends at once a frame that
           is too long for a datagram, too far ahead of what its receiver has, or for a peer that does not
           hear us. A datagram is taken only from a peer that has a link with us now, of the same incarnation
           as there; with a key only if the key made it, and where nodes sign only if that peer signed it.
Bounds     AHEAD frames for each peer are under way on the medium, and as many early ones are kept here.
Leaves out secrecy: everybody in the group can read datagrams, also where links are encrypted.
"""

import asyncio
import hmac
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from ..core.errors import RemoteProtocolError
from ..wire import packets
from ..wire.primitives import Reader, write_number
from .errors import NodeError
from .identity import read_key
from .link import Sendable
from .medium import Claims, Unclaimed, claimed, runs
from .signed import SIGNATURE_BYTES, Signer
from .tcp import TcpTransport, split_address
from .transport import Guard, Host, Shared

log = logging.getLogger("happened.node")

FRAMES, BEACON = b"F", b"B"
INCARNATION_BYTES = 32
MAC_BYTES = 16
AHEAD = 128
"""How far link numbers may be ahead of what a peer has acknowledged: about as many small datagrams as a
socket's buffer holds while nobody reads it."""
MOST_DATAGRAM = 65_000
RECEIVE_BUFFER = 1 << 20
READ_AT_ONCE = 64
"""How many datagrams are read before other tasks get their turn."""
COUNTS = ("datagrams", "bytes", "packets", "copies", "repaired", "received", "refused")
"""Datagrams sent and their bytes; datagrams with frames; copies that links did not carry; of those, copies
left to the links in the end; frames that came for us; datagrams refused."""
MOST_PATIENCE, CALMING = 16.0, 7 / 8
"""A peer that does not acknowledge in time is given twice the time, up to MOST_PATIENCE times `repair`; each
acknowledgement that comes in time reduces that again by the factor CALMING."""
SOON = 0.02
"""Seconds after which an extra beacon is sent, ahead of the next regular one."""
SILENT_BEATS = 3
"""How many beacons may be missing before we assume that a peer does not hear."""


class UdpMulticast:
    """The medium of one node.

    group       "address:port", the same for all nodes of the system, and used by nobody else
    interface   address of the network interface to use
    key         a key that authenticates datagrams, or its file (`happened node keys shared`); default: the
                links' own. Whoever has it can speak for everybody, unless nodes sign: with certificates,
                that is weaker than what the links require
    ttl         how many routers a datagram may cross; on loopback, 0
    datagram    the longest datagram to send, in bytes
    repair      the least seconds after which the link sends a frame
    beat        seconds between beacons
    """

    def __init__(
        self,
        group: str,
        *,
        interface: str = "127.0.0.1",
        key: bytes | str | Path | None = None,
        ttl: int = 1,
        datagram: int = 1400,
        repair: float = 0.1,
        beat: float = 0.5,
    ) -> None:
        self.group = split_address(group)
        try:
            if not ipaddress.IPv4Address(self.group[0]).is_multicast or not self.group[1]:
                raise ValueError
            self.is_local = ipaddress.IPv4Address(interface).is_loopback
        except ValueError:
            raise NodeError(
                f"group {group!r} on interface {interface!r}: give an IPv4 multicast address and a port, "
                "such as 239.255.7.1:7400, and the address of an interface, such as 127.0.0.1"
            ) from None
        if not 128 <= datagram <= MOST_DATAGRAM or repair <= 0 or beat <= 0 or not 0 <= ttl <= 255:
            raise NodeError(
                f"a datagram has 128 to {MOST_DATAGRAM} bytes, ttl is 0 to 255, repair and beat are positive"
            )
        self.interface, self.ttl = interface, 0 if self.is_local else ttl
        self.key = key if isinstance(key, bytes) or key is None else read_key(Path(key))
        self.datagram, self.repair, self.beat = datagram, repair, beat

    def over(self, links: TcpTransport, guard: Guard, signer: Signer | None = None) -> "MulticastTransport":
        """These links with this medium; NodeError if datagrams would be less authentic than links' frames."""
        key = self.key if self.key is not None else guard.group_key
        if key is None and signer is None:
            raise NodeError(
                "links prove who a peer is by certificates, which a datagram to all cannot: give the nodes "
                "signatures, or the medium a key of the group (`happened node keys shared`), or no medium"
            )
        if not key and not self.is_local and signer is None:
            raise NodeError(
                f"datagrams on {self.interface} without authentication; give a shared key, or use loopback"
            )
        return MulticastTransport(links, self, Seal(key or b"", self.group, signer))

    def open(self) -> tuple[socket.socket, socket.socket]:
        """A socket that receives the group's datagrams, and one that sends to the group."""
        interface = socket.inet_aton(self.interface)
        hears, sends = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        try:
            hears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # nodes on one machine share the port
            hears.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            hears.bind(self.group)
            group = socket.inet_aton(self.group[0]) + interface
            hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, self.ttl)
            sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        except OSError as error:
            hears.close()
            sends.close()
            raise NodeError(
                f"cannot take part in group {self.group[0]}:{self.group[1]} on interface {self.interface}: "
                f"{error.strerror or error}"
            ) from error
        for each in (hears, sends):
            each.setblocking(False)
        return hears, sends


class Seal:
    """Authenticates a group's datagrams; without key and signatures it adds nothing and accepts all."""

    def __init__(self, key: bytes, group: tuple[str, int], signer: Signer | None = None) -> None:
        context = f"happened medium {group[0]}:{group[1]}"
        self._key = hmac.digest(key, context.encode(), "sha256") if key else b""
        self._context, self._signer = context, signer
        self._signature_bytes = SIGNATURE_BYTES if signer is not None else 0
        self.size = self._signature_bytes + (MAC_BYTES if key else 0)

    def close(self, data: bytes) -> bytes:
        if self._signer is not None:
            data += self._signer.sign(self._context, data)
        return data + self._mac(data)

    def open(self, datagram: bytes) -> tuple[bytes, bytes]:
        """The sealed data, and its signature, which is yet to be checked; RemoteProtocolError if our key did
        not seal it."""
        data = datagram
        if self._key:
            data, mac = datagram[:-MAC_BYTES], datagram[-MAC_BYTES:]
            if not hmac.compare_digest(mac, self._mac(data)):
                raise RemoteProtocolError("a datagram that was not made with our key")
        end = max(0, len(data) - self._signature_bytes)
        return data[:end], data[end:]

    def check(self, speaker: str, data: bytes, signature: bytes) -> None:
        """Raise RemoteProtocolError unless, where nodes sign, the process `speaker` has signed this."""
        if self._signer is not None:
            self._signer.check(speaker, signature, self._context, data)

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:MAC_BYTES] if self._key else b""


class Hearer:
    """What the medium knows of one peer."""

    __slots__ = ("called", "calling", "claims", "early", "heard", "hears_us", "patience")

    def __init__(self) -> None:
        self.claims = Claims()
        self.early: dict[int, bytes] = {}  # by link number, frames that came before their turn
        self.heard = self.hears_us = float("-inf")  # when its last beacon came, and its last that names us
        self.calling = self.called = False  # whether our link to it is open, and its link to us
        self.patience = 1.0  # it gets this many times `repair` seconds


class MulticastTransport(TcpTransport):
    """TCP links with a medium beside them."""

    def __init__(self, links: TcpTransport, medium: UdpMulticast, seal: Seal) -> None:
        super().__init__(links.address, links.guard, links.limits)
        self._medium, self._seal = medium, seal
        self.peers: dict[str, Hearer] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._counts = dict.fromkeys(COUNTS, 0)
        self._complained = False  # whether a refused datagram was logged since the last beat

    async def start(self, host: Host) -> None:
        self._node, self._sockets = host, self._medium.open()
        try:
            await super().start(cast(Host, _LeavingOut(host, self)))
        except BaseException:
            self._stop()
            raise
        asyncio.get_running_loop().add_reader(self._sockets[0], self._read)
        self._beat()

    def add_peer(self, peer: str, address: str) -> None:
        self.peers.setdefault(peer, Hearer())
        super().add_peer(peer, address)

    def remove_peer(self, peer: str) -> None:
        self.peers.pop(peer, None)
        super().remove_peer(peer)

    async def close(self) -> None:
        self._stop()
        await super().close()

    def share(self, released: Sequence[Shared]) -> None:
        if self._sockets is None:
            return
        now = asyncio.get_running_loop().time()
        chosen = claimed(
            released,
            lambda name, number: self._claims_of(name, number, now),
            lambda frame, hearing: len(frame) <= self._most_frames(len(hearing)),
            lambda name: now + self.peers[name].patience * self._medium.repair,
        )
        for run in runs(chosen, self._most_frames):
            incarnation = self._node.hello(next(iter(run.first))).incarnation
            self._send(FRAMES, packets.encode(self._node.name, incarnation, run.first, run.frames))
            self._counts["packets"] += 1
            self._counts["copies"] += len(run.first) * len(run.frames)
        if "repair" not in self._timers:
            self._repair_later()

    def medium_counts(self) -> dict[str, int]:
        return dict(self._counts)

    # Sending.

    def _most_frames(self, destinations: int) -> int:
        """How many bytes of frames fit in a datagram, whose head takes about eight for each destination."""
        head = len(self._node.name.encode()) + 2 * INCARNATION_BYTES
        return self._medium.datagram - self._seal.size - head - 8 * destinations

    def _claims_of(self, name: str, number: int, now: float) -> Claims | None:
        """The claims of a peer's link, if the peer would hear a frame of this number."""
        peer = self.peers.get(name)
        if peer is None or not (peer.calling and peer.called and self._is_recent(peer.hears_us, now)):
            return None
        return peer.claims if number <= self._node.outbox(name).acknowledged + AHEAD else None

    def _is_recent(self, beacon: float, now: float) -> bool:
        return now - beacon <= SILENT_BEATS * self._medium.beat

    def _send(self, kind: bytes, body: bytes) -> None:
        datagram = self._seal.close(kind + body)
        self._counts["datagrams"] += 1
        self._counts["bytes"] += len(datagram)
        self._transmit(datagram)

    def _transmit(self, datagram: bytes) -> None:
        if self._sockets is not None:
            with suppress(OSError):  # a full buffer, an interface that is down: the links repair it
                self._sockets[1].sendto(datagram, self._medium.group)

    def _repair_later(self) -> None:
        if any(peer.claims for peer in self.peers.values()):
            self._after("repair", self._medium.repair / 2, self._repair)

    def _repair(self) -> None:
        """Leave frames to the links that were not acknowledged in time."""
        del self._timers["repair"]
        now = asyncio.get_running_loop().time()
        for name, peer in self.peers.items():
            if given_back := peer.claims.expire(now):
                self._counts["repaired"] += given_back
                # The frame is lost, or the peer is slow: then later frames must not be sent twice, too.
                peer.patience = min(2 * peer.patience, MOST_PATIENCE)
                self.wake(name)
        self._repair_later()

    def _beat(self) -> None:
        """Send a beacon: we are here, and these are the peers we hear."""
        self._timers.pop("beat", None)
        self._complained = False
        now = asyncio.get_running_loop().time()
        if self.peers:
            out = bytearray()
            incarnation = self._node.hello(next(iter(self.peers))).incarnation
            for text in (self._node.name.encode(), incarnation):
                write_number(out, len(text))
                out += text
            for name, peer in self.peers.items():
                out += packets.tag(name) if self._is_recent(peer.heard, now) else b""
            self._send(BEACON, bytes(out))
        self._after("beat", self._medium.beat, self._beat)

    def beat_soon(self) -> None:
        """Send a beacon soon, for a peer that has just come: one for all that come at once."""
        beat = self._timers.get("beat")
        if beat is not None and beat.when() > asyncio.get_running_loop().time() + SOON:
            beat.cancel()
            self._after("beat", SOON, self._beat)

    def _after(self, what: str, seconds: float, act: Callable[[], None]) -> None:
        self._timers[what] = asyncio.get_running_loop().call_later(seconds, act)

    def _stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        sockets, self._sockets = self._sockets or (), None
        for each in sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()

    # Receiving.

    def _read(self) -> None:
        for _ in range(READ_AT_ONCE):
            if self._sockets is None:
                return
            try:
                datagram = self._sockets[0].recv(1 << 16)
            except OSError:  # there are no more datagrams
                return
            try:
                self._take(*self._seal.open(datagram))
            except RemoteProtocolError as error:
                self._complain(error)

    def _complain(self, error: RemoteProtocolError) -> None:
        self._counts["refused"] += 1
        if not self._complained:
            self._complained = True
            log.warning("datagram refused", extra={"node": self._node.name, "error": str(error)})

    def _take(self, data: bytes, signature: bytes) -> None:
        kind, body = data[:1], data[1:]
        if kind == BEACON:
            reader = Reader(body)
            try:
                name = reader.take(reader.number()).decode()
            except UnicodeDecodeError as error:
                raise RemoteProtocolError(f"a beacon's sender is not a name: {error}") from error
            incarnation = reader.take(reader.number())
        elif kind == FRAMES:
            packet = packets.decode(body)
            name, incarnation = packet.sender, packet.incarnation
        else:
            raise RemoteProtocolError(f"a datagram of unknown kind {kind!r}")
        peer = self.peers.get(name)
        if peer is None or not peer.called:
            return  # our own, or of no present peer
        if incarnation != self._node.hello(name).knows:
            raise RemoteProtocolError(f"a datagram of {name!r} with another journal than it has on its link")
        self._seal.check(name, data, signature)
        if kind == BEACON:
            self._take_beacon(peer, reader)
        elif name not in self._paused:
            expected = self._node.expects(name)
            frames = packet.numbered(self._node.name)
            self._counts["received"] += len(frames)
            peer.early |= {k: frame for k, frame in frames if expected <= k < expected + AHEAD}
            self._hand_over(name, peer)

    def _take_beacon(self, peer: Hearer, reader: Reader) -> None:
        now = asyncio.get_running_loop().time()
        if not self._is_recent(peer.heard, now):
            self.beat_soon()
        peer.heard = now
        ours = packets.tag(self._node.name)
        while reader.left:
            if reader.take(packets.TAG_BYTES) == ours:
                peer.hears_us = now

    def hand_over_early(self, name: str) -> None:
        """The link has brought frames that early ones from the medium may have waited for."""
        if name in self.peers and self.peers[name].early:
            try:
                self._hand_over(name, self.peers[name])
            except RemoteProtocolError as error:  # the link is not at fault
                self._complain(error)

    def _hand_over(self, name: str, peer: Hearer) -> None:
        """Give the node the frames whose turn has come; forget those that came by the link."""
        expected = self._node.expects(name)
        for number in [number for number in peer.early if number < expected]:
            del peer.early[number]
        turn: list[tuple[int, bytes]] = []
        while (frame := peer.early.pop(expected + len(turn), None)) is not None:
            turn.append((expected + len(turn), frame))
        if turn:
            self._node.arrived(name, turn)


class _LeavingOut:
    """A node as the links beside a medium see it: they carry only the frames that the medium leaves."""

    def __init__(self, node: Host, medium: MulticastTransport) -> None:
        self._node, self._medium = node, medium

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def outbox(self, peer: str) -> Sendable:
        outbox, known = self._node.outbox(peer), self._medium.peers.get(peer)
        return outbox if known is None else Unclaimed(outbox, known.claims)

    def resumes(self, peer: str, number: int, life: bytes = b"") -> None:
        self._node.resumes(peer, number, life)
        self._settle(peer, number)

    def freed(self, peer: str, number: int) -> None:
        self._node.freed(peer, number)
        self._note(peer, outgoing=True, is_open=True)
        self._settle(peer, number)

    def _settle(self, name: str, number: int) -> None:
        peer = self._medium.peers.get(name)
        if peer is not None and peer.claims:
            if peer.claims.settle(number):
                peer.patience = max(1.0, peer.patience * CALMING)
            self._medium.wake(name)  # the frames behind them may be sent

    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None:
        self._node.arrived(peer, frames)
        # A connection that was replaced by another may have ended after the other began.
        self._note(peer, outgoing=False, is_open=True)
        self._medium.hand_over_early(peer)

    def connected(self, peer: str, outgoing: bool) -> None:
        self._note(peer, outgoing=outgoing, is_open=True)
        self._node.connected(peer, outgoing)

    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None:
        self._note(peer, outgoing=outgoing, is_open=False)
        self._node.disconnected(peer, outgoing, reason)

    def _note(self, name: str, *, outgoing: bool, is_open: bool) -> None:
        """Note that a link is open, or is not."""
        peer, end = self._medium.peers.get(name), "calling" if outgoing else "called"
        if peer is not None and getattr(peer, end) != is_open:
            setattr(peer, end, is_open)
            if is_open:
                self._medium.beat_soon()
