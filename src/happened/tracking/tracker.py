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
from typing import Any, ClassVar, Protocol

from ..core.errors import LocalProtocolError
from ..core.lanes import Lanes, clock_lanes
from . import refusals
from .piggyback import Piggyback, PiggybackEntry, Timestamp, View, decode

State = dict[str, Any]
"""Values that JSON can write, by name."""


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


class TrackerMachine:
    """One of n processes. A protocol adds `relevant`, `on_send` and `on_receive`, and says what is its state.

    `name` is what snapshots call the protocol, `options` what they must have in common with it.
    """

    vectors: ClassVar[tuple[str, ...]] = ()
    """What it keeps as packed vectors: by these names in a snapshot, and after an underscore here."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """The same of single numbers."""

    def __init__(self, name: str, me: int, n: int, geometry: Lanes | None = None, **options: Any) -> None:
        refusals.member(me, n)
        self.me = me
        self.n = n
        self._name = name
        self._geometry = clock_lanes(n) if geometry is None else geometry
        self._options = options

    def relevant(self) -> Timestamp:
        """Record a relevant event of the application and return its timestamp."""
        raise NotImplementedError

    def on_send(self, to: int) -> Piggybacked:
        """What the message that the application now sends to `to` has to carry."""
        raise NotImplementedError

    def on_multicast(self, to: Sequence[int]) -> Sequence[Piggybacked]:
        """The same for each copy of one message, sent to all of these at once. A null event that any copy
        needs happens before all of them; the first has it as `forced`."""
        for each in to:  # before the first of them changes anything
            refusals.peer(each, self.me, self.n)
        return [self.on_send(each) for each in to]

    def on_receive(self, sender: int, piggyback: Any) -> None:
        """Take in what a message of `sender` carried; duplicates and late messages are normal input."""
        raise NotImplementedError

    def decode(self, data: bytes, n: int | None = None) -> Any:
        """The piggyback that these bytes encode; bytes that encode none are a RemoteProtocolError. `n` is how
        many processes its sender knew of; None: as many as we do."""
        return decode(data, self._geometry, n=n)

    def join(self, process: int) -> None:
        """A process with the next free index exists from now on. It knows nothing yet."""
        if process != self.n:
            raise LocalProtocolError(f"the next process to join has index {self.n}, not {process}")
        self.n += 1
        self._geometry = clock_lanes(self.n)  # whose lanes are the same, whatever n is

    def view(self) -> View | None:
        """What is remembered, as the paper writes it; None where it has no form of its own."""
        return None

    def carried(self, piggyback: Any) -> list[PiggybackEntry] | None:
        """What a message carries, likewise."""
        return None

    def mark(self) -> dict[str, Any]:
        """The present state, for `rewind`; cheaper than a snapshot, and for this object only."""
        # Values are numbers, which never change, or have a copy of their own, as lists do.
        return {name: value.copy() if hasattr(value, "copy") else value for name, value in vars(self).items()}

    def rewind(self, mark: dict[str, Any]) -> None:
        """Go back to a marked state: whatever was asked since then has not happened."""
        vars(self).update(mark)

    def save(self) -> State:
        state = {name: self._geometry.unpack(getattr(self, f"_{name}")) for name in self.vectors}
        return state | {name: getattr(self, f"_{name}") for name in self.numbers}

    def load(self, state: State) -> None:
        """Take over what `save` gave, or raise ValueError: everything is read before anything changes."""
        read = {f"_{name}": refusals.numbers(state[name], self._geometry) for name in self.vectors}
        read |= {f"_{name}": refusals.number(state[name]) for name in self.numbers}
        vars(self).update(read)

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return refusals.dump(self._name, self.me, self.n, **self._options, **self.save())

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol, process and options."""
        with refusals.loading(data, self._name, self.me, self.n, **self._options) as state:
            self.load(state)


def entries_of(
    piggyback: Piggyback, counts: tuple[int, ...], immediate: tuple[int, ...] | None = None
) -> list[PiggybackEntry]:
    """The entries of a piggyback whose values stand for these counts and bits."""
    columns = None if piggyback.columns is None else piggyback.geometry.unpack(piggyback.columns)
    return [
        PiggybackEntry(
            k,
            counts[k],
            None if immediate is None else immediate[k],
            None if columns is None else tuple(1 - (columns[k] >> j & 1) for j in range(piggyback.n)),
        )
        for k, _ in piggyback.items()
    ]


Protocols = tuple[tuple[TrackerFacts, Callable[..., TrackerMachine]], ...]
"""What a protocol's file declares: each of its forms, and what makes a machine of it."""
