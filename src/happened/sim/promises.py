"""What a promised order demands of deliveries, whoever watches them: the explorer and the narrator."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from ..core.orders import Order

Name = TypeVar("Name", bound=Hashable)


def keeps(order: Order, earlier: int, later: int) -> bool:
    """Whether a message of sender `earlier` must be delivered before one of sender `later` that was sent
    causally after it, where both go."""
    return order.is_causal or (order.is_fifo and earlier == later)


def disagreement(orders: Sequence[Sequence[Name]], p: int, message: Name, name: Callable[[Name], str]) -> str:
    """Why no one order of all messages lets p deliver this one now: a chain of deliveries, each process
    having one message before the next, from it to one that p already has. Empty: there is none.

    `orders` has what each process has delivered so far, without this delivery.
    """
    before: dict[Name, tuple[Name, int]] = {}  # a message of the chain: the one before it, and where
    reached = [message]
    for m in reached:  # grows while we go, so the first chain found is a shortest one
        for q, order in enumerate(orders):
            for later in order[order.index(m) + 1 :] if m in order else ():
                if later not in before:
                    before[later] = m, q
                    reached.append(later)
                if later in orders[p]:
                    return _chain(before, later, message, name)
    return ""


def _chain(before: dict[Name, tuple[Name, int]], last: Name, first: Name, name: Callable[[Name], str]) -> str:
    steps = []
    m = last
    while m != first:
        earlier, q = before[m]
        steps.append(f"{q} has {name(earlier)} before {name(m)}")
        m = earlier
    if len(steps) == 1:
        return f"after {name(last)}, and {before[last][1]} before it"
    return f"after {name(last)}, and {', '.join(reversed(steps))}"
