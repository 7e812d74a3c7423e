"""Real processes: a `Node` runs an ordering protocol over TCP or NATS, and survives by its journal."""

import logging

from .errors import JournalError, NodeClosed, NodeError, NodeFull, PeerRefused
from .identity import MutualTls, SharedKey
from .limits import Limits
from .node import Message, Node, Pending
from .transport import Plaintext
from .udp_multicast import UdpMulticast

__all__ = [
    "JournalError",
    "Limits",
    "Message",
    "MutualTls",
    "Node",
    "NodeClosed",
    "NodeError",
    "NodeFull",
    "PeerRefused",
    "Pending",
    "Plaintext",
    "SharedKey",
    "UdpMulticast",
]

logging.getLogger("happened").addHandler(logging.NullHandler())
