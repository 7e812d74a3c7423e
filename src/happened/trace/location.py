"""Where a trace is: one rule for every reader, in one process or on Spark.

A path, or a URL of a store, is a trace if it is

    one file of JSON lines    .jsonl, .ndjson or .json, compressed if .gz follows
    one Parquet file          .parquet
    a directory of parts      .parquet files at its top, or in directories column=value as Spark partitions a
                              table; names that begin with "." or "_" are unfinished or hidden, and no parts
    a run                     a directory that contains such a directory `trace`, as written by
                              `happened simulate`, `happened import` and `happened node`

A directory with both parts of its own and a `trace` inside is refused as ambiguous.
"""

import json
import os
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import unquote

from ..core.errors import TraceFormatError
from .atomic import refuse_unfinished
from .store import AnyPath, StorePath, any_path

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
ACCEPTED = "a directory of .parquet parts, one .parquet file, or JSON lines (.jsonl, .ndjson, .json, or .gz)"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class Location:
    """A trace's place; `parts` are its Parquet files sorted by name, none if `root` is JSON lines."""

    root: AnyPath
    parts: tuple[AnyPath, ...]

    @property
    def is_json(self) -> bool:
        return not self.parts

    @property
    def is_complete(self) -> bool:
        return was_complete(self.root)

    @property
    def import_losses(self) -> dict[str, int]:
        """Losses and decisions of `happened import`, by names that begin with `import_`."""
        summary = _beside(self.root, "import.json")
        told = {name: summary[name] for name in ("quarantined", "quarantined_imported") if name in summary}
        facts = summary.get("facts")
        told |= facts if isinstance(facts, dict) else {}
        return {f"import_{name}": count for name, count in told.items() if isinstance(count, int) and count}

    def partition(self, part: AnyPath) -> dict[str, str | None]:
        """The columns whose values are in the directory names of a part (column=value) instead of its
        file."""
        folders = inside(self.root, part).parts[:-1] if part != self.root else ()
        pairs = (folder.partition("=") for folder in folders)
        return {name: None if value == NULL_PARTITION else unquote(value) for name, _, value in pairs}


def locate(path: str | os.PathLike[str] | StorePath) -> Location:
    """Find the trace at a path. TraceFormatError if there is none, or one that is not finished."""
    path = any_path(path)
    refuse_unfinished(path)
    if path.is_file():
        if is_json(path):
            return Location(path, ())
        if path.suffix != ".parquet":
            raise TraceFormatError(
                f"not a kind of trace I know; give {ACCEPTED}. If it is a log of another system, make a "
                f"trace of it first: `happened import {path} --out DIR`",
                file=str(path),
            )
        return Location(path, (path,))
    if not path.is_dir():
        raise TraceFormatError(
            f"no such file or directory; give {ACCEPTED}, or make one with "
            "`happened simulate --processes 5 --messages 1000 --out DIR`",
            file=str(path),
        )
    found = [Location(root, parts) for root in (path, path / "trace") if (parts := _parts(root))]
    if len(found) > 1:
        raise TraceFormatError(
            f"holds .parquet parts and a trace/ with others; say which: {path / 'trace'}, or move one away",
            file=str(path),
        )
    if not found and (path / "commits").is_dir() and (path / "stamps").is_dir():
        raise TraceFormatError(
            "has the tables of `happened stream`, which tell of a trace and are none: give the trace that it "
            "follows, as in `happened view TRACE --serve`",
            file=str(path),
        )
    if not found:
        raise TraceFormatError(
            f"no trace here: it holds no .parquet part, nor does a trace/ in it; give {ACCEPTED}; "
            "`happened import` makes one from other systems' logs",
            file=str(path),
        )
    return found[0]


def was_complete(root: AnyPath) -> bool:
    """Whether the run that wrote the trace declared that it contains everything that happened.

    `happened simulate` declares it in summary.json beside trace/; for any other trace it is unknown.
    """
    return _beside(root, "summary.json").get("complete") is True


def _beside(root: AnyPath, name: str) -> dict[str, Any]:
    """The JSON object in a file beside a run's trace/; an empty one if there is none."""
    try:
        found = json.loads((root.parent / name).read_bytes()) if root.name == "trace" else None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_json(path: AnyPath) -> bool:
    """Whether the name has an ending of JSON lines."""
    name = PurePath(path.name)
    return (name.with_suffix("") if name.suffix == ".gz" else name).suffix in JSON_SUFFIXES


def inside(root: AnyPath, path: AnyPath) -> PurePath:
    """The path components from a directory to a file below it."""
    return path.relative_to(cast(Any, root))


def _parts(root: AnyPath) -> tuple[AnyPath, ...]:
    found: list[AnyPath] = [part for part in root.rglob("*.parquet") if is_part(inside(root, part))]
    return tuple(sorted(found, key=lambda part: inside(root, part).parts))


def is_part(inside: PurePath) -> bool:
    """Whether a file below a trace may be a part: no name on its path is hidden, and all its directories are
    column=value."""
    hidden = any(name.startswith((".", "_")) for name in inside.parts)
    return not hidden and all("=" in folder for folder in inside.parts[:-1])
