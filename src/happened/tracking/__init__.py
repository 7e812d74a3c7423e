"""Timestamping protocols for relevant events: one registry, one shape, one file per protocol.

`Tracker` is for applications: names, bytes, timestamps that compare. Drivers use `create`.
"""

from .named import Stamp, Tracker, reconstruct
from .piggyback import Piggyback
from .reconstruction import renumbered, vectors
from .registry import DEFAULT, create, protocols
from .tracker import EventId, Facts, Machine, Piggybacked, Timestamp

__all__ = [
    "DEFAULT",
    "EventId",
    "Facts",
    "Machine",
    "Piggyback",
    "Piggybacked",
    "Stamp",
    "Timestamp",
    "Tracker",
    "create",
    "protocols",
    "reconstruct",
    "renumbered",
    "vectors",
]
