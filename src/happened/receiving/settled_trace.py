"""Traces that have left the window, as a trace that grows: what Spark follows while spans come.

In    computations whose traces have all been silent for as long as the window is; nothing is added to them
      any more, so that their rows are final
Out   parts `part-000000001.parquet`, …, each whole or not there, and on disk before the next is written

Promises   a trace is in one part, whatever the receiver dies of: each part names its traces, and since when
           spans came of those that were not in a part yet. What is in the log since then and in no part is
           what the next receiver goes on with.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..trace.atomic import whole_file
from ..trace.parts import parquet_settings

ABOUT = b"happened.settled"
"""Of a part's metadata: {"traces": ids, "since": seconds since 1970}."""


class SettledTrace:
    """The parts in a directory, which is made with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = max((_number(part) for part in self._parts()), default=0)
        self._waiting: list[tuple[tuple[str, ...], pa.Table]] = []
        self.traces = 0  # settled by this receiver
        self.since = self.known()[1]  # what the next receiver takes from the log

    def known(self) -> tuple[list[str], float]:
        """The traces that are in parts, oldest first, and since when spans came of those that are not."""
        traces: list[str] = []
        since = 0.0
        for part in self._parts():
            about: dict[str, Any] = json.loads(pq.read_metadata(part).metadata[ABOUT])
            traces += about["traces"]
            since = about["since"]
        return traces, since

    def add(self, traces: Iterable[str], rows: pa.Table) -> None:
        """What the next part has."""
        self._waiting.append((tuple(traces), rows))

    def write(self, since: float) -> None:
        """Write what was added as a part; OSError if that cannot be, and then it waits for the next time."""
        if not self._waiting:
            return
        traces = [trace for each, _ in self._waiting for trace in each]
        table = pa.concat_tables(rows for _, rows in self._waiting).combine_chunks()
        about = {ABOUT: json.dumps({"traces": traces, "since": since}).encode()}
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._folder / f"part-{self._number + 1:09d}.parquet") as unfinished:
            settings = parquet_settings(table.schema)
            pq.write_table(table.replace_schema_metadata(about), unfinished, **settings)
            _sync(unfinished)
        _sync(self._folder)
        self._number += 1
        self.since = since
        self.traces += len(traces)
        self._waiting.clear()

    def forget(self, before: float) -> None:
        """Remove parts that were written before then, but for the last, which says where to go on."""
        for part in self._parts()[:-1]:
            if part.stat().st_mtime < before:
                part.unlink()

    def _parts(self) -> Sequence[Path]:
        return sorted(self._folder.glob("part-*.parquet"), key=_number)


def _number(part: Path) -> int:
    return int(part.stem.removeprefix("part-"))


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
