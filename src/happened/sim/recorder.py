"""Writes the events of a run as rows of a trace: process 3 is `p3`, its message of clock 7 is `p3:7`.

If the terrain has names for processes, the rows have those names.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ordering import ProtocolMessage
from ..trace import TraceWriter
from ..trace.tracker_attributes import tracker_attributes
from ..tracking import Timestamp


class RunRecorder:
    """`units`: also record the units of every arriving message, as `p0:3>p2` in attribute `units`. `tracker`:
    the name of the tracking protocol whose events are recorded."""

    def __init__(
        self,
        writer: TraceWriter,
        *,
        units: bool = False,
        names: Sequence[str] | None = None,
        tracker: str = "",
    ) -> None:
        self._append = writer.append
        self._name: Callable[[int], str] = "p{}".format if names is None else names.__getitem__
        self._units = units
        self._tracker = tracker

    def _record(self, process: int, seq: int, kind: str, time: int, **columns: Any) -> None:
        row = {"computation": "sim", "process": self._name(process), "seq": seq, "kind": kind, "time": time}
        self._append(row | columns)

    def _key(self, sender: int, clock: int) -> str:
        return f"{self._name(sender)}:{clock}"

    def sent(
        self, process: int, seq: int, clock: int, to: Iterable[int], time: int, entries: int, size: int
    ) -> None:
        control = {"control_entries": entries, "control_bytes": size}
        key, names = self._key(process, clock), [self._name(d) for d in to]
        self._record(process, seq, "send", time, message=key, to=names, **control)

    def received(
        self, process: int, seq: int, message: ProtocolMessage, time: int, entries: int, size: int
    ) -> None:
        columns: dict[str, Any] = {"control_entries": entries, "control_bytes": size}
        if self._units:
            units = (f"{self._key(s, clock)}>{self._name(d)}" for s, clock, d in sorted(message.units()))
            columns["attributes"] = {"units": " ".join(units)}
        key = self._key(message.sender, message.clock)
        self._record(process, seq, "receive", time, message=key, **columns)

    def passed(
        self, process: int, seq: int, message: ProtocolMessage, time: int, entries: int, size: int
    ) -> None:
        """Record a packet that is not delivered here: a relayed message or an acknowledgement."""
        label = f"{type(message).__name__} of {self._key(message.sender, message.clock)}"
        control = {"control_entries": entries, "control_bytes": size}
        self._record(process, seq, "internal", time, label=label, **control)

    def delivered(self, process: int, seq: int, message: tuple[int, int], time: int) -> None:
        self._record(process, seq, "deliver", time, message=self._key(*message))

    def relevant(self, process: int, seq: int, stamp: Timestamp, time: int) -> None:
        """Record an event that a tracker numbered, with its timestamp; a null event is not relevant."""
        told = tracker_attributes(
            self._tracker,
            stamp.seq,
            vector=_named(stamp.counts),
            dependencies=_named(stamp.dependencies),
            predecessors=None if stamp.immediate is None else [(f"p{k}", s) for k, s in stamp.immediate],
            scalar=stamp.scalar,
            null=stamp.null,
        )
        label = "null event" if stamp.null else "relevant event"
        self._record(process, seq, "internal", time, relevant=not stamp.null, label=label, attributes=told)


def _named(counts: tuple[int, ...] | None) -> dict[str, int] | None:
    return None if counts is None else {f"p{k}": count for k, count in enumerate(counts) if count}
