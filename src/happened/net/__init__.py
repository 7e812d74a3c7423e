"""Real processes: a `Node` runs an ordering protocol over TCP or NATS, and survives by its journal.

What goes wrong is logged under "happened", as sentences that say what to do. An application that
configures no logging sees warnings and errors on stderr, as Python does by default.
"""

from .connections import LinkChange
from .errors import JournalError, NodeClosed, NodeError, NodeFull, PeerRefused
from .identity import MutualTls, SharedKey
from .limits import Limits
from .node import Health, Message, Node, Pending
from .refused_frames import Quarantined
from .transport import Plaintext
from .udp_multicast import UdpMulticast

__all__ = [
    "Health",
    "JournalError",
    "Limits",
    "LinkChange",
    "Message",
    "MutualTls",
    "Node",
    "NodeClosed",
    "NodeError",
    "NodeFull",
    "PeerRefused",
    "Pending",
    "Plaintext",
    "Quarantined",
    "SharedKey",
    "UdpMulticast",
]
