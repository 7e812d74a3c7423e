"""What a node and the thing that carries its frames ask of each other.

Assumes    every call is made on the event loop's thread; none of the plain methods blocks.
Promises   together they make a *reliable FIFO link* of every pair of processes: the frames a node puts in
           its outbox for a peer are numbered 1, 2, … (link numbers) and are taken in by the peer's node in
           that order, once each, whatever is killed or cut in between.

Who does what
    The node owns all that must survive: the outbox of every peer, and how far each incoming link is
    journaled. A transport owns connections alone. It may lose everything it knows at any time.
    Outgoing   the node says `wake(peer)`; the transport takes frames from `host.outbox(peer)`, and reports
               `host.freed(peer, number)` once frames up to that number are durable elsewhere: in
               the peer's journal (TCP), in the broker (JetStream). Until then they stay in the outbox, and
               a new connection begins again after what the other side says it has.
    Incoming   the transport hands frames to `host.arrived`; the node journals them and says
               `durable(peer, number)`; only then may the transport acknowledge them. Numbers that came
               before are dropped by the node, a gap is refused.
"""

import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .handshake import NONCE_SIZE, Handshake, Mode
from .link import Sendable
from .lives import Life
from .signed import Signer
from .terms import Terms


class Hello(NamedTuple):
    """What two nodes tell each other before frames flow, beyond who they are.

    `incarnation` names one life of a process's state: it is drawn when a journal is made and kept in it. A
    process that comes back with another incarnation has lost its clocks, and whoever knew it must refuse it.
    """

    incarnation: bytes
    knows: bytes  # the other's incarnation as the speaker knows it; empty: they have not met
    protocol: str  # of ordering
    members: tuple[str, ...]  # everybody there ever was, in order of their indices
    tracker: str = ""  # the tracking protocol whose piggybacks messages carry; empty: none
    topology: str = ""  # the digest of its topology; empty: it has none
    confirmed: int = 0  # the speaker's frames up to this link number are in the other's journal
    terms: Terms = Terms()  # those of a node that tells none
    lives: tuple[Life, ...] = ()  # of the speaker, on this link (lives.py); empty: it does not say
    heard: bytes = b""  # the other's life, of which is the last of its frames that the speaker has journaled
    has: int = 0  # the number of that frame; 0 also where a hello may be old when it comes


class Host(Protocol):
    """A node, as its transport sees it."""

    @property
    def name(self) -> str: ...

    def hello(self, peer: str) -> Hello:
        """What we tell this peer about ourselves."""

    def check(self, peer: str, hello: Hello) -> None:
        """Raise PeerRefused if we cannot work with a peer that says this. Nothing is remembered."""

    def meet(self, peer: str, hello: Hello) -> None:
        """The same, and remember the peer's journal for good: only once the transport has authenticated it
        and, where the two ends can answer each other, it has accepted our hello too."""

    def outbox(self, peer: str) -> Sendable:
        """The frames for a peer that may leave now, and are not acknowledged."""

    def confirmed(self, peer: str, number: int) -> None:
        """We are known to have confirmed frames of this peer up to this link number. Raises PeerRefused, and
        stops, if our journal does not know them."""

    def resumes(self, peer: str, number: int, life: bytes = b"") -> None:
        """A connection begins, and the peer says that it has our frames up to this link number, and that the
        last is of this life of ours. Raises PeerRefused if one of us has forgotten what it knew."""

    def shows(self, peer: str, number: int, life: bytes) -> None:
        """The peer has our frames up to this link number by now, more than when the connection began, and the
        last is of this life of ours. Raises OldJournal, and stops, if our journal does not know it."""

    def freed(self, peer: str, number: int) -> None:
        """Our frames up to this link number are durable elsewhere. Less than before changes nothing."""

    def expects(self, peer: str) -> int:
        """The link number of the next frame from this peer."""

    def received(self, peer: str) -> int:
        """Frames of this peer up to this link number are journaled."""

    def numbered_in(self, peer: str, lives: Sequence[Life]) -> None:
        """The frames that arrive from now on were numbered in these lives of the peer."""

    def arrived(self, peer: str, frames: Sequence[tuple[int, bytes]]) -> None:
        """Frames with their link numbers, in order. Raises RemoteProtocolError for a gap or a bad frame:
        those before it are taken, and the link is to be closed (or the frame refused)."""

    def set_aside(self, peer: str, number: int, reason: str) -> None:
        """Our frame of this link number is not sent for now: the peer has refused it, or would."""

    def connected(self, peer: str, outgoing: bool) -> None:
        """A connection can carry frames; this is for logs and statistics."""

    def disconnected(self, peer: str, outgoing: bool, reason: str) -> None:
        """A connection has ended or could not be made; this is for logs and statistics. `peer` is an address
        if the other end never said its name."""


class Transport(Protocol):
    """What carries a node's frames, as the node sees it."""

    async def start(self, host: Host) -> None:
        """Return when peers can reach us; NodeError says why they cannot."""

    @property
    def max_payload(self) -> int:
        """The longest payload, in bytes, whose frame is sure to fit."""

    @property
    def acknowledges_for_peers(self) -> bool:
        """Whether frames are acknowledged when they are in the peer's journal, and not before."""

    @property
    def keeps_order(self) -> bool:
        """Whether it hands over the frames of a link in the order of their numbers. The node refuses those
        that come too early, so one that does not is slow; trackers that need FIFO links refuse it."""

    def check_address(self, peer: str, address: str) -> None:
        """Raise NodeError if `add_peer` would."""

    def add_peer(self, peer: str, address: str) -> None:
        """Talk with this process from now on. May be called before `start` or after it."""

    def remove_peer(self, peer: str) -> None:
        """Close the links with a process, and refuse it from now on."""

    def wake(self, peer: str) -> None:
        """There is something new in `host.outbox(peer)`."""

    def durable(self, peer: str, number: int) -> None:
        """Frames of `peer` up to this link number are journaled: acknowledge them."""

    def pause(self, peer: str) -> None:
        """Take no more frames from this peer until `resume`; a little more may still come."""

    def resume(self, peer: str) -> None:
        """Take frames from this peer again."""

    async def close(self) -> None:
        """Stop at once; whatever is not acknowledged stays in the outboxes."""


class Shared(NamedTuple):
    """A frame that is in the outboxes of several peers, and its link number in each."""

    frame: bytes
    numbers: dict[str, int]


@runtime_checkable
class Sharing(Protocol):
    """A transport with a broadcast medium: it can carry a frame once for several peers (medium.py)."""

    def share(self, released: Sequence[Shared]) -> None:
        """These frames were released just now, in this order; `wake` of their peers follows."""

    def medium_counts(self) -> dict[str, int]:
        """What the medium has carried, for statistics."""


@runtime_checkable
class Signing(Protocol):
    """A transport whose messages others pass on, as a broker does."""

    def sign_with(self, signer: Signer) -> None:
        """Let every message be signed by its sender, and take no others."""


class Guard(Protocol):
    """How a TCP transport knows whom it talks with: one per node."""

    @property
    def local_only(self) -> bool:
        """Whether only loopback addresses may be used."""

    def tls(self, *, server: bool) -> ssl.SSLContext | None:
        """The context of every connection we accept (server) or make; None: no TLS."""

    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        """The handshake of one new connection. `wanted` is whom we called, None if we were called; `tls` is
        the connection's ssl object, None without TLS."""

    @property
    def group_key(self) -> bytes | None:
        """What everybody in the group can authenticate a datagram to all with; empty: nothing, as on the
        links; None: identities are proved on each link alone."""


class Plaintext:
    """A guard that believes every name and hides nothing; for loopback only, unless `anywhere` is true."""

    group_key: bytes | None = b""

    def __init__(self, *, anywhere: bool = False) -> None:
        self.local_only = not anywhere

    def tls(self, *, server: bool) -> ssl.SSLContext | None:
        return None

    def handshake(self, me: str, wanted: str | None, tls: Any) -> Handshake:
        return Handshake(me, Mode.PLAINTEXT, nonce=bytes(NONCE_SIZE), wanted=wanted)
