"""The shape of a delivery-order protocol, as drivers see it.

A machine is a plain object: one method per input, each returning the effects to perform. It has no
clock, socket, dice or log of its own. Input that breaks the rules raises and leaves the state as it
was; duplicates made by the network are normal input and change nothing.

Local events are numbered 1, 2, … in the order a driver records them: one for each `multicast`, one
for each `receive`, one for each `Deliver` it returns, one for each `tick`.

`process.py` is the part that all our machines share, `holding.py` what those share that hold messages back.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from ..core.effects import Deliver, Send
from ..core.places import Place
from ..core.telling import Told
from .facts import Facts

Effect = Send[Any] | Deliver
Unit = tuple[int, int, int]
"""(source, clock, destination): message M(source, clock) was sent to this destination."""

MessageKey = tuple[int, int]
"""(sender, clock) of a message."""


class Message(Protocol):
    """What one transmission carries. Values: never changed once made.

    An application message is named by its sender and clock, whoever relays it. A control message (an
    acknowledgement, say) is for no application: its `dests` is empty, and its sender and clock name the
    application message it speaks of, clock 0 meaning none. `messages.py` has what both kinds share.
    """

    @property
    def sender(self) -> int: ...
    @property
    def clock(self) -> int: ...
    @property
    def dests(self) -> int:
        """The destinations as a bit set."""

    @property
    def to(self) -> frozenset[int]:
        """The destinations."""

    @property
    def payload(self) -> bytes: ...
    @property
    def via(self) -> int | None:
        """The process that puts it on a link, where the message tells; None where any may."""

    def units(self) -> frozenset[Unit]:
        """The explicit units carried about messages other than this one."""

    def settled(self) -> frozenset[MessageKey]:
        """The messages of entries that are carried without a unit: they only say that all older messages of
        their senders are settled too."""

    def size(self) -> tuple[int, int]:
        """How many dependency entries (in the protocol's own grouping) it carries, and how many units."""

    def model_bytes(self) -> int:
        """The size of its control information in the papers' model: 4-byte clocks, 2-byte process ids."""

    def carries(self) -> tuple[Any, ...]:
        """The application messages in it, whole: itself, if it is one, and those of others. Each has a
        sender, a clock, dests and a payload as its origin made them, whoever passes it on."""


class Held(NamedTuple):
    """A message that has arrived and may not be delivered yet, and why."""

    message: Any
    waits_for: tuple[MessageKey, ...]  # the (sender, clock) of each undelivered message it needs
    since: int  # the local event at which it arrived


class Hop(NamedTuple):
    """A transmission under the name it has on one stretch of its way, where messages are relayed."""

    part: str  # the part of the system whose hops are ordered among each other; empty: all of it
    relay: int
    clock: int  # of the relay, in this part
    to: frozenset[int]  # the processes it is addressed to
    watching: frozenset[int]  # of these, those that only take note
    units: frozenset[Unit]  # about hops of the same part

    @property
    def key(self) -> MessageKey:
        return self.relay, self.clock


class Multicast(NamedTuple):
    """What `multicast` returns: the clock that names the new message, and the effects to perform."""

    clock: int
    effects: list[Effect]


class Machine(Protocol):
    facts: ClassVar[Facts]

    @property
    def me(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def clock(self) -> int:
        """The clock of the last event that has one."""

    @property
    def coming_clock(self) -> int:
        """The clock that names the next multicast, if that is the next input."""

    @property
    def queued(self) -> int:
        """How many multicasts of ours the protocol keeps back or has not done with: we leave when none is."""

    @property
    def kept_bytes(self) -> int:
        """How much it keeps of our multicasts that have gone out until everybody has them, beyond what it
        keeps when nothing is under way: a driver lets the application wait while this is too much."""

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast: ...
    def receive(self, message: Any) -> list[Effect]: ...
    def pending(self) -> list[Held]:
        """The messages that have arrived and wait, in order of arrival unless the protocol says otherwise."""

    @property
    def pending_count(self) -> int:
        """How many `pending` lists, in time linear in that."""

    @property
    def pending_bytes(self) -> int:
        """The bytes of their payloads."""

    def tick(self) -> int:
        """Advance the clock for an event that is neither a send nor an arrival; returns the new clock."""

    # Who is there. A driver gives these inputs so that whoever gets a message knows every change that its
    # sender knew. What a machine sends to a process that has left need not arrive.

    def join(self, process: int) -> list[Effect]:
        """A process exists from now on. It has the next index, or that of one whom all have forgotten."""

    def leave(self, process: int) -> list[Effect]:
        """A process leaves: nothing more may be addressed to it, whatever waits for its
        answer goes on without, its role passes on. What it has sent may still come. If it is this process,
        which has nothing `queued`, it hands its role over; what it is sent may still come."""

    def expel(self, process: int) -> list[Effect]:
        """A process was expelled, which may have been leaving: as `leave`, if we have not heard that it
        leaves, and it will not do any more what it would do before it has left."""

    def close(self, process: int) -> list[Effect]:
        """Nothing more comes from a process that has left: nobody waits for what has not come. Of what it
        sent us, the first so many messages have come; if it left by itself, all. If it was expelled, so has
        everything that others, and we ourselves, sent us before they heard of it."""

    def forget(self, process: int) -> None:
        """Everybody present has closed with a process that has left, and holds nothing of it: whatever is
        kept about its messages is needed no more."""

    def resume_at(self, place: Place) -> None:
        """Stand at a place of another graph, once everything that anybody sent has been delivered
        everywhere. LocalProtocolError where the protocol does not relay."""

    def do_without(self, process: int) -> list[Effect]:
        """A process at a place of our graph has failed for good, and everybody has told us so: leave and
        close with it, even if others are reached through it. LocalProtocolError as for `resume_at`."""

    def stand_in(self, forwarder: int) -> list[Effect]:
        """Send on what a forwarder that has failed has left to send on, as a witness of it.
        LocalProtocolError where witnesses get no copies (`facts.witnesses`)."""

    def log_size(self) -> tuple[int, int] | None:
        """How many entries and units the next message would draw on; None where no log is kept."""

    def log_units(self) -> frozenset[Unit] | None:
        """The units of the log, which an optimal protocol keeps necessary; None where it does not tell."""

    def log_entries(self) -> list[tuple[int, int, frozenset[int]]] | None:
        """The log as the papers write it: (sender, clock, destinations), empty sets too where they are kept;
        None where it does not tell."""

    # What a story asks, of small systems.

    def observe(self) -> None:
        """From now on, record which rules of the paper are applied."""

    def observed(self) -> list[Told]:
        """What was recorded since this was last asked, in order."""

    def logs(self) -> dict[str, frozenset[Unit]]:
        """The units of each log, by the part of the system that it is about; empty for all of it."""

    def knowledge(self) -> list[tuple[str, str]]:
        """What is remembered, as the paper writes it: the name of each structure, and what is in it."""

    def holds(self) -> list[str]:
        """What is held and for what, as `pending` tells, in words."""

    def hop_of(self, message: Any, peer: int) -> Hop | None:
        """A message exchanged with this peer as a hop; None where messages have the same name on all their
        way."""

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""

    def restore(self, data: bytes) -> None:
        """Replace this machine's state by a snapshot of the same protocol."""
