"""Per destination, the messages it must have before the next one: a vector of clocks over their senders.

Lane s of column d names M(s, clock), sent to d; zero where there is none. By causal order the newest of a
sender stands for all its earlier ones, so a column never needs two lanes of one sender.
"""

from ...core.lanes import lanes
from ..machine import Unit

Columns = tuple[int, ...]


def units_of(columns: Columns) -> frozenset[Unit]:
    vector = lanes(len(columns))
    return frozenset((s, t, d) for d, column in enumerate(columns) for s, t in vector.items(column))


def named(columns: Columns) -> int:
    """How many messages they name, once per destination."""
    vector = lanes(len(columns))
    return sum(map(vector.occupied, columns))


def known_to(columns: Columns, n: int) -> Columns:
    """The same columns as a system of n processes sees them."""
    vector = lanes(len(columns))
    return tuple(vector.widened(column, n) for column in columns) + (0,) * (n - len(columns))
