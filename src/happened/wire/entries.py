"""Timestamps of history entries as bytes: rows, then 0, or 1 and the carbon copies of each entry in order."""

from collections.abc import Iterable

from ..ordering.causal.extended_history import HistoryEntry
from .primitives import Reader, write_set
from .rows import read_rows, rows_of, write_rows


def write_entries(out: bytearray, entries: Iterable[HistoryEntry], clock: int, n: int) -> None:
    """`clock` is that of the message they belong to: others are written relative to it."""
    write_rows(out, rows_of((s, c, dests) for s, c, dests, _ in entries), clock, n)
    extended = any(entry.copied for entry in entries)
    out.append(extended)
    if extended:
        for entry in entries:
            write_set(out, entry.copied, n)


def read_entries(reader: Reader, clock: int, n: int) -> tuple[HistoryEntry, ...]:
    rows = read_rows(reader, clock, n)
    entries = [HistoryEntry(s, c, dests) for s, row in sorted(rows.items()) for c, dests in reversed(row)]
    if reader.byte():
        entries = [entry._replace(copied=reader.set(n)) for entry in entries]
    return tuple(entries)
