"""Match events with a query, over a whole computation; assets/query.js does the same for a scene in the page.

    process:web  kind:send  message:p0:3  label:put  event:p2#7     text in one place, in any case
    http.status=500                                                text in the value of an attribute
    time>2ms  time<1.5s                                            since the earliest event
    word                                                           text in any of these places

All terms must match; "quoted words" stay together. This module searches texts completely, even where the page
has only the beginning of a long text.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality.linearization import Ints
from ..trace.schema import LISTED
from .prepared import Prepared
from .texts import listed_texts

LONGEST = 1_000  # characters of a query that are used
WORD = re.compile(r'(?:[^\s"]+|"[^"]*")+')
TIME = re.compile(r"time([<>])(-?[\d.]+)(ns|us|µs|ms|s|m|h)?")
FIELD = re.compile(r"(process|kind|message|label|event):(.+)", re.DOTALL)
ATTRIBUTE = re.compile(r"([^=]+)=(.*)", re.DOTALL)
SCALES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}

Column: TypeAlias = pa.Array | pa.ChunkedArray


def matching(prepared: Prepared, query: str) -> Ints | None:
    """Whether the query matches each event of a computation; None for an empty query."""
    words = [word.replace('"', "") for word in WORD.findall(query[:LONGEST].lower())]
    masks = [_Words(prepared).mask(word) for word in words if word]
    found: Ints | None = np.logical_and.reduce(masks) if masks else None
    return found


class _Words:
    """Matches single words of a query against the events of one computation."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._rows = pa.array(prepared.c.row)

    def mask(self, word: str) -> Ints:
        if time := TIME.fullmatch(word):
            return self._at(time[1], time[2], SCALES[time[3] or "ns"])
        if field := FIELD.fullmatch(word):
            return _has(self._column(field[1]), field[2])
        if attribute := ATTRIBUTE.fullmatch(word):
            name, text = attribute.groups()
            return self._told(lambda names, values: pc.and_(pc.equal(names, name), _within(values, text)))
        found = self._told(lambda names, values: pc.or_(_within(names, word), _within(values, word)))
        for name in ("process", "kind", "message", "label", "event"):
            found |= _has(self._column(name), word)
        return found

    def _at(self, sign: str, text: str, scale: float) -> Ints:
        try:
            bound = float(text) * scale
        except ValueError:
            bound = np.nan
        times = np.full(len(self._rows), np.nan) if self._prepared.times is None else self._prepared.times[0]
        found: Ints = times < bound if sign == "<" else times > bound
        return found

    def _column(self, name: str) -> Column:
        if name != "event":
            return self._prepared.table[name].take(self._rows)
        seqs = self._column("seq").cast(pa.string())
        return pc.binary_join_element_wise(self._column("process"), seqs, "#")

    def _told(self, test: Callable[[Column, Column], Column]) -> Ints:
        """For each event, whether any of its attributes, as a pair of name and value, passes a test."""
        found = np.zeros(len(self._rows), bool)
        for events, names, values in self._pairs():
            passed = test(pc.utf8_lower(names), pc.utf8_lower(values))
            found[events[_as_mask(passed)]] = True
        return found

    def _pairs(self) -> Iterator[tuple[Ints, Column, Column]]:
        """(events, names, values) of what the page lists for events: attributes, and columns such as `to`."""
        column = self._column("attributes").combine_chunks()
        attributes = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        offsets = attributes.offsets.to_numpy()
        inside = int(offsets[0]), int(offsets[-1]) - int(offsets[0])
        events = np.repeat(np.arange(len(attributes)), np.diff(offsets))
        yield events, attributes.keys.slice(*inside), pc.fill_null(attributes.items.slice(*inside), "")
        for name, title in LISTED.items():
            texts = listed_texts(self._column(name))
            there = np.flatnonzero(pc.is_valid(texts).to_numpy(zero_copy_only=False))
            yield there, pa.repeat(title, there.size), texts.take(pa.array(there))


def _within(column: Column, text: str) -> Column:
    return pc.match_substring(column, text)


def _has(column: Column, text: str) -> Ints:
    return _as_mask(_within(pc.utf8_lower(column), text))


def _as_mask(passed: Column) -> Ints:
    known = pc.fill_null(passed, False)
    found: Ints = known.to_numpy() if isinstance(known, pa.ChunkedArray) else known.to_numpy(False)
    return found.astype(bool)
