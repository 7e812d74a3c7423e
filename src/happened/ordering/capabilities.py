"""What a machine may be able to do beyond `Machine`, one small Protocol for each ability.

A machine has a capability if it has the methods. A driver looks for it once, when it gets the machine:

    log = having(machine, KeepsLog)          # None where the protocol keeps no log
    needed(machine, HasPlace).resume_at(p)   # LocalProtocolError where it has no place

and `registry.able` lists the protocols whose machines have it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from ..core.errors import LocalProtocolError
from ..core.places import Place
from ..core.telling import RuleUse
from .machine import Effect, Hop, Machine, MessageKey, Unit

C = TypeVar("C")


def having(machine: object, capability: Callable[..., C]) -> C | None:
    """The machine as one that has this capability, or None. A driver may wrap a machine in an object of its
    own that keeps it as `wrapped`."""
    inner = getattr(machine, "wrapped", machine)
    return cast(C, inner) if isinstance(inner, cast(type, capability)) else None


def needed(machine: Machine, capability: Callable[..., C]) -> C:
    """The machine as one that has this capability, or LocalProtocolError."""
    found = having(machine, capability)
    if found is None:
        wanted = cast(type, capability)
        summary = (wanted.__doc__ or "").partition("\n")[0].rstrip(".")
        raise LocalProtocolError(
            f"{machine.facts.name} cannot do this: it lacks the capability {wanted.__name__} ({summary})"
        )
    return found


@runtime_checkable
class ChangesMembers(Protocol):
    """Processes may join and leave while the system runs.

    A driver gives these inputs so that whoever gets a message knows every change that its sender knew. What a
    machine sends to a departed process need not arrive. `Facts.membership` says which changes are refused.
    """

    def join(self, process: int) -> list[Effect]:
        """A process exists from now on. It has the next index, or a recycled one that all have forgotten."""

    def leave(self, process: int) -> list[Effect]:
        """A process leaves: nothing more may be addressed to it, nobody waits for its answer, and its role
        passes on. Messages that it has sent may still come. If it is this process, which has nothing
        `queued`, it hands its role over, and messages that were sent to it may still come."""

    def expel(self, process: int) -> list[Effect]:
        """A process was expelled, possibly while it was leaving: as `leave`, if we have not heard that it
        leaves. It will not do any more what a process does before it has left."""

    def close(self, process: int) -> list[Effect]:
        """Nothing more comes from a departed process, and nobody waits for what has not come. Of the messages
        that it sent us, a prefix has come; all of them, if it left by itself. If it was expelled, everything
        has come that others, and we ourselves, sent us before they heard of it."""

    def forget(self, process: int) -> None:
        """Everybody present has closed with a departed process and holds nothing of it: what is kept about
        its messages is not needed any more."""


def members(machine: Machine) -> ChangesMembers:
    return needed(machine, ChangesMembers)


@runtime_checkable
class HasPlace(Protocol):
    """The process has a place in a communication graph."""

    def resume_at(self, place: Place) -> None:
        """Move to a place of another graph, once everything that anybody sent has been delivered
        everywhere."""

    def do_without(self, process: int) -> list[Effect]:
        """A process of our graph has failed for good, and everybody has told us so: leave and close with it,
        even if others are reached through it."""


@runtime_checkable
class ReplacesForwarder(Protocol):
    """A witness keeps copies from which it can replace a failed forwarder."""

    def stand_in(self, forwarder: int) -> list[Effect]:
        """Send on what a failed forwarder has left to send on, as a witness of it."""


@runtime_checkable
class NamesHops(Protocol):
    """Messages have another name on each hop of their route."""

    def hop_of(self, message: Any, peer: int) -> Hop:
        """A message exchanged with this peer, as a hop."""


@runtime_checkable
class KeepsLog(Protocol):
    """The machine keeps a log from which its messages are stamped."""

    def log_size(self) -> tuple[int, int]:
        """How many entries and units the next message would draw on."""


@runtime_checkable
class TellsUnits(Protocol):
    """The machine can list the units of its log."""

    def log_units(self) -> frozenset[Unit]:
        """The units of the log, which an optimal protocol keeps necessary."""


@runtime_checkable
class TellsUnitsByPart(Protocol):
    """The machine has a log for each part of the system, and can list their units."""

    def logs(self) -> dict[str, frozenset[Unit]]:
        """The units of each log, by the part of the system that it is about."""


@runtime_checkable
class Explains(Protocol):
    """The machine can say what it remembers."""

    def knowledge(self) -> list[tuple[str, str]]:
        """What is remembered, as the paper writes it: the name of each structure, and what is in it."""


@runtime_checkable
class RecordsRules(Protocol):
    """The machine can record which rules of its paper it applies."""

    def observe(self) -> None:
        """Record from now on."""

    def observed(self) -> list[RuleUse]:
        """What was recorded since this was last asked, in order."""


@runtime_checkable
class TellsClock(Protocol):
    """The machine tells the clock of a message before it is sent, as signatures need."""

    @property
    def clock(self) -> int:
        """The clock of the last event that has one; `tick` returns the next."""

    @property
    def coming_clock(self) -> int:
        """The clock that names the next multicast, if that is the next input."""


@runtime_checkable
class Listens(Protocol):
    """One clock for each sender decides what can be delivered; see listening.py."""

    def listen(self) -> None:
        """Only receive from now on: what others say of our own messages is taken to be true."""

    def checked(self, message: Any) -> Any:
        """The message as a system of our size sees it, or RemoteProtocolError."""

    def missing(self, message: Any) -> Iterable[MessageKey]:
        """The (sender, clock) of every message that it waits for."""

    def moves(self, message: Any) -> Iterable[MessageKey]:
        """The clocks that its delivery reaches, by sender."""


@runtime_checkable
class Serializes(Protocol):
    """Each send must know of the send before it, whoever made that; see token.py."""

    @property
    def latest(self) -> Any:
        """What the next sender must know of the sends before."""

    def follow(self, latest: Any) -> None:
        """Take over what `latest` was at the last sender; LocalProtocolError if it is impossible."""


@runtime_checkable
class Expires(Protocol):
    """A bound on the time of delivery lets the machine forget (Rodrigues & Veríssimo 1995, §4.5)."""

    def expire(self) -> None:
        """A time in which every message is delivered has passed since the last call."""
