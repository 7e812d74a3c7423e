"""Output for a person: progress on stderr, results on stdout."""

import argparse
import io
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import LocalProtocolError

if TYPE_CHECKING:  # imported where they are used: most commands need at most one of them
    import asyncio

    from tqdm import tqdm

    from ..trace.store import AnyPath

SECONDS_BEFORE_PROGRESS = 1.0
LINES_AHEAD = 100


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "it") -> Iterator["tqdm[Any]"]:
    """A progress bar that appears after a second, and only if stderr is a terminal."""
    from tqdm import tqdm

    with tqdm(
        desc=what,
        total=total,
        unit=f" {unit}",
        delay=SECONDS_BEFORE_PROGRESS,
        disable=not sys.stderr.isatty(),
        leave=False,
        file=sys.stderr,
    ) as bar:
        yield bar


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True))


def print_answer(arguments: argparse.Namespace, document: Callable[[], Any], lines: Iterable[str]) -> None:
    """Print the document with --json, and otherwise the lines."""
    if arguments.json:
        print_json(document())
    else:
        print("\n".join(lines))


def note(text: str) -> None:
    """Print a line on stderr, for the person and not for the pipe."""
    print(text, file=sys.stderr)


def local_path(text: str) -> Path:
    """The type of an argument that is a path of this machine: refuses URLs, so that no directory called `s3:`
    is created."""
    if "://" not in text:
        return Path(text)
    from ..trace.store import any_path  # imports pyarrow, which most commands do not need

    path = any_path(text)
    if not isinstance(path, Path):
        raise LocalProtocolError(
            f"{path}: this command reads and writes local paths only; give a path of this machine"
        )
    return path


def stored_path(text: str) -> "AnyPath":
    """The type of an argument that is a path of this machine or a URL of a store."""
    from ..trace.store import any_path

    return any_path(text)


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a positive whole number is needed, not {text!r}")
    return int(text)


def stdin_lines() -> "asyncio.Queue[str | None]":
    """The lines of stdin, and None at its end; a thread reads them, no faster than they are consumed.

    It needs a thread because an event loop cannot wait for a file. Bytes that are not text become U+FFFD.
    """
    import asyncio

    lines: asyncio.Queue[str | None] = asyncio.Queue(LINES_AHEAD)
    loop = asyncio.get_running_loop()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")

    def read() -> None:
        for line in chain(sys.stdin or (), [None]):  # there is no stdin if it was closed
            try:
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended

    threading.Thread(target=read, daemon=True, name="stdin").start()
    return lines
