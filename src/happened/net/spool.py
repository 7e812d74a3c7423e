"""Frames that wait on disk for peers that are away: a table in the file of the journal.

    parked   link, first, last, frames, checksum   consecutive frames of a link, each behind its length

Promises   a batch's frames are there if the batch is, and are changed with it or not at all. Which of them
           are needed, the engine knows: those that its snapshot leaves out, and those that a replay makes
           again.

Like the journal, it is used from one thread at a time.
"""

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

from .parked import Parking

ROW_BYTES = 256 << 10
LENGTH = struct.Struct(">I")

PARKED = """
CREATE TABLE parked (
    link INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, frames BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX parked_by_number ON parked (link, last);
"""


class SpoolDamaged(Exception):
    """The text says which frames cannot be read as they were written."""


class Spool:
    """The parked frames in this database."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def store(self, parking: Parking) -> None:
        """Do what a batch asks for, within the transaction that is under way."""
        run = self._db.execute
        for link, through in parking.freed.items():
            run("DELETE FROM parked WHERE link = ? AND last <= ?", (link, through))
        for link, frames in parking.frames.items():
            for first, last, blob in _rows(frames):
                row = (link, first, last, blob, _checksum(link, first, last, blob))
                run("INSERT INTO parked VALUES (?, ?, ?, ?, ?)", row)

    def keep(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Delete all but, per link, the frames after one number and up to another."""
        run = self._db.execute
        links = [link for (link,) in run("SELECT DISTINCT link FROM parked")]
        for link in links:
            after, last = ranges.get(link, (0, 0))
            run("DELETE FROM parked WHERE link = ? AND (last <= ? OR first > ?)", (link, after, last))

    def read(self, link: int, after: int, most_bytes: int) -> list[bytes]:
        """The frames of a link after this number: at least one, and no more once `most_bytes` are reached.
        SpoolDamaged: they are not there, or not what was written."""
        query = "SELECT first, last, frames, checksum FROM parked WHERE link = ? AND last > ? ORDER BY last"
        taken: list[bytes] = []
        for first, last, blob, checksum in self._db.execute(query, (link, after)):
            if first > after + len(taken) + 1:
                raise SpoolDamaged(f"frame {after + len(taken) + 1} to process {link} is missing")
            if not isinstance(blob, bytes) or _checksum(link, first, last, blob) != checksum:
                raise SpoolDamaged(f"frames {first} to {last} to process {link} are not what was written")
            for number, frame in enumerate(_frames(blob), first):
                if number == after + len(taken) + 1:
                    taken.append(frame)
                    most_bytes -= len(frame)
                    if most_bytes <= 0:
                        return taken
        if not taken:
            raise SpoolDamaged(f"frame {after + 1} to process {link} is missing")
        return taken


def _rows(frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
    """Consecutive frames in rows of about ROW_BYTES: first and last number, and the frames."""
    parts: list[bytes] = []
    size = first = last = 0
    for number, frame in frames:
        if not parts:
            first = number
        parts += (LENGTH.pack(len(frame)), frame)
        size, last = size + len(frame), number
        if size >= ROW_BYTES:
            yield first, last, b"".join(parts)
            parts, size = [], 0
    if parts:
        yield first, last, b"".join(parts)


def _frames(blob: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(blob):
        (length,) = LENGTH.unpack_from(blob, position)
        position += LENGTH.size + length
        yield blob[position - length : position]


def _checksum(link: int, first: int, last: int, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(b"%d %d %d" % (link, first, last)))
