"""The delivery orders that a protocol can promise."""

from enum import StrEnum


class Order(StrEnum):
    NONE = "none"
    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL = "total"
    CAUSAL_TOTAL = "causal-total"

    @property
    def is_causal(self) -> bool:
        return self in (Order.CAUSAL, Order.CAUSAL_TOTAL)

    @property
    def is_total(self) -> bool:
        return self in (Order.TOTAL, Order.CAUSAL_TOTAL)

    @property
    def is_fifo(self) -> bool:
        """Whether this order delivers the messages of one sender to one destination in the order sent."""
        return self is Order.FIFO or self.is_causal
