"""What a machine may be able to do beyond `Machine`, one small Protocol for each ability.

A machine has a capability if it has the methods. A driver checks this once, when it gets the machine:

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
    """Return the machine typed as one that has this capability, or None. If a driver wraps the machine in an
    object of its own, that object must keep it as `wrapped`."""
    inner = getattr(machine, "wrapped", machine)
    return cast(C, inner) if isinstance(inner, cast(type, capability)) else None


def needed(machine: Machine, capability: Callable[..., C]) -> C:
    """Return the machine typed as one that has this capability; raise LocalProtocolError if it lacks it."""
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

    A driver gives these inputs so that a process which receives a message has heard of every change that the
    sender knew. What a machine sends to a departed process need not arrive. `Facts.membership` says which
    changes are refused.
    """

    def join(self, process: int) -> list[Effect]:
        """A new process joins. It gets the next index, or a recycled one that every process forgot."""

    def leave(self, process: int) -> list[Effect]:
        """A process leaves: nothing more may be addressed to it, no process waits for its answer, and its
        role passes on. Messages that it sent may still come. If our own process leaves, it has nothing
        `queued`; it hands its role over, and messages that were sent to it may still come."""

    def expel(self, process: int) -> list[Effect]:
        """A process was expelled, possibly while it was leaving. Same as `leave` if we have not yet heard
        that it leaves, except that the process no longer does what a leaving process does first."""

    def close(self, process: int) -> list[Effect]:
        """No more messages come from a departed process, and no process waits for its missing ones. If it
        left by itself, all messages it sent us have come. If it was expelled, a prefix of them has come, and
        so has all that others, and we ourselves, sent us before they heard of the expulsion."""

    def forget(self, process: int) -> None:
        """Every present process has closed with a departed process and holds none of its messages: the
        machine can drop what it keeps about those messages."""


def members(machine: Machine) -> ChangesMembers:
    return needed(machine, ChangesMembers)


@runtime_checkable
class HasPlace(Protocol):
    """The process has a place in a communication graph."""

    def resume_at(self, place: Place) -> None:
        """Move to a place of another graph, once every message that any process sent has been delivered at
        all its destinations."""

    def do_without(self, process: int) -> list[Effect]:
        """A process of our graph has failed for good, and every other process has told us so: do `leave` and
        `close` for it, even if it forwarded messages to other processes."""


@runtime_checkable
class ReplacesForwarder(Protocol):
    """A witness keeps copies from which it can replace a failed forwarder."""

    def stand_in(self, forwarder: int) -> list[Effect]:
        """As a witness of a failed forwarder, send on the messages that it had still to forward."""


@runtime_checkable
class NamesHops(Protocol):
    """Messages have another name on each hop of their route."""

    def hop_of(self, message: Any, peer: int) -> Hop:
        """A message exchanged with this peer, described as a hop."""


@runtime_checkable
class KeepsLog(Protocol):
    """The machine keeps a log from which its messages are stamped."""

    def log_size(self) -> tuple[int, int]:
        """How many entries and units of the log the next message would be computed from."""


@runtime_checkable
class TellsUnits(Protocol):
    """The machine can list the units of its log."""

    def log_units(self) -> frozenset[Unit]:
        """The units of the log; an optimal protocol keeps only the necessary ones."""


@runtime_checkable
class TellsUnitsByPart(Protocol):
    """The machine has a log for each part of the system, and can list their units."""

    def logs(self) -> dict[str, frozenset[Unit]]:
        """Maps the name of each part of the system to the units of the log about that part."""


@runtime_checkable
class Explains(Protocol):
    """The machine can say what it remembers."""

    def knowledge(self) -> list[tuple[str, str]]:
        """The structures that the machine keeps, as the paper writes them: pairs of name and content."""


@runtime_checkable
class RecordsRules(Protocol):
    """The machine can record which rules of its paper it applies."""

    def observe(self) -> None:
        """Start to record applications of rules."""

    def observed(self) -> list[RuleUse]:
        """The applications recorded since the last call, in order."""


@runtime_checkable
class TellsClock(Protocol):
    """The machine tells the clock of a message before it is sent, as signatures need."""

    @property
    def clock(self) -> int:
        """The clock of the last event that has a clock; `tick` returns the next clock."""

    @property
    def coming_clock(self) -> int:
        """The clock that will name the next multicast, provided that the multicast is the next input."""


@runtime_checkable
class Listens(Protocol):
    """One clock for each sender decides what can be delivered; see listening.py."""

    def listen(self) -> None:
        """Only receive from now on, and believe what other processes say of our own messages."""

    def checked(self, message: Any) -> Any:
        """The message, extended to our n processes; RemoteProtocolError if no correct peer sends it."""

    def missing(self, message: Any) -> Iterable[MessageKey]:
        """The (sender, clock) of every message that this message waits for."""

    def moves(self, message: Any) -> Iterable[MessageKey]:
        """Pairs (sender, clock): the delivery of this message raises the sender's clock to that value."""


@runtime_checkable
class Serializes(Protocol):
    """Each send must know of the send before it, whoever made that; see token.py."""

    @property
    def latest(self) -> Any:
        """What the next sender must know of the previous sends."""

    def follow(self, latest: Any) -> None:
        """Adopt the value of `latest` at the last sender; LocalProtocolError if this process cannot."""


@runtime_checkable
class Expires(Protocol):
    """A bound on the time of delivery lets the machine forget (Rodrigues & Veríssimo 1995, §4.5)."""

    def expire(self) -> None:
        """Tell the machine that the longest possible delivery time has passed since the last call."""
