"""The facts that a protocol declares in its own file: all that users and drivers must know of it.

Drivers iterate over the registry and read these facts; their code never names a protocol.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.orders import Order

FEW_PROCESSES = 1024
"""The largest system for a protocol whose messages may carry a vector or a row about all processes."""

MANY_PROCESSES = 65_536
"""The largest system for a protocol whose messages carry entries about few processes (zones, separators)."""

UNICAST, BROADCAST, MULTICAST = "unicast", "broadcast", "multicast"
ANY_CAST = frozenset({UNICAST, BROADCAST, MULTICAST})

THIRD_PARTY_NUMBERS = range(128, 255)
"""Wire numbers that this package will never use: for protocols registered by others."""


class Relays(Enum):
    """Which processes forward the messages of others."""

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
        """The option's value with each process name replaced by its index; indices stay as they are."""

        def one(process: Any) -> Any:
            return index(process) if isinstance(process, str) else process

        if self.names is Names.ONE:
            return one(value)
        if self.names is Names.SETS and not isinstance(value, str):  # a string names a usual choice of sets
            return [[one(process) for process in each] for each in value]
        return value


@dataclass(frozen=True, slots=True)
class WireFormat:
    """The number that frames of a protocol carry, and the module that encodes and decodes them. The module is
    given by name and not imported, because the package `wire` imports this one."""

    number: int  # a part of the wire format: never reused, never changed
    codec: str  # `module` or `module:attribute` with MESSAGES, encode and decode; see wire/__init__.py


AT_JOIN = "gets an index, and is addressed by whoever has heard of it"
FIXED = "its members are fixed from the start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """The conditions under which the protocol works."""

    casts: frozenset[str] = ANY_CAST
    fifo_links: bool = False  # whether it needs links that keep the order of each sender
    fixed_groups: bool = False  # it sends to whole groups, the same for all processes (option `groups`)
    serialized: bool = False  # sends must be totally ordered by happened-before; see `Serializes`
    most_processes: int = FEW_PROCESSES


WIDE = Assumptions(most_processes=MANY_PROCESSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What the protocol promises beyond its delivery order."""

    optimal: bool = False  # every message carries exactly the necessary units
    longest_chain: int | None = None  # causal order is kept only along chains of at most this many messages
    entries: Callable[[int], int] | None = None  # entries of every message, if n alone decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Which messages a held message waits for, and where it is held."""

    only_for_past: bool = False
    """A held message waits only for messages of its causal past, each of which comes straight from its
    sender. So a causally first message among the undelivered is the next on its link and is not held: a
    driver that reads only links without held messages makes progress, whatever has been held back."""
    tells_past: bool = False
    """A message names, for every process, the newest message of it that it follows; see `follows`."""
    names_missing: bool = True  # `pending` names the very messages that a held one waits for
    at_sender: bool = False  # a multicast may stay at its sender until earlier ones have been delivered


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTravel:
    """How the copies of a multicast travel."""

    relays: Relays = Relays.NOBODY
    carries_payloads: bool = False  # a packet contains whole messages of other senders
    common_frame: bool | str = False
    """Whether all copies of a multicast are the same bytes, so that a broadcast medium can carry one copy for
    all destinations. A string names the option that makes them so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipChanges:
    """Which changes of members are possible in a running system, and what happens then."""

    joins: bool = True
    departures: bool = True
    expulsions: bool = True  # expulsions of processes that cannot take part in an agreement on it
    expels_one: bool = False
    """Only one process may be expelled at a time. Messages name so few predecessors that, when two are
    expelled, the order among other messages that wait for lost messages of both may be lost too."""
    recycles: bool = False  # `forget` removes all state about a process, so its index may be recycled
    at_join: str = AT_JOIN
    at_leave: str = "is not addressed any more; all that it sent is delivered"
    at_expulsion: str = "is not addressed any more; what it sent to some only is not waited for elsewhere"

    def changes(self) -> dict[str, str]:
        """What happens when a process joins, leaves or is expelled; if that is refused, the reason."""
        at_join = FIXED if self.at_join == AT_JOIN and not self.joins else self.at_join
        said = {
            "join": (self.joins, at_join),
            "leave": (self.departures, self.at_leave),
            "expel": (self.departures and self.expulsions, self.at_expulsion),
        }
        return {change: text if can else f"refused: {text}" for change, (can, text) in said.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualifier:
    """The extra keyword argument that `multicast` of an incomplete order takes."""

    keyword: str = ""  # empty: there is no extra argument
    usual: Any = None  # its default value
    promise: str = ""  # the incomplete order that the protocol promises


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
        """Whether all destinations agree on a message's place in the order, and learn it after the message on
        the same links: a held message may then wait for frames that are sent, or read, last."""
        return self.order.is_total and self.copies.relays is Relays.NOBODY

    def sharing(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that make all copies of a multicast the same; LocalProtocolError if there are none."""
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
        """Raise an error that names this process if the protocol does not support its expulsion."""
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
        """Options as the machine takes them, from options in which a person wrote names of processes."""
        self.check_options(options)
        given = (option for option in self.options if option.name in options)
        return {option.name: option.numbered(options[option.name], index) for option in given}
