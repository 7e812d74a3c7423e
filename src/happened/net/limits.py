"""The limits above which a node makes its application or its peers wait, or refuses."""

from dataclasses import dataclass, fields

from ..core.errors import LocalProtocolError
from ..wire import MAX_FRAME


@dataclass(frozen=True, slots=True)
class Limits:
    payload: int = 1 << 20
    """Bytes of one message's payload."""
    frame: int = MAX_FRAME
    """Bytes of one frame, with its control information; a longer one ends the link."""
    peers: int = 1023
    """Other processes that a node talks with."""
    outbox: int = 64 << 20
    """Bytes not acknowledged by one peer; above it `multicast` to that peer waits, also if the peer is away,
    and with protocols that relay every multicast. The same for bytes that the protocol keeps back."""
    parked: int = 1 << 30
    """Bytes on disk, beyond `outbox`, for one peer whose frames may be parked; above it `multicast` waits."""
    held: int = 10_000
    """Messages that arrived and wait for others; above it, links that have some are not read."""
    held_bytes: int = 256 << 20
    """Bytes of their payloads; above it, the same."""
    undelivered: int = 10_000
    """Messages the application has not acknowledged; above it, no link is read."""
    undelivered_bytes: int = 256 << 20
    """Bytes of their payloads; above it, no link is read."""
    staged: int = 8 << 20
    """Bytes of inputs that wait for the journal; above it, no link is read and `multicast` waits."""
    state: int = 64 << 20
    """Bytes of the application's state that a newcomer is given."""
    strangers: int = 64
    """Connections that have not said who they are; one more ends the oldest of them."""
    handshake: float = 10.0
    """Seconds until a connection must have said who it is."""
    heartbeat: float = 5.0
    """Seconds between signs of life; three without one end a connection."""
    first_retry: float = 0.05
    last_retry: float = 5.0
    """Seconds before a connection is tried again: doubled each time, with jitter, between these two."""
    linger: float = 5.0
    """Seconds that closing waits for peers to acknowledge what was sent."""
    compaction: int = 16 << 20
    """Bytes of inputs in the journal, beyond twice its last snapshot, after which a new one is made."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
                raise LocalProtocolError(f"limit {field.name!r} is {value!r}, not a number from 0 on")
        if self.frame > MAX_FRAME or self.payload > self.frame:
            raise LocalProtocolError(
                f"a payload of {self.payload} bytes must fit a frame of {self.frame}, and that {MAX_FRAME}"
            )
