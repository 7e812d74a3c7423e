"""What the messages of all protocols have in common.

A message is a named tuple, for speed. Its class extends `Application` or `Control` and lists the fields that
it adds to theirs:

    class RstMessage(Application):     # sender, clock, n, dests, then
        matrix: int
        payload: bytes

A field takes precedence over a property of the same name in a class that is extended.
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
"""The papers' model: the clock and the sender of the message that an entry speaks of."""

UNIT_BYTES = 2
"""The same for each destination that an entry names."""

Entry = tuple[int, int, int]
"""(sender, clock, set of destinations) of a message that another one speaks of."""


class WholeMessage(NamedTuple):
    """An application message as its origin made it, which another message brings."""

    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


@dataclass_transform(frozen_default=True)
class _Fields(type):
    """Makes a class a named tuple of its annotated fields, after those of the classes that it extends."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "_Fields":
        (base,) = bases
        names, defaults = [*getattr(base, "_fields", ())], {**getattr(base, "_field_defaults", {})}
        own = get_annotations(type(name, (), dict(namespace)))  # Python 3.14 keeps them elsewhere than 3.11
        defaults |= {field: namespace.pop(field) for field in own if field in namespace}
        fields = namedtuple(name, [*names, *own], defaults=defaults.values())  # type: ignore[misc]
        return super().__new__(cls, name, (fields, base), namespace | {"__slots__": ()})


class Record(tuple[Any, ...], metaclass=_Fields):
    """A named tuple, as type checkers see it."""

    if TYPE_CHECKING:
        _fields: ClassVar[tuple[str, ...]]

        def _replace(self, **changes: Any) -> Self: ...


def _printed(message: Any) -> str:
    try:
        return described(message)
    except Exception:  # fields that no correct peer sends, which a refusal has to name
        return tuple.__repr__(message)


class ProtocolMessage(Record):
    """What one transmission carries. Values: never changed once made. An application message is named by its
    sender and clock, whoever relays it. A control message (an acknowledgement, say) is for no application:
    its `dests` is empty, and its sender and clock name the application message it speaks of, clock 0 meaning
    none."""

    costs = 0  # its `model_bytes`, if that is always the same
    entry_bytes, unit_bytes = ENTRY_BYTES, UNIT_BYTES  # otherwise, of each of its entries and units

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
        """The destinations as a bit set."""
        return 0

    @property
    def to(self) -> frozenset[int]:
        """The destinations."""
        return frozenset(unpack(self.dests))

    @property
    def via(self) -> int | None:
        """The process that puts it on a link, where the message tells; None where any may."""
        return None

    def about(self) -> Iterable[Entry]:
        """What it says of other messages."""
        return ()

    def units(self) -> frozenset[Unit]:
        """The explicit units carried about messages other than this one."""
        return frozenset((s, t, d) for s, t, dests in self.about() for d in unpack(dests))

    def settled(self) -> frozenset[MessageKey]:
        """The messages of entries that are carried without a unit: they only say that all older messages of
        their senders are settled too."""
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
    """A message for an application, with a sender, a clock, destinations and a payload in whatever fields. It
    prints as the papers write it, M(0,1)→{1,2}; 5,1:{6}: a reader cannot decode the packed numbers."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = _printed  # type: ignore[method-assign]  # that of the named tuple would come first

    @property
    def via(self) -> int | None:
        return self.sender

    @property
    def receiver(self) -> int | None:
        """The one process that this copy was made for, where copies differ."""
        return None

    def carries(self) -> tuple[Any, ...]:
        """The application messages in it, whole: itself and those of others. Each has a sender, a clock,
        dests and a payload as its origin made them, whoever passes it on."""
        return (self,)

    def known_to(self, n: int) -> Self:
        """The same message as a larger system of n processes sees it."""
        return self

    def _repr_html_(self) -> str:
        """For notebooks: as it prints, and what it costs."""
        entries, units = self.size()
        cost = f"{entries} entries, {units} units, {self.model_bytes()} bytes in the papers' model"
        return f"<code>{escape(repr(self))}</code><br><small>{cost}</small>"


class Application(BareApplication):
    """A message for an application, with the usual fields first."""

    sender: int
    clock: int
    n: int  # how many processes its sender knew
    dests: int  # bit set


class Control(ProtocolMessage):
    """A message of the protocol to itself. A field `clock` names the application message that it is about.
    `str` is how stories tell of it, on one line: `says` as the paper writes it, or by its name."""

    says = ""  # a format; {0.clock} is its clock
    counts = ""  # the fields whose items are its entries; none: it is one
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
    """A property of a message that is one of its fields: `via = field("by")`."""
    return property(attrgetter(name))


def broadcasts(about: Iterable[MessageKey], dests: int) -> Iterator[Entry]:
    """What a message to these destinations says of broadcasts: that each of them went there too."""
    return ((sender, clock, dests & ~(1 << sender)) for sender, clock in about)
