"""Timestamping protocols for relevant events, behind one common interface (tracker.py).

Applications use `Tracker`, which works with names, bytes and comparable timestamps. Drivers use `create`,
which makes a tracker that works with process indices.
"""

from .named import Stamp, Tracker, named, reconstruct
from .piggyback import EventId, Piggyback, Timestamp
from .reconstruction import renumbered, vectors
from .registry import DEFAULT, bound_of, check_deliveries, create, facts_of, protocols
from .tracker import Piggybacked, TrackerFacts, TrackerMachine

__all__ = [
    "DEFAULT",
    "EventId",
    "Piggyback",
    "Piggybacked",
    "Stamp",
    "Timestamp",
    "Tracker",
    "TrackerFacts",
    "TrackerMachine",
    "bound_of",
    "check_deliveries",
    "create",
    "facts_of",
    "named",
    "protocols",
    "reconstruct",
    "renumbered",
    "vectors",
]
