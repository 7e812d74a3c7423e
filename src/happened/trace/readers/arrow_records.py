"""Rows of Arrow tables as the records that readers of JSON take.

Structs and maps become objects, of which nulls are left out; bytes become hexadecimal digits, timestamps and
intervals Nanoseconds, decimals numbers, dates ISO text.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Record = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Nanoseconds(int):
    """A time since 1970 or a duration in nanoseconds, converted from a column whose type names its unit."""


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows of a batch, one after another."""
    columns = [_values(column) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield {name: value for name, value in zip(batch.schema.names, row, strict=True) if value is not None}


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # not through `datetime`, which ends with the year 9999
        scale = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}[column.type.unit]
        return [None if n is None else Nanoseconds(n * scale) for n in column.cast(pa.int64()).to_pylist()]
    convert = _converter(column.type)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A function that converts a value of this type to a plain one; None if no conversion is needed."""
    if pa.types.is_struct(kind):
        within = {field.name: _converter(field.type) for field in kind}
        return lambda value: _object(value.items(), within)
    if pa.types.is_map(kind):
        of_item = _converter(kind.item_type)
        return lambda pairs: {
            str(_plain(name)): of_item(value) if of_item else value
            for name, value in pairs
            if value is not None
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_member = _converter(kind.value_type)
        if of_member is None:
            return None
        return lambda members: [None if each is None else of_member(each) for each in members]
    is_plain = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return None if is_plain else _plain


def _object(items: Any, within: dict[str, Callable[[Any], Any] | None]) -> Record:
    found = {}
    for name, value in items:
        if value is not None:
            convert = within[name]
            found[name] = value if convert is None else convert(value)
    return found


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return Nanoseconds((moment - EPOCH) // MICROSECOND * 1000)
        case timedelta():
            return Nanoseconds(value // MICROSECOND * 1000)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case date():
            return value.isoformat()
    return value
