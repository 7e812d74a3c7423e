"""JSON lines, one object each; a line that is none is quarantined and the next one is read."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from .draft import QuarantinedRecord
from .source import Source

Object = dict[str, Any]


def objects(source: Source, *, exact: bool = False) -> Iterator[tuple[int, Object | QuarantinedRecord]]:
    """(line, object or why it is none). `exact` reads fractions as Decimal, which keeps nanoseconds."""
    for number, text in source.lines():
        yield number, object_in(source, number, text, exact=exact)


def object_in(source: Source, number: int, text: str, *, exact: bool = False) -> Object | QuarantinedRecord:
    """The object in one line, or why there is none."""
    try:
        record = json.loads(text, parse_float=Decimal if exact else None)
    except (ValueError, RecursionError) as error:
        cut = "; the file may have been cut here" if text.lstrip()[:1] == "{" else ""
        return source.quarantined(number, text, None, f"is not JSON ({error}){cut}")
    if isinstance(record, dict):
        return record
    return source.quarantined(number, text, None, "is not a JSON object")
