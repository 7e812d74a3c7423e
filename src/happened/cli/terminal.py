"""Output for a person: progress on stderr, results on stdout."""

import argparse
import io
import json
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where they are used: most commands need at most one of them
    import asyncio

    from tqdm import tqdm

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


@contextmanager
def saying() -> Iterator[Callable[[str], None]]:
    """Progress in words: each over the one before, on one line, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    try:
        yield lambda what: print(f"\r\x1b[Khappened: {what} …", end="", file=sys.stderr, flush=True)
    finally:
        note("")


def plain(value: Any, known: Callable[[Any], Any] = lambda value: None) -> Any:
    """A value as JSON has it: objects for named tuples and dataclasses; for others, what `known` returns."""
    if (found := known(value)) is not None:
        return found
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), known) for field in fields(value)}
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: plain(member, known) for key, member in value.items()}
    return [plain(member, known) for member in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), indent=2, sort_keys=True))


def print_answer(arguments: argparse.Namespace, document: Callable[[], Any], lines: Iterable[str]) -> None:
    """Print the document with --json, and otherwise the lines."""
    if arguments.json:
        print_json(document())
    else:
        print("\n".join(lines))


def table(titles: Sequence[str], rows: Iterable[tuple[str, str | Sequence[str]]]) -> Iterator[str]:
    """Names to the left and their cells in columns; or a name and, instead of cells, one text."""
    rows = [("", titles), *rows]
    listed = [cells for _, cells in rows if not isinstance(cells, str)]
    widths = [max(map(len, column)) for column in zip(*listed, strict=True)]
    wide = max(len(name) for name, _ in rows)
    for name, cells in rows:
        if not isinstance(cells, str):
            cells = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))[1:]
        yield f"{name:<{wide}} {cells}"


def rows_of(found: Iterable[Any], cells: Callable[[Any], list[str]]) -> list[tuple[str, str | list[str]]]:
    """Rows of a table for findings, which begin with a name: their cells, or why they have none."""
    refused = "not applicable: {}".format
    return [(f[0], cells(f) if f.not_applicable is None else refused(f.not_applicable)) for f in found]


def figure(value: float | None, error: float | None = None) -> str:
    """A number with three digits or more, and half the interval that it lies in."""
    if value is None:
        return "-"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}" + ("" if error is None else f" ±{error:,.{digits}f}")


def note(text: str) -> None:
    """Print a line on stderr, for the person and not for the pipe."""
    print(text, file=sys.stderr)


async def until_one_ends(*jobs: Coroutine[Any, Any, Any]) -> "set[asyncio.Task[Any]]":
    """Run these together until the first of them ends, then cancel the others; those that had ended."""
    import asyncio

    tasks = [asyncio.create_task(job) for job in jobs]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return done


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
