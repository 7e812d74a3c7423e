"""Write files and directories atomically: readers see them whole or not at all. Used for all output.

A file or directory being written has a hidden name beside its final one, unique to its writer, and takes the
final name when it is complete. So a process that dies, or a task that runs twice, leaves nothing incomplete
under a final name; readers ignore hidden names (see location).

An object store cannot rename directories. A file for a store is written locally and uploaded when complete.
A directory in a store is filled in place, and has an object `_unfinished` from before its first file until
after its last; meanwhile readers refuse it. There a repeated task must use the same file names.

A directory whose filling may resume after its process died (`resumable_directory`) always has the same hidden
name, and one writer at a time.

`_unfinished` names the process and host that fill a directory, and where else it keeps intermediate files.
Another host's process cannot be asked whether it lives: its directory counts as abandoned after some hours
without a write.
"""

import errno
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from ..core.errors import CausalityError, TraceFormatError
from .store import AnyPath, StorePath, any_path, files_below, matching, remove_tree, versions_of

WORK = ".work"
"""Name of the subdirectory for intermediate files, unless another place is given."""

P = TypeVar("P", bound=AnyPath)


@contextmanager
def whole_file(path: AnyPath) -> Iterator[Path]:
    """A local path to write to; if the body succeeds, it becomes `path`, replacing any existing file."""
    path = any_path(path)
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory(prefix="happened-") as folder:
            unfinished = Path(folder) / path.name
            yield unfinished
            path.put(unfinished)
        return
    if not path.parent.is_dir():
        reason = f"there is no directory {path.parent}; make it, or name another file"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    unfinished = _unfinished(path)
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_directory(out: P) -> Iterator[P]:
    """A directory to fill; if the body succeeds, it becomes `out`, which must not exist yet.

    In a store, nothing prevents two writers from filling one directory at the same time.
    """
    any_path(out)
    refuse_existing(out)
    if isinstance(out, StorePath):
        mark(out)
        try:
            yield cast(P, out)
        except BaseException:
            remove_marked(out)
            raise
        (out / UNFINISHED).unlink()
        return
    final = out.absolute()  # absolute: executors of tasks have other working directories
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(final)
    unfinished.mkdir()
    try:
        mark(unfinished)
        yield cast(P, unfinished)
        (unfinished / UNFINISHED).unlink()
        os.replace(unfinished, final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def resumable_directory(
    out: AnyPath, work: AnyPath | None = None, *, resume: bool = False
) -> Iterator[tuple[AnyPath, AnyPath]]:
    """A directory to fill, which becomes `out`, and one for intermediate files, which is then removed.

    Both names are the same every time, so that a later process can use the files of one that died.

    work    parent of the directory for intermediate files; if None, the directory to fill
    resume  expect the files of an earlier process, which are refused otherwise. Without `work` and `resume`,
            nothing is left if the body fails
    """
    refuse_unavailable(out, resume=resume)
    final = any_path(out).absolute()
    folder = _resumable(final)
    digest = hashlib.sha256(str(final).encode()).hexdigest()[:8]
    place = None if work is None else any_path(work).absolute() / f"happened-{final.name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(exist_ok=resume)
    except FileExistsError:
        raise CausalityError(f"{final} is being written by another process; name another directory") from None
    mark(folder, place)
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
        mark(place)
    try:
        yield folder, place or folder / WORK
    except BaseException:
        for left in (place, folder):
            if left is not None:
                let_go(left, place) if resume or work is not None else remove_marked(left)
        raise
    remove_tree(place or folder / WORK)
    (folder / UNFINISHED).unlink()
    if isinstance(folder, Path) and isinstance(final, Path):
        os.replace(folder, final)


def _resumable(final: AnyPath) -> AnyPath:
    return final if isinstance(final, StorePath) else final.with_name(f".{final.name}.unfinished")


def refuse_existing(out: AnyPath) -> None:
    if isinstance(out, StorePath):
        if (out / UNFINISHED).exists():
            raise CausalityError(
                f"{out} is being written, or was left unfinished; name another directory, or remove it with "
                f"`happened clean {out}`"
            )
        exists = out.is_file() or any(out.iterdir())  # an empty one may be left after a removal
    else:
        exists = out.exists()
    if exists:
        raise CausalityError(f"{out} exists already; name another directory, or replace it with --force")


def refuse_unavailable(out: AnyPath, *, resume: bool) -> None:
    """CausalityError if `out` is finished, is being written, or was left unfinished and may not be
    resumed."""
    folder = _resumable(any_path(out).absolute())
    left = mark_of(folder)
    if left is None or isinstance(out, Path):
        refuse_existing(out)
    if left is not None and left.is_alive:
        raise CausalityError(
            f"{out} is being written by process {left.pid} of this machine; wait for it, or name another "
            "directory"
        )
    is_left = left is not None or (isinstance(folder, Path) and folder.exists())
    if is_left and not resume:
        raise CausalityError(
            f"{out} was left unfinished; go on with --resume, remove what is left with "
            f"`happened clean {out}`, or name another directory"
        )


def refuse_unfinished(path: AnyPath) -> None:
    """TraceFormatError if the path, or its directory, is still being written or was left unfinished."""
    if isinstance(path, StorePath):
        for directory in (path, path.parent):
            if (directory / UNFINISHED).exists():
                raise TraceFormatError(
                    "is being written, or was left unfinished; wait for it, or remove it and make it again",
                    file=str(directory),
                )


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")


UNFINISHED = "_unfinished"
HOURS = 24.0
"""Hours without a write after which the directory of another host's process counts as abandoned."""


class Mark(NamedTuple):
    """The contents of `_unfinished`.

    pid      0 if no process fills the directory any more
    started  distinguishes a process from a later one with the same pid
    work     the other place with intermediate files
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
    _write(directory, Mark(socket.gethostname(), pid, _started(pid), str(work or "")))


def let_go(directory: AnyPath, work: AnyPath | None = None) -> None:
    """Mark the directory as incomplete and no longer being written."""
    _write(directory, Mark(work=str(work or "")))


def mark_of(directory: AnyPath) -> Mark | None:
    """The mark of a directory; None if it has none."""
    try:
        return Mark(**json.loads((directory / UNFINISHED).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):  # a mark of another version, or cut off
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
        if directory.is_dir():  # removing another one may have removed its files
            remove_marked(directory)
            removed.append(directory)
    return removed


def remove_marked(directory: AnyPath) -> None:
    """Remove a directory, its mark last: if a removal fails, the directory still counts as unfinished."""
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
        hidden = isinstance(path, Path) and path.name.startswith(".") and path.name.endswith(".unfinished")
        if path.is_dir() and (hidden or (path / UNFINISHED).is_file()):
            yield path


def _is_abandoned(directory: AnyPath, found: Mark | None, hours: float) -> bool:
    alive = None if found is None else found.is_alive
    if alive is not None:
        return not alive
    newest = max((written for _, written in versions_of(files_below(directory))), default=0)
    return newest < (time.time() - 3600 * hours) * 1e9


def _started(pid: int) -> str:
    """The start time of a process in clock ticks; "" if it has ended or the system does not tell."""
    with suppress(OSError, IndexError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else fields[18]
    return ""


def _write(directory: AnyPath, content: Mark) -> None:
    text = json.dumps(content._asdict()) + "\n"
    (directory / UNFINISHED).write_text(text)
