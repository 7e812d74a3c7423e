"""What a protocol says of itself, in its own file: all that users and drivers must know of it.

Drivers iterate over the registry and ask these facts; they never name a protocol.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.orders import Order

FEW_PROCESSES = 1024
"""The widest system of a protocol whose messages may carry a vector or a row about everybody."""

MANY_PROCESSES = 65_536
"""The widest system of one whose messages carry entries about the few that matter: zones, separators."""

UNICAST, BROADCAST, MULTICAST = "unicast", "broadcast", "multicast"
ANY_CAST = frozenset({UNICAST, BROADCAST, MULTICAST})

THIRD_PARTY_NUMBERS = range(128, 255)
"""Wire numbers that this package will never use: for protocols registered by others."""


class Relays(Enum):
    """Which processes pass on what others have sent."""

    NOBODY = "nobody"
    COORDINATOR = "the coordinator"  # one at a time
    ROUTERS = "routers and gateways"
    EVERYBODY = "everybody"

    def __bool__(self) -> bool:
        return self is not Relays.NOBODY


class Names(Enum):
    """How the value of an option names processes, so that a driver can turn names into indices."""

    NONE = "none"
    ONE = "a process"
    SETS = "sets of processes"


@dataclass(frozen=True, slots=True)
class Option:
    """A keyword argument of a protocol's machine."""

    name: str
    help: str
    names: Names = Names.NONE

    @classmethod
    def of_sets(cls, name: str, help: str) -> "Option":
        return cls(name, help, Names.SETS)

    def numbered(self, value: Any, index: Callable[[str], int]) -> Any:
        """The value with indices where it has names of processes; what is an index already stays."""

        def one(process: Any) -> Any:
            return index(process) if isinstance(process, str) else process

        if self.names is Names.ONE:
            return one(value)
        if self.names is Names.SETS and not isinstance(value, str):  # a word stands for some usual sets
            return [[one(process) for process in each] for each in value]
        return value


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The number that frames of a protocol carry, and the module that encodes and decodes them. The module is
    named, not imported: the room `wire` stands on this one."""

    number: int  # part of the format: never reused, never changed
    codec: str  # `module` or `module:attribute` with MESSAGES, encode and decode; see wire/__init__.py


AT_JOIN = "gets an index, and is addressed by whoever has heard of it"
FIXED = "its members are fixed from the start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What must be so for the protocol to work."""

    casts: frozenset[str] = ANY_CAST
    fifo_links: bool = False  # whether it needs links that keep the order of each sender
    fixed_groups: bool = False  # it sends to whole groups, which everybody is told alike (option `groups`)
    serialized: bool = False  # sends must be totally ordered by happened-before; see `Serializes`
    most_processes: int = FEW_PROCESSES


WIDE = Assumptions(most_processes=MANY_PROCESSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What it promises beyond its order."""

    optimal: bool = False  # every message carries exactly the necessary units
    longest_chain: int | None = None  # causal order is kept along chains of this many messages only
    entries: Callable[[int], int] | None = None  # of every message, where the number of processes decides it


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a message waits for, and where."""

    only_for_past: bool = False
    """A held message waits only for messages of its causal past, each of which comes straight from its
    sender. Then a causally first one among those not yet delivered is the next on its link and is not held:
    reading only the links that have nothing held makes progress, whatever has been held back."""
    tells_past: bool = False
    """A message tells of every process the newest of its messages that it follows; see `follows`."""
    names_missing: bool = True  # `pending` names the very messages that a held one waits for
    at_sender: bool = False  # a multicast may stay with its sender until earlier ones are through


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTravel:
    """How the copies of a multicast travel."""

    relays: Relays = Relays.NOBODY
    carries_payloads: bool = False  # its packets contain messages of others, whole
    common_frame: bool | str = False
    """Whether the copies of a multicast are the same bytes for all its destinations, so that a broadcast
    medium can carry one for all; a string: if the option of this name is on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChanges:
    """Which changes of members are possible in a running system, and what happens then."""

    joins: bool = True
    departures: bool = True
    expulsions: bool = True  # of processes that are not there to agree
    expels_one: bool = False
    """One process may be expelled at a time: messages tell so little of what they follow that the order of
    messages of others, which wait for lost messages of one and of another, may be lost with both."""
    recycles: bool = False  # `forget` leaves nothing of a process behind, so its index may be given again
    at_join: str = AT_JOIN
    at_leave: str = "is not addressed any more; all that it sent is delivered"
    at_expulsion: str = "is not addressed any more; what it sent to some only is not waited for elsewhere"

    def changes(self) -> dict[str, str]:
        """What happens when a process joins, leaves or is expelled; where that is refused, why."""
        at_join = FIXED if self.at_join == AT_JOIN and not self.joins else self.at_join
        said = {
            "join": (self.joins, at_join),
            "leave": (self.departures, self.at_leave),
            "expel": (self.departures and self.expulsions, self.at_expulsion),
        }
        return {change: text if can else f"refused: {text}" for change, (can, text) in said.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualifier:
    """What `multicast` of an incomplete order takes beside destinations and payload."""

    keyword: str = ""  # empty: nothing
    usual: Any = None  # its value where it is not given
    promise: str = ""  # which order the incomplete one is


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    name: str
    description: str
    paper: str
    order: Order = Order.CAUSAL
    wire: WireFormat | None = None  # None: its messages never leave one address space
    options: tuple[Option, ...] = ()
    assumes: Assumptions = Assumptions()
    promises: Promises = Promises()
    waits: Waits = Waits()
    copies: CopyTravel = CopyTravel()
    membership: MembershipChanges = MembershipChanges()
    qualifier: Qualifier = Qualifier()

    @property
    def is_agreed(self) -> bool:
        """Whether all destinations agree on the place of a message, of which they are told after it on the
        same links: what is held may wait for frames that are sent, or read, last."""
        return self.order.is_total and self.copies.relays is Relays.NOBODY

    def sharing(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with which the copies of a multicast are the same; LocalProtocolError if there are
        none."""
        if not self.copies.common_frame:
            raise LocalProtocolError(
                f"{self.name} sends each destination a message of its own, which a broadcast medium cannot "
                "carry once for all: use another protocol, or no medium"
            )
        if isinstance(self.copies.common_frame, str):
            if not options.get(self.copies.common_frame, True):
                raise LocalProtocolError(
                    f"a broadcast medium needs option {self.copies.common_frame} of {self.name}"
                )
            return {**options, self.copies.common_frame: True}
        return dict(options)

    def check_expulsion(self, name: str) -> None:
        """Refuse to expel the process of this name, where the protocol could not go on."""
        if not self.membership.expulsions:
            raise LocalProtocolError(
                f"{name!r} cannot be expelled from {self.name}: {self.membership.at_expulsion}. "
                "Start it again from its journal, and let it leave"
            )

    def takes(self, option: str) -> bool:
        return any(option == known.name for known in self.options)

    def check_options(self, given: Iterable[str]) -> None:
        unknown = sorted(name for name in given if not self.takes(name))
        if unknown:
            known = ", ".join(option.name for option in self.options) or "none"
            raise LocalProtocolError(f"{self.name} has no option {unknown[0]!r}; its options: {known}")

    def numbered(self, options: dict[str, Any], index: Callable[[str], int]) -> dict[str, Any]:
        """Options as a person writes them, with names of processes, as the machine takes them."""
        self.check_options(options)
        given = (option for option in self.options if option.name in options)
        return {option.name: option.numbered(options[option.name], index) for option in given}
