"""What can go wrong with a running node, and what to do about it."""

from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError


class NodeError(CausalityError):
    """A node cannot start or go on; no message that it has confirmed is lost."""


class JournalError(NodeError):
    """The journal cannot be used; the text says which file, why, and what to do."""


class EngineFault(NodeError):
    """A step failed after the input had changed state; restart to replay the journal."""


class NodeClosed(LocalProtocolError):
    """The node has been closed, or has stopped for the reason given as cause."""


class NodeFull(LocalProtocolError):
    """There is no room for a multicast: an outbox or the journal is above its limit. Raised by
    `multicast_nowait`, after a `timeout`, and for a full outbox whose policy is "refuse". Nothing was sent:
    wait for `room()`."""


class PeerRefused(RemoteProtocolError):
    """A peer is known by name, but runs another protocol, lists other members, or has lost its journal."""


class OldJournal(PeerRefused):
    """A peer shows that our own journal is an old copy, or has lost its end: the node must stop."""


class IdentityError(CausalityError):
    """A key or certificate cannot be used or made; the text says which file and what to do."""


class PayloadError(CausalityError):
    """A delivered payload is not what the node's codec reads; the message can still be acknowledged."""
