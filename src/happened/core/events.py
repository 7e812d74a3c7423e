"""What a driver records of a process: the events of a computation, in the past tense.

Each is numbered `seq` = 1, 2, … within its process; `message` is the (sender, clock) pair that names
a message. The trace room turns them into rows.
"""

from dataclasses import dataclass

MessageId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sent:
    process: int
    seq: int
    message: MessageId
    to: frozenset[int]


@dataclass(frozen=True, slots=True)
class Received:
    """The arrival of a message; the application has not seen it yet."""

    process: int
    seq: int
    message: MessageId


@dataclass(frozen=True, slots=True)
class Delivered:
    process: int
    seq: int
    message: MessageId


@dataclass(frozen=True, slots=True)
class Internal:
    process: int
    seq: int


Event = Sent | Received | Delivered | Internal
