"""Who may write a journal: one process, as long as it lives, and as long as the file is the one it opened.

Promises   a second process is refused while the first one lives, under whatever path it names the file. A
           child made by fork does not own what its parent opened: it cannot write the journal, and its end
           changes nothing. A journal that was deleted or replaced under its owner is noticed by `check`.
Why        SQLite's own locks are POSIX locks. Closing any descriptor of a file drops all of them, so that a
           program that copies its journal loses them; and a child that ends closes the connection it has
           inherited, which removes the write-ahead log of its parent.
"""

import contextlib
import ctypes
import os
import sqlite3
import weakref
from pathlib import Path

from .errors import JournalError

try:
    import fcntl
except ImportError:  # not POSIX: SQLite's lock is mandatory there, and nobody forks
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600


class Ownership:
    """The right to write the journal at `path`, until `release`. JournalError: another process has it.

    The lock file beside the journal stays when its owner ends: removing it would let two processes lock two
    files of that name.
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
        """Keep this connection, and the write-ahead log that it has made, from children and from others."""
        self._database = database
        log = self.path.with_name(self.path.name + "-wal")
        self._files[log] = _identity(log)

    @property
    def is_ours(self) -> bool:
        """Whether this process took the journal, and not one that forked it."""
        return os.getpid() == self._owner

    def check(self) -> None:
        """Raise JournalError if this process does not own the journal, or the file is not the same."""
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
        """Let another process have the journal. A child only lets go of what it has inherited."""
        _OWNED.discard(self)
        with contextlib.suppress(OSError):
            os.close(self._lock)

    def disown(self) -> None:
        """In a child: close nothing of the parent's, now or when the interpreter ends."""
        if self._database is not None:
            # One reference too many: closing the connection would checkpoint and unlink the parent's log.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))
        self.release()  # the parent has the lock through its own descriptor


_OWNED: "weakref.WeakSet[Ownership]" = weakref.WeakSet()


def _disown_all() -> None:
    for each in list(_OWNED):
        each.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


def _make_private(path: Path) -> None:
    """Create the file if need be, readable by its owner alone whatever the umask; SQLite's files beside it
    have the same mode."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        if os.fstat(file).st_mode & 0o077:
            os.fchmod(file, PRIVATE)
    finally:
        os.close(file)  # before SQLite has locked it


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
