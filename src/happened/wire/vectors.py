"""Vectors of clocks as bytes: the set of lanes that are not zero, then a number for each of them.

Clocks are written relative to something both sides know. `write_vector` takes the message's own clock
(zigzag: a vector may be ahead of it); `write_below` another vector that bounds this one. `write_columns`
writes the newest clock of each sender once, and each column below that.
"""

from functools import reduce

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, lanes
from .primitives import Reader, unzigzag, write_number, write_set, zigzag


def write_vector(out: bytearray, vector: int, n: int, clock: int) -> None:
    values = dict(lanes(n).items(vector))
    write_set(out, pack(values), n)
    for value in values.values():
        write_number(out, zigzag(clock - value))


def read_vector(reader: Reader, n: int, clock: int) -> int:
    values = [0] * n
    for lane in unpack(reader.set(n)):
        values[lane] = _clock(clock - unzigzag(reader.number()))
    return lanes(n).pack(values)


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


def write_columns(out: bytearray, columns: tuple[int, ...], clock: int) -> None:
    n = len(columns)
    newest = reduce(lanes(n).maximum, columns)
    write_vector(out, newest, n, clock)
    write_set(out, pack(d for d, column in enumerate(columns) if column), n)
    for column in filter(None, columns):
        write_below(out, column, n, newest)


def read_columns(reader: Reader, n: int, sender: int, clock: int) -> tuple[int, ...]:
    """Columns over n senders and as many destinations, carried by M(sender, clock)."""
    newest = read_vector(reader, n, clock)
    if lanes(n).get(newest, sender) >= clock:
        raise RemoteProtocolError(
            f"M({sender}, {clock}) speaks of a later message of its own sender as earlier"
        )
    columns = [0] * n
    for d in unpack(reader.set(n)):
        columns[d] = read_below(reader, n, newest)
    return tuple(columns)


def _clock(value: int) -> int:
    if not 0 < value < CLOCK_LIMIT:
        raise RemoteProtocolError(f"a vector holds {value}, which is no clock")
    return value
