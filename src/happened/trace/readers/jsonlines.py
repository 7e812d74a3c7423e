"""JSON lines, one object each; a line that is none is quarantined and the next one is read."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from .draft import QuarantinedRecord, excerpt
from .source import Source

Object = dict[str, Any]


def objects(source: Source, *, exact: bool = False) -> Iterator[tuple[int, Object | QuarantinedRecord]]:
    """(line, object or why it is none). `exact` reads fractions as Decimal, which keeps nanoseconds."""
    fraction = Decimal if exact else None
    for number, text in source.lines():
        try:
            record = json.loads(text, parse_float=fraction)
        except (ValueError, RecursionError) as error:
            cut = "; the file may have been cut here" if text.lstrip()[:1] == "{" else ""
            yield (
                number,
                QuarantinedRecord(source.file, number, None, f"is not JSON ({error}){cut}", excerpt(text)),
            )
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            yield number, QuarantinedRecord(source.file, number, None, "is not a JSON object", excerpt(text))
