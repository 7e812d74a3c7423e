"""The events of a run as rows of a trace: process 3 is `p3`, its message of clock 7 is `p3:7`.

Where a terrain has names for processes, those are used.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ordering import ProtocolMessage
from ..trace import TraceWriter
from ..trace.tracker_attributes import tracker_attributes
from ..tracking import Timestamp


class RunRecorder:
    """`units` asks for the units of every arriving message, as `p0:3>p2` in attribute `units`;
    `tracker` is the name of the one whose events are recorded."""

    def __init__(
        self,
        writer: TraceWriter,
        *,
        computation: str = "sim",
        units: bool = False,
        names: Sequence[str] | None = None,
        tracker: str = "",
    ) -> None:
        self._append = writer.append
        self._name: Callable[[int], str] = "p{}".format if names is None else names.__getitem__
        self._computation = computation
        self._units = units
        self._tracker = tracker

    def sent(
        self, process: int, seq: int, clock: int, to: Iterable[int], time: int, entries: int, size: int
    ) -> None:
        self._append(
            {
                "computation": self._computation,
                "process": self._name(process),
                "seq": seq,
                "kind": "send",
                "message": f"{self._name(process)}:{clock}",
                "to": [self._name(d) for d in to],
                "time": time,
                "control_entries": entries,
                "control_bytes": size,
            }
        )

    def received(
        self, process: int, seq: int, message: ProtocolMessage, time: int, entries: int, size: int
    ) -> None:
        row: dict[str, Any] = {
            "computation": self._computation,
            "process": self._name(process),
            "seq": seq,
            "kind": "receive",
            "message": f"{self._name(message.sender)}:{message.clock}",
            "time": time,
            "control_entries": entries,
            "control_bytes": size,
        }
        if self._units:
            name = self._name
            tokens = (f"{name(source)}:{clock}>{name(d)}" for source, clock, d in sorted(message.units()))
            row["attributes"] = {"units": " ".join(tokens)}
        self._append(row)

    def passed(
        self, process: int, seq: int, message: ProtocolMessage, time: int, entries: int, size: int
    ) -> None:
        """Record a packet that is not for the application here: a relayed message or an acknowledgement."""
        self._append(
            {
                "computation": self._computation,
                "process": self._name(process),
                "seq": seq,
                "kind": "internal",
                "time": time,
                "label": f"{type(message).__name__} of {self._name(message.sender)}:{message.clock}",
                "control_entries": entries,
                "control_bytes": size,
            }
        )

    def delivered(self, process: int, seq: int, message: tuple[int, int], time: int) -> None:
        self._append(
            {
                "computation": self._computation,
                "process": self._name(process),
                "seq": seq,
                "kind": "deliver",
                "message": f"{self._name(message[0])}:{message[1]}",
                "time": time,
            }
        )

    def relevant(self, process: int, seq: int, stamp: Timestamp, time: int) -> None:
        """An event that a tracker numbered, with what it told; null events are not the application's."""
        told = tracker_attributes(
            self._tracker,
            stamp.seq,
            vector=_named(stamp.counts),
            dependencies=_named(stamp.dependencies),
            predecessors=None if stamp.immediate is None else [(f"p{k}", s) for k, s in stamp.immediate],
            scalar=stamp.scalar,
            null=stamp.null,
        )
        self._append(
            {
                "computation": self._computation,
                "process": f"p{process}",
                "seq": seq,
                "kind": "internal",
                "time": time,
                "relevant": not stamp.null,
                "label": "null event" if stamp.null else "relevant event",
                "attributes": told,
            }
        )


def _named(counts: tuple[int, ...] | None) -> dict[str, int] | None:
    return None if counts is None else {f"p{k}": count for k, count in enumerate(counts) if count}
