"""The journal of a node: its inputs in order, in SQLite.

    meta        key, value                               the journal's owner and its format
    batches     number, time, entries, checksum          inputs, a row per commit, numbered without gaps
    snapshots   after, state, checksum                   the state after that batch
    parked      link, first, last, frames, checksum      consecutive frames for a peer that is away

Promises   a batch is stored whole or not at all; once `append` has returned, its batch survives kill -9 and,
           with `flush`, a power failure. A row that cannot be read as it was written is refused, never
           skipped: each has a checksum of its number and bytes, and SQLite checks its pages when a journal
           is opened. One process at a time has a journal open, never its children (`Ownership`).
Leaves out damage to the last few megabytes, which SQLite keeps in its write-ahead log until a checkpoint:
           SQLite takes a damaged end of that log for one that was never written. Peers find out: they have
           frames that a shortened journal does not know, and refuse the node (membership.py).
Bounds     `append` with a snapshot, then `forget`, reduces the file to what came after the snapshot, and
           gives free pages back. Parked frames are in no snapshot: their rows stay until the peer has them.

Only one thread at a time may use it. commits.py runs `append` and `forget` in a thread of their own, so that
the event loop goes on during a flush.
"""

import contextlib
import ctypes
import json
import os
import sqlite3
import struct
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .errors import JournalError
from .link import Parking

try:
    import fcntl
except ImportError:  # not POSIX: SQLite's lock is mandatory there, and nobody forks
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600
FORMAT = 1
MAX_SNAPSHOT = 900_000_000
"""The longest snapshot, in bytes; SQLite takes a thousand million in one row."""

ROW_BYTES = 256 << 10
"""About how many bytes of parked frames one row holds."""
LENGTH = struct.Struct(">I")

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, time INTEGER NOT NULL, entries BLOB NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE snapshots (after INTEGER PRIMARY KEY, state BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE parked (
    link INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, frames BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE INDEX parked_by_number ON parked (link, last);
"""


class Identity(NamedTuple):
    """Whose state a journal holds: a node that differs in one of these fields may not use the journal."""

    name: str
    protocol: str
    options: str  # JSON
    members: tuple[str, ...]  # the first members
    tracker: str = ""  # the tracking protocol, with its bound; empty: none


class Journal:
    """An open journal. With `flush`, each batch waits for the disk; `max_pages` bounds the file."""

    def __init__(self, path: Path, *, flush: bool = True, max_pages: int | None = None) -> None:
        self.path = path
        self.bytes = 0  # of entries since the snapshot with which a replay would begin
        self._last = 0
        with contextlib.ExitStack() as if_it_fails:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._ownership = Ownership(path)
                if_it_fails.callback(self._ownership.release)
                self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
                if_it_fails.callback(self._close_database)
            except (OSError, sqlite3.Error) as error:
                raise JournalError(f"{path}: cannot be opened: {error}") from error
            with self._explained():
                self._configure(flush, max_pages)
            if_it_fails.pop_all()

    def _configure(self, flush: bool, max_pages: int | None) -> None:
        run = self._db.execute
        # Exclusive: a second process that opens the file is refused, and no lock outlives its process.
        run("PRAGMA locking_mode = EXCLUSIVE")
        if self.path.stat().st_size == 0:
            run("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect only before anything is written
        run("BEGIN EXCLUSIVE")
        run("COMMIT")
        version = run("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT):
            raise JournalError(
                f"{self.path}: written in format {version} by another happened; this one knows {FORMAT}. "
                "Use that version; nothing was changed"
            )
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {'FULL' if flush else 'NORMAL'}")
        if max_pages is not None:
            run(f"PRAGMA max_page_count = {max_pages}")
        if version == 0:
            if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise JournalError(f"{self.path}: is a database of something else; give another path")
            self._db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;")
        # A journal's pages are read once, in order, so checking them costs as much as loading them.
        problems = [row[0] for row in run("PRAGMA quick_check(3)")]
        if problems != ["ok"]:
            raise self._damaged("; ".join(problems))
        run("BEGIN IMMEDIATE")  # this creates the write-ahead log, if nothing else has
        run("COMMIT")
        self._ownership.guard(self._db)

    def open(self, identity: Identity) -> bytes:
        """Return the incarnation kept in this journal, which is drawn now if the journal is new. Raises
        JournalError if the journal is another node's."""
        wanted = {key: json.dumps(value) for key, value in identity._asdict().items()}
        try:
            with self._explained():
                found = dict(self._db.execute("SELECT key, value FROM meta"))
                if not found:
                    found = wanted | {"incarnation": json.dumps(os.urandom(8).hex())}
                    self._db.execute("BEGIN")
                    self._db.executemany("INSERT INTO meta VALUES (?, ?)", found.items())
                    self._db.execute("COMMIT")
            for key, value in wanted.items():
                if found[key] != value:
                    raise JournalError(
                        f"{self.path}: is the journal of a node whose {key} is {found[key]}, not {value}; "
                        "give each node its own journal, and keep its configuration with it"
                    )
            return bytes.fromhex(json.loads(found["incarnation"]))
        except (KeyError, ValueError) as error:
            raise self._damaged(f"meta: {error!r}") from error

    def owner(self) -> str:
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = 'name'").fetchone()
        if row is None:
            raise self._damaged("it does not say whose it is")
        return str(json.loads(row[0]))

    def snapshot(self) -> bytes | None:
        """The state with which a replay begins, None if it begins with nothing. Call this before `batches`.

        A snapshot counts once the batches before it, and the batch that it came with, are forgotten.
        """
        query = "SELECT * FROM snapshots WHERE after NOT IN (SELECT number FROM batches)"
        with self._explained():
            row = self._db.execute(query).fetchone()
            first = self._db.execute("SELECT min(number) FROM batches").fetchone()[0]
        if row is None:
            return None
        self._last, state, checksum = row
        if first is not None and first <= self._last:
            raise self._damaged(f"some batches between {first} and {self._last} are missing")
        if _checksum(self._last, 0, data=state) != checksum:
            raise self._damaged(f"the snapshot after batch {self._last} is not what was written")
        return bytes(state)

    def batches(self) -> Iterator[tuple[int, bytes]]:
        """The time and entries of each batch after that snapshot, in order."""
        query = "SELECT * FROM batches WHERE number > ? ORDER BY number"
        with self._explained():
            for number, time, entries, checksum in self._db.execute(query, (self._last,)):
                if number != self._last + 1:
                    raise self._damaged(f"batches {self._last + 1} to {number - 1} are missing")
                if _checksum(number, time, data=entries) != checksum:
                    raise self._damaged(f"batch {number} is not what was written")
                self._last = number
                self.bytes += len(entries)
                yield time, entries
            newest = self._db.execute("SELECT max(after) FROM snapshots").fetchone()[0]
            if newest is not None and newest > self._last:
                raise self._damaged(f"batches {self._last + 1} to {newest} are missing")

    def append(
        self,
        time: int,
        entries: bytes,
        snapshot: bytes | list[bytes] | None = None,
        parking: Parking | None = None,
    ) -> int:
        """Make a batch durable, with the frames that it parks and, if given, a snapshot of the state after it
        (whole or in parts); returns the batch's number."""
        self._ownership.check()
        number, run = self._last + 1, self._db.execute
        try:
            run("BEGIN")
            checksum = _checksum(number, time, data=entries)
            run("INSERT INTO batches VALUES (?, ?, ?, ?)", (number, time, entries, checksum))
            if parking is not None:
                self._park(parking)
            if snapshot is not None:
                snapshot = snapshot if isinstance(snapshot, bytes) else b"".join(snapshot)
                checksum = _checksum(number, 0, data=snapshot)
                run("INSERT INTO snapshots VALUES (?, ?, ?)", (number, snapshot, checksum))
            run("COMMIT")
        except sqlite3.Error as error:
            raise self._explanation(error) from error
        self._ownership.check()  # after the commit: a file deleted by now would not have it
        self._last = number
        self.bytes += len(entries)
        return number

    @contextlib.contextmanager
    def parking_again(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Callable[[Parking], None]]:
        """For the time of a replay: yields the function to call with each batch's parking.

        Keeps only the parked frames that the state at the beginning of the replay counts on: `ranges` gives,
        per link, the number before them and the last. The replay parks the others again, in one transaction.
        """
        run = self._db.execute
        try:
            with self._explained():
                run("BEGIN")
                links = [link for (link,) in run("SELECT DISTINCT link FROM parked")]
                for link in links:
                    after, last = ranges.get(link, (0, 0))
                    run("DELETE FROM parked WHERE link = ? AND (last <= ? OR first > ?)", (link, after, last))
                yield self._park
                run("COMMIT")
        finally:
            if self._db.in_transaction:
                run("ROLLBACK")

    def _park(self, parking: Parking) -> None:
        """Change the parked frames as a batch asks, within the current transaction."""
        run = self._db.execute
        for link, through in parking.freed.items():
            run("DELETE FROM parked WHERE link = ? AND last <= ?", (link, through))
        for link, frames in parking.frames.items():
            for first, last, blob in _rows(frames):
                row = (link, first, last, blob, _checksum(link, first, last, data=blob))
                run("INSERT INTO parked VALUES (?, ?, ?, ?, ?)", row)

    def parked(self, link: int, after: int, most_bytes: int) -> list[bytes]:
        """The parked frames of a link after this number, in order: at least one, and no further ones once
        `most_bytes` are reached."""
        query = "SELECT first, last, frames, checksum FROM parked WHERE link = ? AND last > ? ORDER BY last"
        taken: list[bytes] = []
        with self._explained():
            for first, last, blob, checksum in self._db.execute(query, (link, after)):
                if first > after + len(taken) + 1:
                    break
                if _checksum(link, first, last, data=blob) != checksum:
                    raise self._damaged(
                        f"frames {first} to {last} to process {link} are not what was written"
                    )
                for number, frame in enumerate(_frames(blob), first):
                    if number == after + len(taken) + 1:
                        taken.append(frame)
                        most_bytes -= len(frame)
                        if most_bytes <= 0:
                            return taken
            else:
                if taken:
                    return taken
        raise self._damaged(f"frame {after + len(taken) + 1} to process {link} is missing")

    def forget(self, after: int) -> None:
        """Delete the batches up to this one, and all snapshots older than the snapshot after this batch."""
        self._ownership.check()
        run = self._db.execute
        with self._explained():
            run("BEGIN")
            run("DELETE FROM batches WHERE number <= ?", (after,))
            run("DELETE FROM snapshots WHERE after < ?", (after,))
            run("COMMIT")
            rest = run("SELECT total(length(entries)) FROM batches").fetchone()[0]
            self._db.executescript("PRAGMA incremental_vacuum")  # `execute` would free only one page
            run("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.bytes = int(rest)

    def close(self) -> None:
        try:
            with self._explained():
                self._close_database()
        finally:
            self._ownership.release()

    def _close_database(self) -> None:
        if self._ownership.is_ours:
            self._db.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise JournalError in place of SQLite's errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explanation(error) from error

    def _explanation(self, error: sqlite3.Error) -> JournalError:
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged(str(error))
        why = f"{error}; what was confirmed is not lost, repair this and start the node again"
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            why = "is in use by another process: every node needs a name and a journal of its own"
        elif primary == sqlite3.SQLITE_FULL:
            why = "the disk is full; make room and start the node again, nothing that was confirmed is lost"
        return JournalError(f"{self.path}: {why}")

    def _damaged(self, what: str) -> JournalError:
        return JournalError(
            f"{self.path}: is damaged ({what}). The node cannot go on as this process: restore the newest "
            "intact copy if nothing was sent since, or let the process join under a new name"
        )


def _checksum(*numbers: Any, data: Any) -> int:
    """The checksum of a row; -1, which no row has, if a damaged page gives a value of another type."""
    if type(data) is not bytes or {*map(type, numbers)} != {int}:
        return -1
    return zlib.crc32(data, zlib.crc32(" ".join(map(str, numbers)).encode()))


def _rows(frames: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
    """Group consecutive frames into rows of about ROW_BYTES: first number, last number, and the frames."""
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


class Ownership:
    """The right to write the journal at `path`, until `release`. JournalError: another process has it.

    Promises   a second process is refused while the first one lives, whatever path it uses. A child made by
               fork cannot write the journal, and its end changes nothing. `check` notices that the journal
               was deleted or replaced under its owner.
    Why        SQLite's own locks are POSIX locks. Closing any descriptor of a file drops all of them, so that
               a program that copies its own journal loses them; and a child that ends closes the connection
               that it inherited, which removes its parent's write-ahead log.

    The lock file stays when its owner ends: without it, two processes could lock two files of that name.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._owner = os.getpid()
        self._lock = self._take_lock()
        try:
            _make_private(self.path)
            self._files = {self.path: _identity(self.path)}
        except OSError:
            self.release()
            raise
        self._database: sqlite3.Connection | None = None
        _OWNED.add(self)

    def _take_lock(self) -> int:
        name = self.path.with_name(self.path.name + ".lock")
        lock = os.open(name, os.O_RDWR | os.O_CREAT, PRIVATE)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.read(lock, 20).decode("ascii", "replace").strip()
            os.close(lock)
            raise JournalError(
                f"{self.path}: is in use by another process{f', {owner}' if owner else ''}: every node needs "
                "a name and a journal of its own"
            ) from error
        os.ftruncate(lock, 0)
        os.write(lock, b"%d\n" % self._owner)
        return lock

    def guard(self, database: sqlite3.Connection) -> None:
        """Protect this connection, and the write-ahead log that it made, from children and others."""
        self._database = database
        log = self.path.with_name(self.path.name + "-wal")
        self._files[log] = _identity(log)

    @property
    def is_ours(self) -> bool:
        """Whether this process itself took the journal: False in a child that it has forked."""
        return os.getpid() == self._owner

    def check(self) -> None:
        """Raise JournalError if this process does not own the journal, or the path names another file now."""
        if os.getpid() != self._owner:
            raise JournalError(
                f"{self.path}: belongs to process {self._owner}, which forked this one; a child needs a "
                "node, a name and a journal of its own"
            )
        for path, identity in self._files.items():
            try:
                found = os.stat(path)
                is_same = (found.st_dev, found.st_ino) == identity
            except FileNotFoundError:
                is_same = identity is None
            if not is_same:
                raise JournalError(
                    f"{path}: was removed or replaced while the node was running. What is confirmed from now "
                    "on would be lost: put the file back, or let the process join under a new name"
                )

    def release(self) -> None:
        """Let another process have the journal. A child only closes the descriptors that it inherited."""
        _OWNED.discard(self)
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def disown(self) -> None:
        """In a child: never close the parent's connection, neither now nor when the interpreter ends."""
        if self._database is not None:
            # One reference more keeps it open: closing it would checkpoint and unlink the parent's log.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))
        self.release()  # the parent still has the lock, through its own descriptor


_OWNED: "weakref.WeakSet[Ownership]" = weakref.WeakSet()


def _disown_all() -> None:
    for each in list(_OWNED):
        each.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _make_private(path: Path) -> None:
    """Create the file if it does not exist, readable by its owner alone whatever the umask. SQLite gives the
    files beside it the same mode."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        if os.fstat(file).st_mode & 0o077:
            os.fchmod(file, PRIVATE)
    finally:
        os.close(file)  # close it before SQLite locks the file


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
