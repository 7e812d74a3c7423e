"""What the messages of all protocols have in common, as parts to mix into their fields.

A message is a named tuple, for speed: `class RstMessage(_Fields, Application)`, fields first, so that a field
takes precedence over what is said here.
"""

from html import escape
from typing import Any, Self

from ..core.destinations import unpack
from .machine import MessageKey, Unit
from .notation import described, key_name

ENTRY_BYTES = 4 + 2
"""The papers' model: the clock and the sender of the message that an entry speaks of."""

UNIT_BYTES = 2
"""The same for each destination that an entry names."""

NOBODY: frozenset[int] = frozenset()
NO_UNITS: frozenset[Unit] = frozenset()


def _printed(message: Any) -> str:
    try:
        return described(message)
    except Exception:  # fields that no correct peer sends, which a refusal has to name
        return tuple.__repr__(message)


class Application:
    """A message for an application: a part of those that have the fields sender, clock, n, dests, payload.

    It prints as the papers write it, M(0,1)→{1,2}; 5,1:{6}: the packed numbers in its fields tell nobody
    anything.
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = _printed  # type: ignore[method-assign]  # that of the named tuple would come first

    @property
    def sender(self) -> int:
        raise NotImplementedError

    @property
    def dests(self) -> int:
        raise NotImplementedError

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    @property
    def via(self) -> int | None:
        return self.sender

    @property
    def receiver(self) -> int | None:
        """The one process that this copy was made for, where copies differ."""
        return None

    def units(self) -> frozenset[Unit]:
        return NO_UNITS

    def settled(self) -> frozenset[MessageKey]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 0, 0

    def model_bytes(self) -> int:
        entries, units = self.size()
        return ENTRY_BYTES * entries + UNIT_BYTES * units

    def carries(self) -> tuple[Any, ...]:
        return (self,)

    def known_to(self, n: int) -> Self:
        """The same message as a larger system of n processes sees it."""
        return self

    def _repr_html_(self) -> str:
        """For notebooks: as it prints, and what it costs."""
        entries, units = self.size()
        cost = f"{entries} entries, {units} units, {self.model_bytes()} bytes in the papers' model"
        return f"<code>{escape(repr(self))}</code><br><small>{cost}</small>"


class Control:
    """A message of the protocol to itself: a part of those that have a sender and a clock.

    `str` is how stories tell of it: as the paper writes it, with its numbers, on one line.
    """

    __slots__ = ()

    def __str__(self) -> str:
        about = f" about {key_name((self.sender, self.clock))}" if self.clock else ""
        return f"{type(self).__name__} of {self.sender}{about}"

    @property
    def sender(self) -> int:
        raise NotImplementedError

    @property
    def clock(self) -> int:
        return 0

    @property
    def dests(self) -> int:
        return 0

    @property
    def to(self) -> frozenset[int]:
        return NOBODY

    @property
    def payload(self) -> bytes:
        return b""

    @property
    def via(self) -> int | None:
        return None

    def units(self) -> frozenset[Unit]:
        return NO_UNITS

    def settled(self) -> frozenset[MessageKey]:
        return frozenset()

    def size(self) -> tuple[int, int]:
        return 1, 0

    def carries(self) -> tuple[Any, ...]:
        return ()
