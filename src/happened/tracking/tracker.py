"""The interface of a tracker, as drivers see it: relevant events get timestamps, messages carry piggybacks.

A tracker is a plain object like an ordering machine: one method per input; no clock, socket, random generator
or log of its own. Only *relevant* events are numbered, seq = 1, 2, … within their process; sends and receipts
are not events of the tracked relation, they only carry it.

Assumes    processes 0 … n-1 that do not send to themselves. A later process `join`s with the next index, at
           every process before that process gets any message that presumes the newcomer. `on_receive` is
           called when the application gets a message, so that what it does next depends on it. Messages may
           be lost, doubled or late, unless the protocol's facts say `fifo_links`: then links must lose
           nothing and keep the order of each sender.
Promises   a timestamp is exact: it tells of *every* relevant event in its causal past, and of no other. Input
           that breaks the rules raises an error and leaves the state unchanged: LocalProtocolError if our
           caller broke the rules, RemoteProtocolError if a peer did.
Leaves out what a protocol does not know: the timestamp then has None, never a guess.
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
    bound: str  # the most event identifiers that a message among n processes carries
    description: str
    paper: str
    number: int  # in frames; never reused, never changed


class Piggybacked(Protocol):
    """What a message carries for a tracker; an immutable value."""

    @property
    def n(self) -> int:
        """The number of processes that its sender knew."""

    @property
    def entries(self) -> int:
        """The number of event identifiers that it carries."""

    @property
    def bits(self) -> int:
        """Its size in bits when encoded, before padding to whole bytes."""

    @property
    def forced(self) -> Timestamp | None:
        """The null event that its sender had to record just before sending; it is not part of the bytes."""

    def encode(self) -> bytes: ...


class TrackerMachine:
    """One of n processes. A protocol adds `relevant`, `on_send` and `on_receive`, and names its state.

    `name`: the protocol's name in snapshots; `options`: a snapshot is restored only if its options are equal.
    """

    vectors: ClassVar[tuple[str, ...]] = ()
    """The attributes that are packed vectors: so named in snapshots, and with an underscore here."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """The attributes that are single numbers, named likewise."""

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
        """The piggyback for the message that the application now sends to `to`."""
        raise NotImplementedError

    def on_multicast(self, to: Sequence[int]) -> Sequence[Piggybacked]:
        """The piggyback for each copy of one message, sent to all these destinations at once. A null event
        that any copy needs happens before all of them; the first piggyback has it as `forced`."""
        for each in to:  # check all before any state changes
            refusals.peer(each, self.me, self.n)
        return [self.on_send(each) for each in to]

    def on_receive(self, sender: int, piggyback: Any) -> None:
        """Take in the piggyback of a message of `sender`; duplicates and late messages are normal input."""
        raise NotImplementedError

    def decode(self, data: bytes, n: int | None = None) -> Any:
        """The piggyback in these bytes; RemoteProtocolError if they encode none. `n`: the number of processes
        that its sender knew; None: as many as we know."""
        return decode(data, self._geometry, n=n)

    def join(self, process: int) -> None:
        """A process with the next free index joins; it knows nothing yet."""
        if process != self.n:
            raise LocalProtocolError(f"the next process to join has index {self.n}, not {process}")
        self.n += 1
        self._geometry = clock_lanes(self.n)  # its lanes have the same width for every n

    def view(self) -> View | None:
        """The tracker's state as the paper writes it; None if the paper has no notation for it."""
        return None

    def carried(self, piggyback: Any) -> list[PiggybackEntry] | None:
        """The entries of a piggyback as the paper writes them; None if it has no notation for them."""
        return None

    def mark(self) -> dict[str, Any]:
        """The present state for `rewind`; cheaper than a snapshot, and valid for this object only."""
        # Values are immutable numbers, or have a `copy` method, as lists do.
        return {name: value.copy() if hasattr(value, "copy") else value for name, value in vars(self).items()}

    def rewind(self, mark: dict[str, Any]) -> None:
        """Go back to a marked state, as if no later input had happened."""
        vars(self).update(mark)

    def save(self) -> State:
        state = {name: self._geometry.unpack(getattr(self, f"_{name}")) for name in self.vectors}
        return state | {name: getattr(self, f"_{name}") for name in self.numbers}

    def load(self, state: State) -> None:
        """Restore what `save` returned, or raise ValueError; nothing changes before all of it is read."""
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
    """The entries of a piggyback whose values mean these counts and bits."""
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
"""The type of what a protocol's file declares: its forms, each with a factory of trackers."""
