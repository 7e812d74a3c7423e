"""Incomplete orders: only some of what is causally related is ordered (Rodrigues & Veríssimo, chapter 6).

labelled     messages of one label are in causal order, messages of different labels in none
priorities   a message waits for earlier ones of its own or a higher priority, and for no other
managed      the application says what a message comes after: it keeps histories as values and merges them

What they take beside a destination set and a payload (a label, a priority, a history) the drivers of
complete orders do not have, so they are not in the registry. Their facts are those of machines that are.
"""

from .labelled import Labelled, LabelledMessage
from .managed import NOTHING, CausalHistory, Delivered, ManagedHistories, ManagedMessage
from .priorities import Priorities

__all__ = [
    "NOTHING",
    "CausalHistory",
    "Delivered",
    "Labelled",
    "LabelledMessage",
    "ManagedHistories",
    "ManagedMessage",
    "Priorities",
]
