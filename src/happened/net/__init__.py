"""Real processes: a node, its links, its journal."""

import logging

from .errors import JournalError, NodeClosed, NodeError, NodeFull, PeerRefused
from .limits import Limits
from .node import Message, Node, Pending
from .transport import Plaintext

__all__ = [
    "JournalError",
    "Limits",
    "Message",
    "Node",
    "NodeClosed",
    "NodeError",
    "NodeFull",
    "PeerRefused",
    "Pending",
    "Plaintext",
]

logging.getLogger("happened").addHandler(logging.NullHandler())
