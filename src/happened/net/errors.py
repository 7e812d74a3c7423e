"""What can go wrong with a running node, and what to do about it."""

from ..core.errors import CausalityError, LocalProtocolError, RemoteProtocolError


class NodeError(CausalityError):
    """A node cannot start or go on; nothing that was promised is lost."""


class JournalError(NodeError):
    """The journal cannot be used: says which file, why, and what to do."""


class EngineFault(NodeError):
    """An input was half done when something could not be: the node must stop, and forget it by restarting."""


class NodeClosed(LocalProtocolError):
    """The node has been closed, or has stopped for the reason given as cause."""


class NodeFull(LocalProtocolError):
    """`multicast_nowait` while the outbox is above its limit: wait for `room()`."""


class PeerRefused(RemoteProtocolError):
    """A peer we know by name, but cannot work with: another protocol, other members, or a lost journal."""
