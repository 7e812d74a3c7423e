"""The calls between a node and its transport, which carries the node's frames.

Assumes    every call is made on the event loop's thread; none of the plain methods blocks.
Promises   together they make a *reliable FIFO link* of every pair of processes: the frames a node puts in
           its outbox for a peer are numbered 1, 2, … (link numbers) and are taken in by the peer's node in
           that order, once each, whatever is killed or cut in between.

Who does what
    The node owns everything that must survive: the outbox of every peer, and how far each incoming link is
    journaled. A transport owns only connections. It may lose everything it knows at any time.
    Outgoing   the node says `wake(peer)`; the transport takes frames from `host.outbox(peer)`, and reports
               `host.freed(peer, number)` once frames up to that number are durable elsewhere: in
               the peer's journal (TCP), in the broker (JetStream). Until then frames stay in the outbox, and
               a new connection begins after the frames that the other side says it has.
    Incoming   the transport hands frames to `host.arrived`; the node journals them and calls
               `durable(peer, number)`; only then may the transport acknowledge them. The node drops frames
               whose numbers came before, and refuses a gap.
"""

import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .errors import NodeError
from .handshake import NONCE_SIZE, Handshake, Mode
from .link import Sendable
from .lives import Life
from .signed import Signer
from .terms import Terms


class Hello(NamedTuple):
    """What two nodes tell each other before frames flow, besides their names.

    `incarnation` names one history of a process's state: it is drawn when a journal is made, and kept there.
    A process that comes back with another incarnation has lost its clocks; peers that knew it must refuse it.
    """

    incarnation: bytes
    knows: bytes  # the other's incarnation as the speaker knows it; empty: they have not met
    protocol: str  # the ordering protocol
    members: tuple[str, ...]  # all members there ever were, in the order of their indices
    tracker: str = ""  # the tracking protocol whose piggybacks messages carry; empty: none
    topology: str = ""  # the digest of its topology; empty: it has none
    confirmed: int = 0  # the speaker's frames up to this link number are in the other's journal
    terms: Terms = Terms()  # the default: terms of a node that tells none
    lives: tuple[Life, ...] = ()  # of the speaker, on this link (lives.py); empty: it does not say
    heard: bytes = b""  # the other's life that numbered the last of its frames that the speaker has journaled
    has: int = 0  # the number of that frame; 0 also where a hello may be old when it comes


class Host(Protocol):
    """A node, as its transport sees it: hosting.py says what each call means."""

    @property
    def name(self) -> str: ...
    def hello(self, peer: str) -> Hello: ...
    def check(self, peer: str, hello: Hello) -> None: ...
    def meet(self, peer: str, hello: Hello) -> None: ...
    def outbox(self, peer: str) -> Sendable: ...
    def confirmed(self, peer: str, number: int) -> None: ...
    def resumes(self, peer: str, number: int, life: bytes = b"") -> None: ...
    def shows(self, peer: str, number: int, life: bytes) -> None: ...
    def freed(self, peer: str, number: int) -> None: ...
    def expects(self, peer: str) -> int: ...
    def received(self, peer: str) -> int: ...
    def numbered_in(self, peer: str, lives: Sequence[Life]) -> None: ...
    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None: ...
    def set_aside(self, peer: str, number: int, reason: str) -> None: ...
    def connected(self, peer: str, outgoing: bool) -> None: ...
    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None: ...


class Transport(ABC):
    """Carries a node's frames: the transport as the node sees it.

    A subclass makes a link for each peer, with `wake`, `durable`, `pause`, `resume` and `close`.
    """

    keeps_order = True
    """Whether it hands over the frames of a link in the order of their numbers. The node refuses frames that
    come too early, so a transport without order is slow; trackers that need FIFO links refuse it."""
    acknowledges_for_peers = True
    """Whether frames are acknowledged only once they are in the peer's journal."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}  # of the peers
        self._links: dict[str, Any] = {}  # by peer, once links can be made
        self._paused: set[str] = set()
        self._host: Host | None = None
        self._makes_links = False

    @property
    def host(self) -> Host:
        if self._host is None:
            raise NodeError("this transport has not been started")
        return self._host

    @abstractmethod
    async def start(self, host: Host) -> None:
        """Start; returns when peers can reach us. NodeError says why they cannot."""

    @abstractmethod
    def _link_with(self, peer: str) -> Any:
        """A new link with a peer, which begins at once."""

    def _make_links(self) -> None:
        self._makes_links = True
        for peer in [peer for peer in self._addresses if peer not in self._links]:
            self._links[peer] = link = self._link_with(peer)
            if peer in self._paused:
                link.pause()

    @property
    @abstractmethod
    def max_payload(self) -> int:
        """The longest payload, in bytes, whose frame will certainly fit."""

    def check_address(self, peer: str, address: str) -> None:  # noqa: B027
        """Raise NodeError if `add_peer` would; where processes are found by name, any address is accepted."""

    def add_peer(self, peer: str, address: str) -> None:
        """Link with this process from now on. May be called before `start` or after it."""
        self.check_address(peer, address)
        self._addresses[peer] = address
        if self._makes_links:
            self._make_links()

    def remove_peer(self, peer: str) -> None:
        """Close the links with a process, and refuse it from now on."""
        self._addresses.pop(peer, None)
        if peer in self._links:
            self._links.pop(peer).close("it is no longer a member")

    def wake(self, peer: str) -> None:
        """New frames are in `host.outbox(peer)`."""
        if peer in self._links:
            self._links[peer].wake()

    def durable(self, peer: str, number: int) -> None:
        """Frames of `peer` up to this link number are journaled: acknowledge them."""
        if peer in self._links:
            self._links[peer].durable(number)

    def pause(self, peer: str) -> None:
        """Take no more frames from this peer until `resume`; frames already under way may still come."""
        self._paused.add(peer)
        if peer in self._links:
            self._links[peer].pause()

    def resume(self, peer: str) -> None:
        """Take frames from this peer again."""
        self._paused.discard(peer)
        if peer in self._links:
            self._links[peer].resume()

    @abstractmethod
    async def close(self) -> None:
        """Stop at once; frames that are not acknowledged stay in the outboxes."""


class Shared(NamedTuple):
    """A frame in the outboxes of several peers, and its link number in each."""

    frame: bytes
    numbers: dict[str, int]


@runtime_checkable
class Sharing(Protocol):
    """A transport with a broadcast medium: it can carry a frame once for several peers (medium.py)."""

    def share(self, released: Sequence[Shared]) -> None:
        """Take frames that were released just now, in this order; `wake` for their peers follows."""

    def medium_counts(self) -> dict[str, int]:
        """Counts of what the medium has carried, for statistics."""


@runtime_checkable
class Signing(Protocol):
    """A transport whose messages go through others, such as a broker."""

    def sign_with(self, signer: Signer) -> None:
        """Have every message signed by its sender, and take no others."""


class Guard(ABC):
    """How a TCP transport authenticates its peers: one guard per node."""

    local_only = False
    """Whether only loopback addresses may be used."""
    group_key: bytes | None = None
    """The key by which all in the group can authenticate a datagram to all; empty: none is needed, as on the
    links; None: identities are proved on each link alone."""

    def tls(self, *, server: bool) -> ssl.SSLContext | None:
        """The TLS context for connections that we accept (`server`) or make; None: no TLS."""
        return None

    @abstractmethod
    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        """The handshake of one new connection. `wanted`: the peer's name if we called, None if we were
        called; `tls`: the connection's ssl object, None without TLS."""


class Plaintext(Guard):
    """A guard that believes every name and hides nothing; for loopback only, unless `anywhere` is true."""

    group_key = b""

    def __init__(self, *, anywhere: bool = False) -> None:
        self.local_only = not anywhere

    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        return Handshake(me, Mode.PLAINTEXT, nonce=bytes(NONCE_SIZE), wanted=wanted)
