"""Directories that are not whole yet: who fills them, and which of them were abandoned.

A directory that is being filled holds a file `_unfinished`, which says what process of what host does so, and
where else it keeps intermediates. A local one has a hidden name besides (see atomic); in a store, where
nothing is renamed, the mark is all that tells it from a finished one.

Whether a process of another host lives cannot be known: what it fills counts as abandoned when nothing in it
was written for some hours.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .store import AnyPath, StorePath, any_path, files_below, matching, remove_tree, versions_of

UNFINISHED = "_unfinished"
HOURS = 24.0
"""For how long nothing may be written by a process that cannot be asked whether it lives."""


class Mark(NamedTuple):
    """What `_unfinished` says.

    pid      0 where nobody fills the directory any more
    started  tells a process from a later one with its pid
    work     where else it keeps what is not finished
    """

    host: str = ""
    pid: int = 0
    started: str = ""
    work: str = ""

    @property
    def is_alive(self) -> bool | None:
        """Whether the process that writes the directory is still running; None if that cannot be known."""
        if not self.pid:
            return False
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _started(self.pid) == self.started


def mark(directory: AnyPath, work: AnyPath | None = None) -> None:
    """Mark the directory as being written by this process."""
    pid = os.getpid()
    given = Mark(socket.gethostname(), pid, _started(pid), "" if work is None else str(work))
    _write(directory, given)


def let_go(directory: AnyPath, work: AnyPath | None = None) -> None:
    """Mark the directory as incomplete and no longer being written."""
    _write(directory, Mark(work="" if work is None else str(work)))


def mark_of(directory: AnyPath) -> Mark | None:
    """What a directory's mark says; None if it has none."""
    try:
        return Mark(**json.loads((directory / UNFINISHED).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):  # of another version, or cut off
        return Mark(host="?", pid=-1)


def remove_abandoned(at: AnyPath, hours: float = HOURS) -> list[AnyPath]:
    """Delete the leftovers of interrupted runs at, in or beside a path, with their intermediate files."""
    removed = []
    for directory in _candidates(any_path(at).absolute()):
        found = mark_of(directory)
        if not _is_abandoned(directory, found, hours):
            continue
        work = any_path(found.work) if found is not None and found.work else None
        if work is not None and work.is_dir():
            remove_marked(work)
            removed.append(work)
        if directory.is_dir():  # intermediates of one that was removed before it are gone
            remove_marked(directory)
            removed.append(directory)
    return removed


def remove_marked(directory: AnyPath) -> None:
    """Remove a directory, its mark last: what cannot be removed stays unfinished."""
    clear(directory)
    remove_tree(directory)


def clear(directory: AnyPath) -> None:
    """Delete everything in a directory except its mark."""
    for left in [*directory.iterdir()] if directory.is_dir() else []:
        if left.name == UNFINISHED:
            continue
        remove_tree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _candidates(at: AnyPath) -> Iterator[AnyPath]:
    inside = [at, *(at.iterdir() if at.is_dir() else ())]
    beside = [] if isinstance(at, StorePath) else matching(at.parent, f".{at.name}.*unfinished")
    for path in [*inside, *beside]:
        if path.is_dir() and (_has_unfinished_name(path) or (path / UNFINISHED).is_file()):
            yield path


def _has_unfinished_name(path: AnyPath) -> bool:
    return isinstance(path, Path) and path.name.startswith(".") and path.name.endswith(".unfinished")


def _is_abandoned(directory: AnyPath, found: Mark | None, hours: float) -> bool:
    alive = None if found is None else found.is_alive
    if alive is not None:
        return not alive
    newest = max((written for _, written in versions_of(files_below(directory))), default=0)
    return newest < (time.time() - 3600 * hours) * 1e9


def _started(pid: int) -> str:
    """The start time of a process in clock ticks; "" if it has ended or the system does not say."""
    with suppress(OSError, IndexError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    return ""


def _write(directory: AnyPath, content: Mark) -> None:
    text = json.dumps(content._asdict()) + "\n"
    (directory / UNFINISHED).write_text(text)
