"""Did every message reach those it was sent to, once, and nobody else?

Every delivery has one fate: the first at a destination, a repetition at the same process, a delivery at
a process it was not sent to, or of a message the trace has no send of. What is left is lost: addressed
to a process that never delivered it (or had not yet, when the trace ends). All of this goes for messages
that were sent unordered too. In a window of a trace, a message without a send was sent outside of it.
"""

from dataclasses import dataclass

import numpy as np

from .computation import Computation, Event, Trace, encode
from .linearization import MISDELIVERED, NEVER_SENT, REPEATED, SENT_OUTSIDE, Ints

DEFAULT_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that was addressed to a process and not delivered there."""

    send: Event
    destination: str

    def __str__(self) -> str:
        return f"{self.send.message} to {self.destination} (sent at {self.send.process}#{self.send.seq})"


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Counts over all computations, and the first few of each kind."""

    events: int
    processes: int
    messages: int  # sent
    deliveries: int  # of any fate
    lost: int
    duplicated: int
    misdelivered: int
    never_sent: int
    lost_examples: tuple[Lost, ...]
    duplicated_examples: tuple[Event, ...]
    misdelivered_examples: tuple[Event, ...]
    never_sent_examples: tuple[Event, ...]
    sent_outside: int = 0  # deliveries of messages that were sent outside of the window


def check_delivery(trace: Trace, *, examples: int = DEFAULT_EXAMPLES) -> Deliveries:
    computations = encode(trace)
    count = dict.fromkeys((REPEATED, MISDELIVERED, NEVER_SENT), 0)
    shown: dict[int, list[Event]] = {fate: [] for fate in count}
    lost = 0
    lost_examples: list[Lost] = []
    for c in computations:
        for fate in count:
            found = np.flatnonzero(c.fate == fate)
            count[fate] += found.size
            shown[fate] += [c.event(e) for e in found[: examples - len(shown[fate])]]
        slots, aside = np.flatnonzero(c.slot_delivery < 0), np.flatnonzero(c.aside.delivery < 0)
        lost += slots.size + aside.size
        message = np.concatenate([c.slot_message[slots], c.aside.message[aside]])
        dest = np.concatenate([c.slot_dest[slots], c.aside.dest[aside]])
        left = max(examples - len(lost_examples), 0)
        lost_examples += _lost(c, message[:left], dest[:left])
    return Deliveries(
        events=sum(c.events for c in computations),
        processes=sum(c.processes for c in computations),
        messages=sum(int(np.count_nonzero(c.send >= 0)) for c in computations),
        deliveries=sum(int(np.count_nonzero(c.fate)) for c in computations),
        lost=lost,
        duplicated=count[REPEATED],
        misdelivered=count[MISDELIVERED],
        never_sent=count[NEVER_SENT],
        lost_examples=tuple(lost_examples),
        duplicated_examples=tuple(shown[REPEATED]),
        misdelivered_examples=tuple(shown[MISDELIVERED]),
        never_sent_examples=tuple(shown[NEVER_SENT]),
        sent_outside=sum(int(np.count_nonzero(c.fate == SENT_OUTSIDE)) for c in computations),
    )


def _lost(c: Computation, message: Ints, dest: Ints) -> list[Lost]:
    return [Lost(c.event(c.send[m]), c.process_names[d]) for m, d in zip(message, dest, strict=True)]
