"""Incomplete orders: only some of what is causally related is ordered (Rodrigues & Veríssimo, chapter 6).

labelled     messages of one label are in causal order, messages of different labels in none
priorities   a message waits for earlier ones of its own or a higher priority, and for no other
managed      the application says what a message comes after: it keeps histories as values and merges them

They take a label, a priority or a history beside destinations and a payload. Nodes give them those; drivers
that compare complete orders have none to give, so `protocols` does not list them, and `incomplete` does.
"""

from .labelled import Labelled, LabelledMessage
from .managed import (
    NOTHING,
    CausalHistory,
    ManagedHistories,
    ManagedMessage,
    ManagedMulticast,
    OrderedDelivery,
    Priorities,
)

__all__ = [
    "NOTHING",
    "CausalHistory",
    "Labelled",
    "LabelledMessage",
    "ManagedHistories",
    "ManagedMessage",
    "ManagedMulticast",
    "OrderedDelivery",
    "Priorities",
]
