"""Talking to a person: progress on stderr, results on stdout."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

SECONDS_BEFORE_PROGRESS = 1.0


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "it") -> Iterator["tqdm[Any]"]:
    """A bar that appears after a second of work, and never where stderr is not a terminal."""
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


def note(text: str) -> None:
    """For the person, not for the pipe."""
    print(text, file=sys.stderr)
