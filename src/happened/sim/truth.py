"""The ground truth of a small computation, event by event, computed without control information; and what a
promised order requires of deliveries.

Promises   `Truth` is a value: every event gives a new one, so explored states can share their pasts. Two
           truths are equal iff no later event, and no method below, can distinguish them.
Assumes    the messages are known in advance (sender and destinations) and numbered 0, 1, …
Edges      happened-before as in the papers: the order within a process, and from a send to its *deliveries*.
           An arrival that is not yet a delivery tells a process nothing.

A causal past is an `int` used as a bit set over events. Message m owns n + 1 adjacent bits, its send and its
delivery at each of the n processes. Shifting a set of sends by 1 + d gives the set of their deliveries at d,
so every question takes a few operations on whole sets.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from ..core.destinations import unpack
from ..core.orders import Order

Name = TypeVar("Name", bound=Hashable)

Edge = tuple[int, int]
"""(message, destination): a unit of information; the message is given by its number."""


class Messages:
    """The sender and destinations of every message: the part of the truth that never changes."""

    def __init__(self, processes: int, destinations: Sequence[int]) -> None:
        self.processes = processes
        self.destinations = tuple(destinations)  # a bit set of processes per message
        stride = processes + 1
        self.sends = tuple(1 << m * stride for m in range(len(self.destinations)))
        # Per process, the sends addressed to it.
        self.addressed = tuple(
            sum(send for send, to in zip(self.sends, self.destinations, strict=True) if to >> d & 1)
            for d in range(processes)
        )
        self.deliveries = sum(sends << 1 + d for d, sends in enumerate(self.addressed))

    def numbers(self, sends: int) -> list[int]:
        return [bit // (self.processes + 1) for bit in unpack(sends)]


class Truth(NamedTuple):
    """The events that have happened so far.

    The order of two deliveries at one process without a send after them is not kept: no method depends on it.
    """

    pasts: tuple[int, ...]  # per process, its latest event and everything before it
    sends: tuple[int, ...]  # per message, its send and everything before it; 0 while unsent

    @classmethod
    def beginning(cls, messages: Messages) -> "Truth":
        return cls((0,) * messages.processes, (0,) * len(messages.destinations))

    def send(self, messages: Messages, process: int, message: int) -> "Truth":
        past = self.pasts[process] | messages.sends[message]
        pasts, sends = list(self.pasts), list(self.sends)
        pasts[process] = sends[message] = past
        return Truth(tuple(pasts), tuple(sends))

    def deliver(self, messages: Messages, process: int, message: int) -> "Truth":
        pasts = list(self.pasts)
        pasts[process] |= self.sends[message] | messages.sends[message] << 1 + process
        return Truth(tuple(pasts), self.sends)

    def is_delivered(self, messages: Messages, process: int, message: int) -> bool:
        return bool(self.pasts[process] & messages.sends[message] << 1 + process)

    def overtaken(self, messages: Messages, process: int, message: int) -> list[int]:
        """The messages that `message` would overtake if it were delivered to `process` now.

        These are addressed to `process`, were sent in the causal past of `message`'s send, and are not yet
        delivered there. Empty: the delivery keeps causal order.
        """
        before = self.sends[message] ^ messages.sends[message]
        due = before & messages.addressed[process]
        return messages.numbers(due & ~(self.pasts[process] >> 1 + process)) if due else []

    def missing(self, messages: Messages) -> list[Edge]:
        """All pairs of a message and a destination that has not delivered it."""
        happened = 0
        for past in self.pasts:
            happened |= past
        stride = messages.processes + 1
        bits = unpack(messages.deliveries & ~happened)
        return [(bit // stride, bit % stride - 1) for bit in bits]

    def necessary(self, messages: Messages, past: int) -> frozenset[Edge]:
        """The units that PC1 and PC2 (Kshemkalyani & Singhal 1998, §3.4) require in a log with this past.

        (M, x) is one iff M was sent in that past, its delivery at x is not in it, and no message
        sent in it causally after M is addressed to x too.
        """
        units = []
        for x, addressed in enumerate(messages.addressed):
            sent = past & addressed
            if not sent:
                continue
            unknown = sent & ~(past >> 1 + x)
            if unknown:
                covered = 0
                for m in messages.numbers(sent):
                    covered |= self.sends[m] ^ messages.sends[m]
                units += [(m, x) for m in messages.numbers(unknown & ~covered)]
        return frozenset(units)


def on_edge(log: frozenset[Edge], to: int, destination: int) -> frozenset[Edge]:
    """What a message to the set `to` must carry on its edge to `destination`, given the log before it.

    A unit about one of its own destinations goes to that destination alone: the others infer it from the
    message itself.
    """
    return frozenset(unit for unit in log if unit[1] == destination or not to >> unit[1] & 1)


def keeps(order: Order, earlier: int, later: int) -> bool:
    """Whether the order requires that a message of sender `earlier` is delivered before a message of sender
    `later` sent causally after it, at common destinations."""
    return order.is_causal or (order.is_fifo and earlier == later)


def disagreement(orders: Sequence[Sequence[Name]], p: int, message: Name, name: Callable[[Name], str]) -> str:
    """Why no single order of all messages lets p deliver this one now: a chain of messages, each delivered
    before the next at some process, from this message to one that p has delivered. Empty: there is none.

    `orders` has the deliveries of each process so far, without this one.
    """
    before: dict[Name, tuple[Name, int]] = {}  # a message: the one before it in the chain, and where
    reached = [message]
    for m in reached:  # `reached` grows in this loop, so the first chain found is a shortest one
        for q, order in enumerate(orders):
            for later in order[order.index(m) + 1 :] if m in order else ():
                if later not in before:
                    before[later] = m, q
                    reached.append(later)
                if later in orders[p]:
                    return _chain(before, later, message, name)
    return ""


def _chain(before: dict[Name, tuple[Name, int]], last: Name, first: Name, name: Callable[[Name], str]) -> str:
    steps, m = [], last
    while m != first:
        earlier, q = before[m]
        steps.append(f"{q} has {name(earlier)} before {name(m)}")
        m = earlier
    if len(steps) == 1:
        return f"after {name(last)}, and {before[last][1]} before it"
    return f"after {name(last)}, and {', '.join(reversed(steps))}"
