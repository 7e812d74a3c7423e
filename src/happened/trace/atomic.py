"""Files and directories that are there whole or not at all: the one way traces and answers are written.

What is being written has a hidden name beside its final one, different for every writer, and takes the final
name when it is whole. So a process that dies, or a task that runs twice, leaves nothing half; readers ignore
hidden names (see location).

A store has no directories to rename. A file for it is written on this machine and uploaded when it is whole.
A directory is filled where it is to be, and has an object `_unfinished` from before its first file until
after its last: readers refuse it as long. There a task that runs twice must give its files the same names.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from ..core.errors import CausalityError, TraceFormatError
from .store import AnyPath, StorePath, any_path, remove_tree

UNFINISHED = "_unfinished"
"""What a directory in a store holds while it is being filled."""

P = TypeVar("P", bound=AnyPath)


@contextmanager
def whole_file(path: AnyPath) -> Iterator[Path]:
    """A local path to write to; the file becomes `path`, replacing what is there, only if all goes well."""
    path = any_path(path)
    if isinstance(path, StorePath):
        with tempfile.TemporaryDirectory(prefix="happened-") as folder:
            unfinished = Path(folder) / path.name
            yield unfinished
            path.put(unfinished)
        return
    unfinished = _unfinished(path)
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_directory(out: P) -> Iterator[P]:
    """A directory to fill; it becomes `out`, which must not exist, only if all goes well.

    Two that fill one directory of a store at the same time are not kept apart.
    """
    any_path(out)
    refuse_existing(out)
    if isinstance(out, StorePath):
        with _filled_in_place(out):
            yield cast(P, out)
        return
    final = out.absolute()  # tasks write there too, and executors have working directories of their own
    final.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(final)
    unfinished.mkdir()
    try:
        yield cast(P, unfinished)
        os.replace(unfinished, final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def refuse_existing(out: AnyPath) -> None:
    if isinstance(out, StorePath):
        if (out / UNFINISHED).exists():
            raise CausalityError(
                f"{out} is being written, or was left unfinished; name another directory, or remove it first"
            )
        exists = out.is_file() or any(out.iterdir())  # an empty one may be left of what was removed
    else:
        exists = out.exists()
    if exists:
        raise CausalityError(f"{out} exists already; name another directory, or remove it first")


def refuse_unfinished(path: AnyPath) -> None:
    """TraceFormatError if it, or the directory that it lies in, is still being written or was left so."""
    if isinstance(path, StorePath):
        for directory in (path, path.parent):
            if (directory / UNFINISHED).exists():
                raise TraceFormatError(
                    "is being written, or was left unfinished; wait for it, or remove it and make it again",
                    file=str(directory),
                )


@contextmanager
def _filled_in_place(out: StorePath) -> Iterator[None]:
    mark = out / UNFINISHED
    mark.write_text(f"{out.name} is whole when this is gone\n")
    try:
        yield
    except BaseException:
        for left in out.iterdir():  # the mark last: what cannot be removed stays unfinished
            if left != mark:
                remove_tree(left) if left.is_dir() else left.unlink(missing_ok=True)
        remove_tree(out)
        raise
    mark.unlink()


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")
