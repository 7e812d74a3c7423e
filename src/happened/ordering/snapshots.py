"""What a machine keeps: declared once, and from that begun, grown when somebody joins, saved and restored.

    class KimKim(GroupProcess[KimMessage]):
        _direct: int = kept(VECTOR)
        _epoch: int = kept(within="role")

In a snapshot the first is called "direct", and the second is a part of the tuple "role", in the order in
which the class declares them. A snapshot is JSON with the protocol's name and version. Its values are
numbers, None, text, bytes, and tuples of these; they come back as they went. Long numbers are written in
hexadecimal, since Python bounds the length of decimal ones it will parse.
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
_SHORT = 1 << 53  # what every reader of JSON takes for a whole number


def _same(value: Any) -> Any:
    return value


class Form(NamedTuple):
    """How an attribute begins in a system of n processes, is written into a snapshot and read from it, and
    changes when the system grows from so many processes to so many."""

    fresh: Callable[[int], Any]
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    grown: Callable[[Any, int, int], Any] | None = None


NUMBER = Form(lambda n: 0)
"""A number or a set of processes."""
FLAG = Form(lambda n: False, int, bool)
NUMBERS = Form(lambda n: [0] * n, tuple, list, lambda values, old, n: [*values, *[0] * (n - old)])
"""A list with a number for each process."""
TABLE = Form(lambda n: {}, lambda table: tuple(sorted(table.items())), dict)
"""A dict from numbers to values that a snapshot can have."""
PAIRS = Form(
    lambda n: {},
    lambda table: tuple(sorted((*pair, value) for pair, value in table.items())),
    lambda rows: {(a, b): value for a, b, value in rows},
)
"""The same from pairs of numbers."""
SET = Form(lambda n: set(), lambda values: tuple(sorted(values)), set)
VECTOR = NUMBER._replace(grown=lambda vector, old, n: lanes(old).widened(vector, n))
"""Lanes."""


def widened(vectors: Iterable[int], old: int, n: int) -> list[int]:
    """Lanes of old processes for each of them, as a system of n processes sees them."""
    return [*(lanes(old).widened(vector, n) for vector in vectors), *[0] * (n - old)]


VECTOR_TABLE = TABLE._replace(
    grown=lambda table, old, n: {key: lanes(old).widened(vector, n) for key, vector in table.items()}
)
"""A dict from numbers to lanes."""
VECTORS = NUMBERS._replace(grown=widened)
"""A list with lanes for each process."""


def table(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Form:
    """A dict, empty in the beginning."""
    return Form(lambda n: {}, write, read)


def valued(value: Any) -> Form:
    """Something that begins as this, and that a snapshot can have."""
    return Form(lambda n: value)


def records(kind: Any, make: Callable[[Iterable[Any]], Any] = list) -> Form:
    """A list or the like of named tuples of this type."""
    return Form(lambda n: make(()), tuple, lambda values: make(map(reader(kind), values)))


def by_key(kind: Any, key: Callable[[Any], Any], *, in_order: bool = False) -> Form:
    """A dict of named tuples of this type, whose keys follow from them; written as it stands or in order."""

    def write(table: dict[Any, Any]) -> list[Any]:
        return [value for _, value in sorted(table.items())] if in_order else [*table.values()]

    return table(write, lambda values: {key(each): each for each in map(reader(kind), values)})


@cache
def reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type from the plain tuples that a snapshot has, as its annotations say."""
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
    """An attribute of a `Keeper`; `within`: the name of the tuple that has it in a snapshot."""
    return _Kept(form, within)


class Keeper:
    """Something that begins, grows, is saved and is restored as the attributes that it keeps say."""

    _forms: ClassVar[dict[str, dict[str, Form]]] = {}  # by name in a snapshot, forms by attribute

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
        """Take over what `save` gave. If that fails, whoever calls this puts the attributes back."""
        for title, forms in self._forms.items():
            values = state[title] if len(forms) > 1 else (state[title],)
            for (name, form), value in zip(forms.items(), values, strict=True):
                setattr(self, name, form.read(value))


class Part(Keeper):
    """A part of a machine, whose state is a tuple in the snapshot of that."""

    def state(self) -> tuple[Any, ...]:
        return tuple(self.save().values())

    def resume(self, state: tuple[Any, ...]) -> Self:
        """Take over what `state` gave; returns itself."""
        self.load(dict(zip(self._forms, state, strict=True)))
        return self


def seal(protocol: str, **state: Any) -> bytes:
    written = {name: _write(value) for name, value in state.items()}
    return json.dumps(
        {"protocol": protocol, "version": VERSION, **written}, separators=(",", ":"), sort_keys=True
    ).encode()


@contextmanager
def opened(protocol: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The state in these bytes; whatever goes wrong inside the `with` means that they are no snapshot."""
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
