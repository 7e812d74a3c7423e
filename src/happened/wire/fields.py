"""The kinds of field in declarations of messages (envelope.py): numbers, sets, lists, vectors, histories.

Clocks are written relative to a value that both sides know. A vector is the set of its nonzero lanes, then a
number for each: relative to the message's own clock (zigzag: a vector may be ahead of it), or as the distance
below another vector that bounds it. Columns are the newest clock per sender, then each column's distances.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, lanes
from .envelope import Field
from .primitives import Reader, unzigzag, write_number, write_set, zigzag
from .rows import read_entries, write_entries


def number(read: Callable[[Reader, Any], int]) -> Field:
    return Field(lambda out, value, _: write_number(out, value), read)


def behind(below: Callable[[Any], int]) -> Field:
    """A clock, written as its distance below the message's own clock."""
    return Field(
        lambda out, value, about: write_number(out, about.clock - value),
        lambda r, about: about.clock - r.number(below(about)),
    )


def each(item: Field, most: Callable[[Reader, Any], int] = lambda r, _: r.left) -> Field:
    """A tuple, preceded by its length; an item takes at least one byte."""

    def write(out: bytearray, values: tuple[Any, ...], about: Any) -> None:
        write_number(out, len(values))
        for value in values:
            item.write(out, value, about)

    return Field(
        write, lambda r, about: tuple(item.read(r, about) for _ in range(r.number(most(r, about) + 1)))
    )


def record(*items: Field) -> Field:
    """A tuple with one item for each of these fields."""

    def write(out: bytearray, values: tuple[Any, ...], about: Any) -> None:
        for item, value in zip(items, values, strict=True):
            item.write(out, value, about)

    return Field(write, lambda r, about: tuple([item.read(r, about) for item in items]))


def by_process(item: Field) -> Field:
    """Pairs (process, value), sorted by process: written as the set of processes, then the values."""

    def write(out: bytearray, pairs: tuple[tuple[int, Any], ...], about: Any) -> None:
        write_set(out, pack(process for process, _ in pairs), about.n)
        for _, value in pairs:
            item.write(out, value, about)

    return Field(write, lambda r, about: tuple((p, item.read(r, about)) for p in unpack(r.set(about.n))))


def entries(clock: str) -> Field:
    """History entries, written relative to the field of the message with this name, a clock."""
    return Field(
        lambda out, value, about: write_entries(out, value, getattr(about, clock), about.n),
        lambda r, about: read_entries(r, getattr(about, clock), about.n),
    )


def _write_bytes(out: bytearray, data: bytes, _: Any) -> None:
    write_number(out, len(data))
    out += data


def _write_vector(out: bytearray, vector: int, about: Any) -> None:
    values = dict(lanes(about.n).items(vector))
    write_set(out, pack(values), about.n)
    for value in values.values():
        write_number(out, zigzag(about.clock - value))


def _read_vector(reader: Reader, about: Any) -> int:
    values = [0] * about.n
    for lane in unpack(reader.set(about.n)):
        values[lane] = _clock(about.clock - unzigzag(reader.number()))
    return lanes(about.n).pack(values)


def write_below(out: bytearray, vector: int, n: int, bound: int) -> None:
    values, bounds = dict(lanes(n).items(vector)), lanes(n).unpack(bound)
    write_set(out, pack(values), n)
    for lane, value in values.items():
        write_number(out, bounds[lane] - value)


def read_below(reader: Reader, n: int, bound: int) -> int:
    values, bounds = [0] * n, lanes(n).unpack(bound)
    for lane in unpack(reader.set(n)):
        values[lane] = _clock(bounds[lane] - reader.number())
    return lanes(n).pack(values)


def _write_columns(out: bytearray, columns: tuple[int, ...], about: Any) -> None:
    newest = reduce(lanes(about.n).maximum, columns)
    _write_vector(out, newest, about)
    write_set(out, pack(d for d, column in enumerate(columns) if column), about.n)
    for column in filter(None, columns):
        write_below(out, column, about.n, newest)


def _read_columns(reader: Reader, about: Any) -> tuple[int, ...]:
    """Read columns over n senders, one for each of n destinations."""
    newest = _read_vector(reader, about)
    if lanes(about.n).get(newest, about.sender) >= about.clock:
        raise RemoteProtocolError(
            f"M({about.sender}, {about.clock}) speaks of a later message of its own sender as earlier"
        )
    columns = [0] * about.n
    for d in unpack(reader.set(about.n)):
        columns[d] = read_below(reader, about.n, newest)
    return tuple(columns)


def _clock(value: int) -> int:
    if not 0 < value < CLOCK_LIMIT:
        raise RemoteProtocolError(f"a vector holds {value}, which is no clock")
    return value


CLOCK = number(lambda r, _: r.number(CLOCK_LIMIT))
PROCESS = number(lambda r, about: r.number(about.n))
ANYBODY = number(lambda r, about: r.number(about.most))
"""A process index that may exceed the n that the sender of the message knew."""
NAME = record(ANYBODY, CLOCK)
SET = Field(lambda out, members, about: write_set(out, members, about.n), lambda r, about: r.set(about.n))
BITS = number(lambda r, about: r.bits(about.most))
"""A set in a control message, which does not state the number of processes."""
BYTES = Field(_write_bytes, lambda r, _: r.take(r.number(r.left + 1)))
VECTOR = Field(_write_vector, _read_vector)
COLUMNS = Field(_write_columns, _read_columns)
