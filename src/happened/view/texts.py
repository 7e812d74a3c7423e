"""Labels, attributes and names of a scene: each distinct text once, cut at a readable length.

A log may have a megabyte in one label. A page shows the beginning and the full length. The total length of a
scene's texts is limited too: texts beyond the limit are left out and counted.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from ..causality.linearization import Ints

LONGEST = 2_000
MOST_CHARACTERS = 24_000_000
MOST_ATTRIBUTES = 64
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def cut(text: str, longest: int = LONGEST) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text):,} characters)"


def markup(text: str) -> str:
    """The text escaped for XML; characters that XML does not allow, such as controls, are replaced."""
    return escape(NO_XML.sub("\ufffd", text))


def natural(name: str) -> list[tuple[int, str]]:
    """A key to sort by that has p2 before p10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def compact(value: float) -> str:
    return _scaled(value, ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")))


def duration(nanoseconds: float) -> str:
    units = ((86_400e9, " d"), (3600e9, " h"), (60e9, " min"), (1e9, " s"), (1e6, " ms"), (1e3, " µs"))
    return _scaled(nanoseconds, (*units, (1, " ns")))


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """The value with three significant digits, in the largest unit in which it is at least 1."""
    scale, unit = next((each for each in units if abs(value) >= 0.9995 * each[0]), units[-1])
    scaled = value / scale
    return f"{scaled:,.0f}{unit}" if abs(scaled) >= 999.5 else f"{scaled:.3g}{unit}"


def short(name: str, most: int = 16) -> str:
    """The name, or the beginning and end of a name longer than `most`, where generated names differ."""
    if len(name) <= most:
        return name
    tail = most // 3
    return f"{name[: most - 1 - tail]}…{name[-tail:]}"


class Texts:
    """Distinct texts by number. `left_out` counts texts beyond the limit; their number is -1."""

    def __init__(self, room: int = MOST_CHARACTERS) -> None:
        self.all: list[Any] = []
        self.left_out = 0
        self._room = room
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, value: Any, size: int) -> int:
        known = self._numbers.get(key)
        if known is not None:
            return known
        if size > self._room:
            self.left_out += 1
            return -1
        self._room -= size
        self._numbers[key] = len(self.all)
        self.all.append(value)
        return len(self.all) - 1

    def numbers_of(self, column: Iterable[str | None]) -> Ints:
        """The numbers of a column's texts, -1 for null."""
        shown = ((text, None if text is None else cut(text)) for text in column)
        numbers = [-1 if short is None else self.number(text, short, len(short)) for text, short in shown]
        return np.array(numbers, np.int32)


def listed_texts(column: pa.Array | pa.ChunkedArray, most: int | None = None) -> pa.Array:
    """The values of a column as texts, null for null; of a list only the first `most` members."""
    if not pa.types.is_nested(column.type):
        texts = column.cast(pa.string())
        return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    joined = [None if value is None else _joined(value, most) for value in column.to_pylist()]
    return pa.array(joined, pa.string())


def _joined(values: Sequence[Any], most: int | None) -> str:
    """The members of a list, or the entries of a map, with commas between them."""
    shown = [f"{each[0]}: {each[1]}" if isinstance(each, tuple) else str(each) for each in values[:most]]
    return ", ".join(shown if most is None or len(values) <= most else [*shown, "…"])


def attribute_numbers(column: pa.ChunkedArray, extra: Sequence[dict[str, str]], texts: Texts) -> Ints:
    """The numbers of the events' attributes, each a list [key, value, key, value, …].

    extra   items to list for each event before its attributes
    """
    numbers = np.full(len(column), -1, np.int32)
    for i, (pairs, more) in enumerate(zip(column.to_pylist(), extra, strict=True)):
        told = [*more.items(), *(pairs or ())]
        if not told:
            continue
        listed = told[:MOST_ATTRIBUTES]
        shown = [part for name, value in listed for part in (cut(name, 200), cut(value or ""))]
        if len(told) > MOST_ATTRIBUTES:
            shown += ["…", f"{len(told) - MOST_ATTRIBUTES:,} more attributes"]
        numbers[i] = texts.number(tuple(told), shown, sum(map(len, shown)))
    return numbers
