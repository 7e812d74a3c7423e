"""Files and directories that are there whole or not at all: the one way traces and answers are written.

What is being written has a hidden name beside its final one, different for every writer, and takes the final
name when it is whole. So a process that dies, or a task that runs twice, leaves nothing half; readers ignore
hidden names (see location).
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import CausalityError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to; the file becomes `path`, replacing what is there, only if all goes well."""
    unfinished = _unfinished(path)
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def whole_directory(out: Path) -> Iterator[Path]:
    """A directory to fill; it becomes `out`, which must not exist, only if all goes well."""
    out = out.absolute()  # tasks write there too, and executors have working directories of their own
    refuse_existing(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _unfinished(out)
    unfinished.mkdir()
    try:
        yield unfinished
        os.replace(unfinished, out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def refuse_existing(out: Path) -> None:
    if out.exists():
        raise CausalityError(f"{out} exists already; name another directory, or remove it first")


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.unfinished")
