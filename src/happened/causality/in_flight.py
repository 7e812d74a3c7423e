"""Messages of a computation as it happens (`live`) that have not been delivered everywhere."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .epochs import event_keys
from .linearization import Ints
from .overtaking import NEVER


class Flying(NamedTuple):
    """Messages in flight, and the destinations of each.

    names, sender, seq, since   of each message; `since` is the batch of its send
    ordered                     whether an order is judged by it
    slot_message, slot_dest     of each slot
    slot_done                   whether it was delivered there
    """

    names: pa.Array
    sender: Ints
    seq: Ints
    since: Ints
    ordered: Ints
    slot_message: Ints
    slot_dest: Ints
    slot_done: Ints

    @classmethod
    def none(cls) -> "Flying":
        zero, no = np.empty(0, np.int64), np.empty(0, bool)
        return cls(pa.array([], pa.string()), zero, zero, zero, no, zero, zero, no)

    def only(self, kept: Ints) -> "Flying":
        """The messages selected by a mask."""
        slots = kept[self.slot_message]
        number = np.cumsum(kept) - 1
        return Flying(
            self.names.filter(pa.array(kept)),
            self.sender[kept],
            self.seq[kept],
            self.since[kept],
            self.ordered[kept],
            number[self.slot_message[slots]],
            self.slot_dest[slots],
            self.slot_done[slots],
        )


def undelivered(flying: Flying) -> Ints:
    """(sender, seq, destination, NEVER) of the ordered slots that have not been delivered."""
    left = np.flatnonzero(~flying.slot_done & flying.ordered[flying.slot_message])
    message = flying.slot_message[left]
    never = np.full(left.size, NEVER)
    columns = [flying.sender[message], flying.seq[message], flying.slot_dest[left], never]
    return np.column_stack(columns).astype(np.int64)


def names_of(flying: Flying) -> Callable[[Ints, Ints], pa.Array]:
    """The names of messages by their sends."""
    keys = event_keys(flying.sender, flying.seq)
    order = np.argsort(keys)
    ordered = keys[order]

    def named(sender: Ints, seq: Ints) -> pa.Array:
        return flying.names.take(pa.array(order[np.searchsorted(ordered, event_keys(sender, seq))]))

    return named
