"""Attributes of a machine, declared once; the declaration says how to create, grow, save and restore each.

    class KimKim(GroupProcess[KimMessage]):
        _direct: int = kept(VECTOR)
        _epoch: int = kept(within="role")

In a snapshot, the first attribute is called "direct", and the second is a part of the tuple "role", whose
parts have the order in which the class declares them. A snapshot is JSON with the protocol's name and
version. Its values are numbers, None, text, bytes, and tuples of these; reading gives back equal values. Long
numbers are written in hexadecimal, since Python limits the length of decimal numbers that it parses.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from ..core.errors import LocalProtocolError
from ..core.lanes import lanes

VERSION = 1
_SHORT = 1 << 53  # the limit up to which every JSON reader keeps whole numbers exact


def _same(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """How an attribute is created in a system of n processes, written into a snapshot, read from a snapshot,
    and changed when the system grows from `old` to n processes."""

    fresh: Callable[[int], Any]
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    grown: Callable[[Any, int, int], Any] | None = None


NUMBER = Form(lambda n: 0)
"""One number, or a set of processes as a bit set."""
FLAG = Form(lambda n: False, int, bool)
NUMBERS = Form(lambda n: [0] * n, tuple, list, lambda values, old, n: [*values, *[0] * (n - old)])
"""A list with a number for each process."""
TABLE = Form(lambda n: {}, lambda table: tuple(sorted(table.items())), dict)
"""A dict from numbers to values that a snapshot can hold."""
PAIRS = Form(
    lambda n: {},
    lambda table: tuple(sorted((*pair, value) for pair, value in table.items())),
    lambda rows: {(a, b): value for a, b, value in rows},
)
"""A dict from pairs of numbers to values that a snapshot can hold."""
SET = Form(lambda n: set(), lambda values: tuple(sorted(values)), set)
VECTOR = NUMBER._replace(grown=lambda vector, old, n: lanes(old).widened(vector, n))
"""A packed vector with one lane per process (core/lanes.py)."""


def widened(vectors: Iterable[int], old: int, n: int) -> list[int]:
    """Vectors over `old` processes, extended to n processes; a zero vector is added for each new process."""
    return [*(lanes(old).widened(vector, n) for vector in vectors), *[0] * (n - old)]


VECTOR_TABLE = TABLE._replace(
    grown=lambda table, old, n: {key: lanes(old).widened(vector, n) for key, vector in table.items()}
)
"""A dict from numbers to packed vectors."""
VECTORS = NUMBERS._replace(grown=widened)
"""A list with one packed vector for each process."""


def table(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
    """A dict that starts empty, with its own functions to write and read it."""
    return Form(lambda n: {}, write, read)


def valued(value: Any) -> Form:
    """An attribute that starts with this value; a snapshot must be able to hold it."""
    return Form(lambda n: value)


def records(kind: Any, make: Callable[[Iterable[Any]], Any] = list) -> Form:
    """A list, or another collection that `make` builds, of named tuples of this type."""
    return Form(lambda n: make(()), tuple, lambda values: make(map(reader(kind), values)))


def by_key(kind: Any, key: Callable[[Any], Any], *, in_order: bool = False) -> Form:
    """A dict of named tuples of this type; `key` computes each key. `in_order`: write it sorted."""

    def write(table: dict[Any, Any]) -> list[Any]:
        return [value for _, value in sorted(table.items())] if in_order else [*table.values()]

    return table(write, lambda values: {key(each): each for each in map(reader(kind), values)})


@cache
def reader(kind: Any) -> Callable[[Any], Any]:
    """A function that makes a value of this type from a snapshot's plain tuples, by its annotations."""
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        one = reader(get_args(kind)[0])
        return _same if one is _same else lambda values: tuple(map(one, values))
    if not hasattr(kind, "_fields"):
        return _same
    hints = get_type_hints(kind)
    fields = [reader(hints[field]) for field in kind._fields]
    if all(each is _same for each in fields):
        return lambda values: kind(*values)
    return lambda values: kind(
        *(read(value) for read, value in zip(fields, values, strict=False)), *values[len(fields) :]
    )


class _Kept(NamedTuple):
    form: Form
    within: str


def kept(form: Form = NUMBER, *, within: str = "") -> Any:
    """Declare an attribute of a `Keeper`; `within`: the tuple of the snapshot that it is a part of."""
    return _Kept(form, within)


class Keeper:
    """An object that its `kept` declarations create, grow, save and restore."""

    _forms: ClassVar[dict[str, dict[str, Form]]] = {}  # name in a snapshot -> attribute -> form

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._forms = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, _Kept):
                    cls._forms.setdefault(value.within or name.lstrip("_"), {})[name] = value.form

    def _begin(self, n: int) -> None:
        for forms in self._forms.values():
            for name, form in forms.items():
                setattr(self, name, form.fresh(n))

    def _grow(self, old: int, n: int) -> None:
        for forms in self._forms.values():
            for name, form in forms.items():
                if form.grown is not None:
                    setattr(self, name, form.grown(getattr(self, name), old, n))

    def save(self) -> dict[str, Any]:
        state = {}
        for title, forms in self._forms.items():
            values = tuple(form.write(getattr(self, name)) for name, form in forms.items())
            state[title] = values if len(values) > 1 else values[0]
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Restore the attributes that `save` returned. If this raises, the caller restores the old ones."""
        for title, forms in self._forms.items():
            values = state[title] if len(forms) > 1 else (state[title],)
            for (name, form), value in zip(forms.items(), values, strict=True):
                setattr(self, name, form.read(value))


class Part(Keeper):
    """A part of a machine; its state is one tuple in the machine's snapshot."""

    def state(self) -> tuple[Any, ...]:
        return tuple(self.save().values())

    def resume(self, state: tuple[Any, ...]) -> Self:
        """Restore the state that `state` returned; returns this object."""
        self.load(dict(zip(self._forms, state, strict=True)))
        return self


def seal(protocol: str, **state: Any) -> bytes:
    written = {name: _write(value) for name, value in state.items()}
    return json.dumps(
        {"protocol": protocol, "version": VERSION, **written}, separators=(",", ":"), sort_keys=True
    ).encode()


@contextmanager
def opened(protocol: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The state in these bytes; any error inside the `with` is reported as an invalid snapshot."""
    try:
        state = json.loads(data)
        if (state["protocol"], state["version"]) != (protocol, VERSION):
            raise ValueError(f"protocol {state['protocol']!r}, version {state['version']!r}")
        yield {name: _read(value) for name, value in state.items()}
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, struct.error,
        LocalProtocolError,
    ) as error:  # fmt: skip
        raise LocalProtocolError(
            f"not a snapshot of protocol {protocol}, version {VERSION}: {error}"
        ) from error


def _write(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, int) and abs(value) >= _SHORT:
        return {"number": hex(value)}
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    return value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(item) for item in value)
    if isinstance(value, dict):
        ((form, text),) = value.items()
        return bytes.fromhex(text) if form == "bytes" else int(text, 16)
    return value
