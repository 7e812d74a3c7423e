"""Entries (sender, clock, set of destinations) as bytes: the set of senders, then one row per sender.

A row starts with a number (the sender's newest clock relative to the message's, zigzag, ·4, +2 if older
entries follow, +1 if the newest entry has a set). Then come that set, the number of older entries, and for
each, newest first, the step back and its set. A history's timestamp is rows, then 0, or 1 and carbon copies.
"""

from collections.abc import Iterable

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.causal.extended_history import HistoryEntry
from .primitives import Reader, unzigzag, write_number, write_set, zigzag

Row = list[tuple[int, int]]
"""The (clock, set) entries of one sender, newest first."""


def rows_of(entries: Iterable[tuple[int, int, int]]) -> dict[int, Row]:
    """Makes rows from entries that are sorted by clock."""
    rows: dict[int, Row] = {}
    for s, t, dests in entries:
        rows.setdefault(s, []).insert(0, (t, dests))
    return rows


def write_rows(out: bytearray, rows: dict[int, Row], clock: int, n: int) -> None:
    write_set(out, pack(rows), n)
    for _, row in sorted(rows.items()):
        _write_row(out, row, clock, n)


def _write_row(out: bytearray, row: Row, clock: int, n: int) -> None:
    newest, dests = row[0]
    write_number(out, zigzag(clock - newest) << 2 | (len(row) > 1) << 1 | (dests != 0))
    if dests:
        write_set(out, dests, n)
    if len(row) > 1:
        write_number(out, len(row) - 2)
        for t, dests in row[1:]:
            write_number(out, newest - t - 1)
            write_set(out, dests, n)
            newest = t


def read_rows(reader: Reader, clock: int, n: int) -> dict[int, Row]:
    return {s: _read_row(reader, clock, n) for s in unpack(reader.set(n))}


def _read_row(reader: Reader, clock: int, n: int) -> Row:
    head = reader.number()
    newest = clock - unzigzag(head >> 2)
    row = [(newest, reader.set(n) if head & 1 else 0)]
    if head & 2:
        for _ in range(reader.number(reader.left + 1) + 1):
            newest -= reader.number() + 1
            row.append((newest, reader.set(n)))
    if not 0 < newest <= row[0][0] < CLOCK_LIMIT:
        raise RemoteProtocolError(f"a row has clocks from {row[0][0]} down to {newest}")
    return row


def check_rows(rows: dict[int, Row], dests: int, sender: int) -> None:
    """Refuse rows that no correct log has, since merging them would corrupt the receiver's own log.

    The rules are Lemmas 1 and 7 of Kshemkalyani & Singhal (1998), and their constraint PC2.
    """
    for s, row in rows.items():
        seen = 0
        for i, (t, members) in enumerate(row):
            if members & seen or (i and not members):
                raise RemoteProtocolError(
                    f"entry ({s}, {t}) repeats a destination or is empty and not newest"
                )
            seen |= members
            if members & dests and not (s == sender and i == 0):
                raise RemoteProtocolError(f"entry ({s}, {t}) names a destination of this very message")


def write_entries(out: bytearray, entries: Iterable[HistoryEntry], clock: int, n: int) -> None:
    """Write history entries relative to `clock`, the clock of the message that carries them."""
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
