"""The limits above which a node makes its application or its peers wait, or refuses; the policies for a
multicast to a peer whose outbox is full; and which links are not read while a node holds too much. sending.py
decides whether the application may multicast.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from ..core.destinations import pack
from ..core.errors import LocalProtocolError
from ..wire import MAX_FRAME


@dataclass(frozen=True, slots=True)
class Limits:
    payload: int = 1 << 20
    """The longest payload of a message, in bytes."""
    frame: int = MAX_FRAME
    """Bytes of one frame, with its control information; a longer frame ends the link."""
    peers: int = 1023
    """How many other processes a node talks with."""
    outbox: int = 64 << 20
    """Bytes that one peer, present or away, has not acknowledged; above it `multicast` to that peer waits,
    and with protocols that relay every `multicast`. Bytes that the protocol keeps back have the same
    limit."""
    parked: int = 1 << 30
    """Bytes on disk, beyond `outbox`, for one peer with the policy "park"; above it `multicast` waits."""
    held: int = 10_000
    """Messages that arrived and wait for others; above it, links that such messages came on are not read."""
    held_bytes: int = 256 << 20
    """Bytes of the payloads of those messages; above it, the same links are not read."""
    undelivered: int = 10_000
    """Messages the application has not acknowledged; above it, no link is read."""
    undelivered_bytes: int = 256 << 20
    """Bytes of the payloads of those messages; above it, no link is read."""
    staged: int = 8 << 20
    """Bytes of inputs that wait for the journal; above it, no link is read and `multicast` waits."""
    state: int = 64 << 20
    """Bytes of the application's state that is given to a newcomer."""
    strangers: int = 64
    """Connections whose other end has not said who it is; one more ends the oldest of them."""
    handshake: float = 10.0
    """Seconds within which the other end of a connection must say who it is."""
    heartbeat: float = 5.0
    """Seconds between signs of life; a connection ends after three such periods without one."""
    first_retry: float = 0.05
    last_retry: float = 5.0
    """Bounds of the seconds before a connection is tried again; the delay doubles each time, with jitter."""
    linger: float = 5.0
    """Seconds that closing waits for peers to acknowledge what was sent."""
    compaction: int = 16 << 20
    """Bytes of inputs in the journal, beyond twice its last snapshot, after which a new snapshot is made."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
                raise LocalProtocolError(f"limit {field.name!r} is {value!r}, not a number from 0 on")
        if self.frame > MAX_FRAME or self.payload > self.frame:
            raise LocalProtocolError(
                f"a payload of {self.payload} bytes must fit a frame of {self.frame}, and that {MAX_FRAME}"
            )


class WhenFull(StrEnum):
    """wait     until the peer has acknowledged some frames
    refuse   raise NodeFull at once
    park     keep the frames on disk, up to `limits.parked` bytes; above that, wait
    """

    WAIT = "wait"
    REFUSE = "refuse"
    PARK = "park"


class Policies:
    """`given`: one policy for every peer, or policies by name; for the other peers, multicasts wait."""

    def __init__(self, given: str | Mapping[str, str], *, journaled: bool) -> None:
        self._default = WhenFull.WAIT
        self._named: dict[str, WhenFull] = {}
        if isinstance(given, str):
            self._default = _policy(given, "every peer")
        else:
            self._named = {name: _policy(each, repr(name)) for name, each in given.items()}
        if not journaled and WhenFull.PARK in (self._default, *self._named.values()):
            raise LocalProtocolError("frames are parked in the journal: give the node one")

    def of(self, name: str) -> WhenFull:
        return self._named.get(name, self._default)

    def strangers(self, members: Iterable[str]) -> list[str]:
        """The names with a policy that no member has yet."""
        return sorted(self._named.keys() - set(members))


def _policy(text: str, whose: str) -> WhenFull:
    try:
        return WhenFull(text)
    except ValueError:
        known = ", ".join(each.value for each in WhenFull)
        raise LocalProtocolError(f"a full outbox of {whose} can: {known}; not {text!r}") from None


class Flow:
    """Back-pressure, as a function of numbers and of the limits alone; the node carries out what it says.

    `relays`: the protocol forwards multicasts of others, so that arrivals fill outboxes. `onward`: the same
    for routes; per link, the set of links on which messages that arrive there are forwarded.

    Promises   a link is paused only for what reading other links, the application or the disk can reduce, so
               that nodes which wait for one another go on: see `links_to_pause`.
    """

    def __init__(self, limits: Limits, *, relays: bool, onward: Mapping[int, int] | None = None) -> None:
        self._limits = limits
        self.relays = relays
        self.onward = onward or {}

    def links_to_pause(
        self,
        *,
        undelivered: int,
        undelivered_bytes: int,
        staged: int,
        outbox_bytes: Iterable[int],
        held_on_link: Mapping[int, int],
        held: int,
        held_bytes: int = 0,
    ) -> set[int]:
        """The links of `held_on_link`, whose counts add up to `held`, that are not to be read now: each
        arrival asks, so nothing loops over all links while there is room. `outbox_bytes`: those of full
        outboxes.

        All links pause while the application or the journal is behind. If only too many messages are held,
        the links that have some pause: a causally first missing message is the next on a link that has none.
        """
        limits = self._limits
        if (
            undelivered > limits.undelivered
            or undelivered_bytes > limits.undelivered_bytes
            or staged > limits.staged
            or (self.relays and self._relays_too_much(outbox_bytes))
        ):
            return set(held_on_link)
        if held_bytes > limits.held_bytes or held > limits.held:
            return {link for link, held in held_on_link.items() if held}
        return set()

    def routes_to_pause(self, outbox_bytes: Mapping[int, int]) -> set[int]:
        """The links whose messages are forwarded to a peer that is too far behind: one with a full outbox.

        Links of the peer's own block, and the peer's own, are not paused: their messages are not sent there.
        So a node waits only for nodes further along a tree, and no two nodes wait for each other.
        """
        full = pack(link for link, size in outbox_bytes.items() if self._relays_too_much((size,)))
        return {link for link, onward in self.onward.items() if onward & full}

    def _relays_too_much(self, outbox_bytes: Iterable[int]) -> bool:
        """Whether a process that relays must stop reading: it sends multicasts of others, who wait for a peer
        that is away only if their links are not read. The bound is twice the limit of an outbox, which our
        own multicasts never reach, since two nodes must not wait for each other."""
        return max(outbox_bytes, default=0) > 2 * self._limits.outbox + self._limits.frame
