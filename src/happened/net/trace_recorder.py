"""Writes a node's events as rows of a trace, in Parquet parts that survive the node.

Promises   the rows of a process are the events of the inputs in its journal, numbered without gaps, even
           after kill -9. Rows are written in parts, each whole or absent. Rows that were lost in memory are
           made again when the journal is replayed: it is not shortened before their part is written.
Layout     DIR/NAME@FIRST-NNNNNN.parquet, FIRST being the first seq of a run of the node. All nodes can share
           one directory, which `happened check` and `happened analyze` take as it is.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.destinations import unpack
from ..trace import TraceWriter
from ..trace.tracker_attributes import tracker_attributes
from ..tracking import Stamp
from ..wire import control_length, control_size
from .batch import Recorder
from .errors import NodeError
from .member_changes import MemberChanges

PART_ROWS = 16384


class TraceRecorder(Recorder):
    """Takes the events of the process `process`, which is one of `members`."""

    def __init__(self, directory: Path, process: str, members: MemberChanges, computation: str) -> None:
        super().__init__()
        self._process = process
        self._members = members
        file = _file_name(process)
        parts = sorted(directory.glob(f"{file}@*.parquet")) if directory.is_dir() else []
        self.directory = directory
        try:
            self.written = sum(pq.ParquetFile(part).metadata.num_rows for part in parts)
            prefix = f"{file}@{self.written + 1:012d}"
            self._writer = TraceWriter(directory, batch_rows=PART_ROWS, prefix=prefix)
        except (OSError, pa.ArrowException) as error:
            raise NodeError(f"{directory}: cannot hold the trace of {process!r}: {error}") from error
        self._has_failed = False  # a part was lost: later parts would leave a gap
        self._row: dict[str, Any] = {"computation": computation, "process": process}
        self._staged: list[dict[str, Any]] = []

    def continues(self, events: int) -> None:
        """Refuse a directory that lacks events which the journal has already forgotten."""
        if self.written < events:
            raise NodeError(
                f"{self.directory} has {self.written} events of {self._process!r} and its journal begins "
                f"after event {events}: give the directory that has the others, or start without a trace"
            )

    def sent(
        self, seq: int, time: int, clock: int, to: int, messages: Sequence[Any], frames: Sequence[bytes]
    ) -> None:
        if seq > self.written:
            entries = size = 0
            for message, frame in zip(messages, frames, strict=True):
                entries += message.size()[0]
                size += control_length(frame)
            cost = {"control_entries": entries, "control_bytes": size}
            self._stage_send("send", seq, time, clock, to, cost)

    def sent_unordered(
        self, seq: int, time: int, clock: int, to: int, attributes: dict[str, str] | None = None
    ) -> None:
        if seq > self.written:
            self._stage_send("unordered", seq, time, clock, to, {"attributes": attributes})

    def _stage_send(self, kind: str, seq: int, time: int, clock: int, to: int, more: dict[str, Any]) -> None:
        name, names = self._members.roster.name, []
        for each in unpack(to):
            names.append(name(each))
        message = f"{self._process}:{clock}"
        row = {**self._row, "seq": seq, "kind": kind, "message": message, "to": names, "time": time}
        self._staged.append(row | more)

    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        if seq <= self.written:
            return
        name = f"{self._members.roster.name(message.sender)}:{message.clock}"
        entries = message.size()[0]
        size = control_length(frame) if frame else control_size(message)
        row = {**self._row, "seq": seq, "time": time, "control_entries": entries, "control_bytes": size}
        if message.dests >> self._members.me & 1:
            row |= {"kind": "receive", "message": name}
        else:  # not a message for the application here: a relayed one, an acknowledgement
            row |= {"kind": "internal", "label": f"{type(message).__name__} of {name}"}
        self._staged.append(row)

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None:
        if seq > self.written:
            row = {"seq": seq, "kind": "deliver", "time": time}
            self._staged.append(
                {**self._row, **row, "message": f"{self._members.roster.name(sender)}:{clock}"}
            )

    def relevant(self, seq: int, time: int, tracker: str, stamp: Stamp, label: str) -> None:
        """Record an event that the tracker numbered; null events are not the application's."""
        if seq > self.written:
            tells = ("vector", "dependencies", "predecessors", "scalar", "null")
            told = tracker_attributes(tracker, stamp.seq, **{each: getattr(stamp, each) for each in tells})
            row = {"seq": seq, "kind": "internal", "time": time, "relevant": not stamp.null}
            self._staged.append({**self._row, **row, "label": label, "attributes": told})

    def cut(self) -> list[dict[str, Any]]:
        staged, self._staged = self._staged, []
        return staged

    def keep(self, rows: Iterable[dict[str, Any]]) -> None:
        """Keep rows whose inputs are durable; write them as soon as they fill a part."""
        try:
            for row in rows:
                self._writer.append(row)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        try:
            if not self._has_failed:
                self._writer.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> NodeError:
        self._has_failed = True
        return NodeError(
            f"{self.directory}: the trace cannot be written: {error}; make room and start the node again, "
            "what is missing is made again from the journal"
        )


def _file_name(process: str) -> str:
    """The beginning of a file's name for a process: the process's name may have a slash or an asterisk, and
    readers of a trace skip files that begin with . or _."""
    name = quote(process, safe=" ")
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in "._" else name
