"""Real processes: a `Node` runs an ordering protocol over TCP or NATS, and resumes from its journal.

Everything public of the runtime is here. A node logs what goes wrong under "happened", in sentences that say
what to do. In an application that configures no logging, warnings and errors appear on stderr, as Python does
by default.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.clocks import Causality
from .connections import LinkChange
from .consumers import Subscription
from .errors import (
    IdentityError,
    JournalError,
    NodeClosed,
    NodeError,
    NodeFull,
    OldJournal,
    PayloadError,
    PeerRefused,
)
from .identity import MutualTls, SharedKey
from .limits import Limits
from .message import Health, Message, Pending, Sent, was_sent
from .node import Node
from .payloads import JSON, Codec, MsgPack
from .refused_frames import Quarantined
from .transport import Plaintext
from .udp_multicast import UdpMulticast

if TYPE_CHECKING:
    from .nats import NatsTransport
    from .nats_broadcast import NatsBroadcast
    from .signatures import Signatures

__all__ = [
    "JSON",
    "Causality",
    "Codec",
    "Health",
    "IdentityError",
    "JournalError",
    "Limits",
    "LinkChange",
    "Message",
    "MsgPack",
    "MutualTls",
    "NatsBroadcast",
    "NatsTransport",
    "Node",
    "NodeClosed",
    "NodeError",
    "NodeFull",
    "OldJournal",
    "PayloadError",
    "PeerRefused",
    "Pending",
    "Plaintext",
    "Quarantined",
    "Sent",
    "SharedKey",
    "Signatures",
    "Subscription",
    "UdpMulticast",
    "was_sent",
]


def __getattr__(name: str) -> Any:
    """Import the modules that need nats-py or cryptography only when one of their names is asked for."""
    module = {"NatsTransport": "nats", "NatsBroadcast": "nats_broadcast", "Signatures": "signatures"}.get(
        name
    )
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
