"""The shape of a tracker, as drivers see it: relevant events get timestamps, messages carry piggybacks.

A tracker is a plain object like an ordering machine: one method per input, no clock, socket, dice or log
of its own. Only *relevant* events are numbered, seq = 1, 2, … within their process; sends and receipts are
not events of the relation that is tracked, they only carry it.

Assumes    processes 0 … n-1 that do not send to themselves. One that comes later `join`s with the next index,
           at every process before that one is told anything that presumes it. `on_receive` is called when
           the application gets a message, so that what it does next depends on it. Messages may be lost,
           doubled or late, unless the protocol's facts say `fifo_links`: those need links that lose
           nothing and keep the order of each sender.
Promises   what a timestamp tells is exact: of *every* relevant event in its causal past, and of no other.
           Input that breaks the rules raises and leaves the state as it was: LocalProtocolError if our
           caller broke them, RemoteProtocolError if a peer did.
Leaves out what a protocol does not know: the timestamp then says None, never a guess.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .remembered import PiggybackEntry, View

EventId = tuple[int, int]
"""(process, seq) of a relevant event."""


@dataclass(frozen=True, slots=True)
class TrackerFacts:
    """What a user must know before choosing a protocol."""

    name: str
    tells: frozenset[str]  # out of "scalar", "dependencies", "vector", "predecessors"
    fifo_links: bool  # whether it needs reliable links that keep the order of each sender
    bound: str  # the most event identifiers a message carries, over n processes
    description: str
    paper: str
    number: int  # names it in frames: never reused, never changed


@dataclass(frozen=True, slots=True)
class Timestamp:
    """What a protocol tells about one relevant event; None is what it cannot tell."""

    process: int
    seq: int
    counts: tuple[int, ...] | None = None
    dependencies: tuple[int, ...] | None = None  # a dependency vector: at most `counts`, equal at `process`
    immediate: frozenset[EventId] | None = None
    scalar: int | None = None
    null: bool = False  # produced by the protocol, not by the application

    def vector(self) -> tuple[int, ...] | None:
        """Per process, how many of its relevant events are in the causal past, this event included."""
        return self.counts

    def predecessors(self) -> frozenset[EventId] | None:
        """The immediate predecessors: the edges of the transitive reduction that end here."""
        return self.immediate


class Piggybacked(Protocol):
    """What a message carries. A value: never changed once made."""

    @property
    def n(self) -> int:
        """How many processes its sender knew."""

    @property
    def entries(self) -> int:
        """How many event identifiers it carries."""

    @property
    def bits(self) -> int:
        """Its size when encoded, before the last byte is filled up."""

    @property
    def forced(self) -> Timestamp | None:
        """The null event that its sender had to record just before sending; it is not part of the bytes."""

    def encode(self) -> bytes: ...


class TrackerMachine(Protocol):
    @property
    def me(self) -> int: ...
    @property
    def n(self) -> int: ...

    def relevant(self) -> Timestamp:
        """Record a relevant event of the application and return its timestamp."""

    def on_send(self, to: int) -> Piggybacked:
        """What the message that the application now sends to `to` has to carry."""

    def on_multicast(self, to: Sequence[int]) -> Sequence[Piggybacked]:
        """The same for each copy of one message, sent to all of these at once. A null event that any copy
        needs happens before all of them; the first has it as `forced`."""

    def on_receive(self, sender: int, piggyback: Any) -> None:
        """Take in what a message of `sender` carried; duplicates and late messages are normal input."""

    def decode(self, data: bytes, n: int | None = None) -> Any:
        """The piggyback that these bytes encode; bytes that encode none are a RemoteProtocolError. `n` is how
        many processes its sender knew of; None: as many as we do."""

    def join(self, process: int) -> None:
        """A process with the next free index exists from now on. It knows nothing yet."""

    def mark(self) -> Any:
        """The present state, for `rewind`; cheaper than a snapshot, and for this object only."""

    def rewind(self, mark: Any) -> None:
        """Go back to a marked state: whatever was asked since then has not happened."""

    def view(self) -> View | None:
        """What is remembered, as the paper writes it; None where it has no form of its own."""

    def carried(self, piggyback: Any) -> list[PiggybackEntry] | None:
        """What a message carries, likewise."""

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol, process and options."""


Protocols = tuple[tuple[TrackerFacts, Callable[..., TrackerMachine]], ...]
"""What a protocol's file declares: each of its forms, and what makes a machine of it."""
