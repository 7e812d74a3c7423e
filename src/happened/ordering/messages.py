"""What the messages of all protocols share: fields, and the size of their control information.

For speed, a message is a named tuple. Its class extends `Application` or `Control` and lists the fields that
it adds to the fields of that class:

    class RstMessage(Application):     # sender, clock, n, dests, then
        matrix: int
        payload: bytes

A field of a class takes precedence over a property of the same name in the class that it extends.
"""

from collections import namedtuple
from collections.abc import Iterable, Iterator
from html import escape
from inspect import get_annotations
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

from ..core.destinations import unpack
from .machine import MessageKey, Unit
from .notation import described, key_name

ENTRY_BYTES = 4 + 2
"""The size of an entry in the papers' model: clock and sender of the message that the entry is about."""

UNIT_BYTES = 2
"""The size of one destination in an entry, in the papers' model."""

Entry = tuple[int, int, int]
"""(sender, clock, set of destinations) of a message about which another message carries information."""


class WholeMessage(NamedTuple):
    """An application message as its origin made it, carried inside another message."""

    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


@dataclass_transform(frozen_default=True)
class _Fields(type):
    """Turns a class into a named tuple of the annotated fields of the classes it extends, then its own."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "_Fields":
        (base,) = bases
        names, defaults = [*getattr(base, "_fields", ())], {**getattr(base, "_field_defaults", {})}
        own = get_annotations(type(name, (), dict(namespace)))  # Python 3.14 stores them elsewhere than 3.11
        defaults |= {field: namespace.pop(field) for field in own if field in namespace}
        fields = namedtuple(name, [*names, *own], defaults=defaults.values())  # type: ignore[misc]
        return super().__new__(cls, name, (fields, base), namespace | {"__slots__": ()})


class Record(tuple[Any, ...], metaclass=_Fields):
    """The base of all named tuples made by `_Fields`, as type checkers see them."""

    if TYPE_CHECKING:
        _fields: ClassVar[tuple[str, ...]]

        def _replace(self, **changes: Any) -> Self: ...


def _printed(message: Any) -> str:
    try:
        return described(message)
    except Exception:  # only an incorrect peer sends such fields; an error text must still name the message
        return tuple.__repr__(message)


class ProtocolMessage(Record):
    """What one transmission carries. Messages are immutable values. An application message is named by its
    sender and clock, whichever process relays it. A control message (an acknowledgement, say) reaches no
    application: its `dests` is empty, and its sender and clock name the application message that it is about;
    clock 0 means none."""

    costs = 0  # `model_bytes` of every message of this class; 0: it varies
    entry_bytes, unit_bytes = ENTRY_BYTES, UNIT_BYTES  # if it varies: bytes per entry and per unit

    @property
    def sender(self) -> int:
        raise NotImplementedError

    @property
    def clock(self) -> int:
        raise NotImplementedError

    @property
    def payload(self) -> bytes:
        raise NotImplementedError

    @property
    def dests(self) -> int:
        """The destinations of an application message as a bit set."""
        return 0

    @property
    def to(self) -> frozenset[int]:
        """The destinations as a frozenset."""
        return frozenset(unpack(self.dests))

    @property
    def via(self) -> int | None:
        """The process that puts this message on a link, if a field tells; None if any process may."""
        return None

    def about(self) -> Iterable[Entry]:
        """The entries that this message carries about other messages."""
        return ()

    def units(self) -> frozenset[Unit]:
        """The units (source, clock, destination) that this message carries about other messages."""
        return frozenset((s, t, d) for s, t, dests in self.about() for d in unpack(dests))

    def settled(self) -> frozenset[MessageKey]:
        """The messages whose entries carry no unit: such an entry only says that the message and all older
        messages of its sender are settled."""
        about = list(self.about())
        told = {entry[:2] for entry in about if entry[2]}
        return frozenset(entry[:2] for entry in about).difference(told)

    def size(self) -> tuple[int, int]:
        """How many dependency entries (in the protocol's own grouping) it carries, and how many units."""
        about = list(self.about())
        return len(about), sum(dests.bit_count() for _, _, dests in about)

    def model_bytes(self) -> int:
        """The size of its control information in the papers' model: 4-byte clocks, 2-byte process ids."""
        entries, units = self.size()
        return self.costs or self.entry_bytes * entries + self.unit_bytes * units


class BareApplication(ProtocolMessage):
    """A message for an application; a subclass chooses the fields that hold sender, clock, destinations and
    payload. It prints as in the papers, M(0,1)→{1,2}; 5,1:{6}, since no reader can decode packed numbers."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = _printed  # type: ignore[method-assign]  # the named tuple's own would come first

    @property
    def via(self) -> int | None:
        return self.sender

    @property
    def receiver(self) -> int | None:
        """The one process for which this copy was made; None if all copies are the same."""
        return None

    def carries(self) -> tuple[Any, ...]:
        """The whole application messages inside this one: its own and those of others. Each has sender,
        clock, dests and payload as its origin made them, whichever process passes it on."""
        return (self,)

    def known_to(self, n: int) -> Self:
        """The same message, extended to a larger system of n processes."""
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the printed form of the message, and its cost."""
        entries, units = self.size()
        cost = f"{entries} entries, {units} units, {self.model_bytes()} bytes in the papers' model"
        return f"<code>{escape(repr(self))}</code><br><small>{cost}</small>"


class Application(BareApplication):
    """A message for an application whose first fields are the usual ones."""

    sender: int
    clock: int
    n: int  # the number of processes that its sender knew
    dests: int  # bit set


class Control(ProtocolMessage):
    """A message from the protocol at one process to that at another. Its field `clock`, if any, names the
    application message that it is about. `str` gives the line in stories: `says` filled in, or a name."""

    says = ""  # a format string in the paper's words; {0.clock} is this message's clock
    counts = ""  # the fields whose items count as entries; empty: the message counts as one entry
    sender: int

    def __str__(self) -> str:
        about = f" about {key_name((self.sender, self.clock))}" if self.clock else ""
        return self.says.format(self) or f"{type(self).__name__} of {self.sender}{about}"

    @property
    def clock(self) -> int:
        return 0

    @property
    def payload(self) -> bytes:
        return b""

    def carries(self) -> tuple[Any, ...]:
        return ()

    def size(self) -> tuple[int, int]:
        return sum(len(getattr(self, name)) for name in self.counts.split()) if self.counts else 1, 0


def field(name: str) -> Any:
    """A property that reads one field of the message: `via = field("by")`."""
    return property(attrgetter(name))


def broadcasts(about: Iterable[MessageKey], dests: int) -> Iterator[Entry]:
    """The entries that a message to `dests` carries about broadcasts, each of which went to `dests` too."""
    return ((sender, clock, dests & ~(1 << sender)) for sender, clock in about)
