"""The events of a run as rows of a trace: process 3 is `p3`, its message of clock 7 is `p3:7`.

Where a terrain has names for processes, those are used.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..ordering import Message
from ..trace import TraceWriter
from ..tracking import Timestamp


class Recorder:
    """`units` asks for the units of every arriving message, as `p0:3>p2` in attribute `units`."""

    def __init__(
        self,
        writer: TraceWriter,
        *,
        computation: str = "sim",
        units: bool = False,
        names: Sequence[str] | None = None,
    ) -> None:
        self._append = writer.append
        self._name: Callable[[int], str] = "p{}".format if names is None else names.__getitem__
        self._computation = computation
        self._units = units

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

    def received(self, process: int, seq: int, message: Message, time: int, entries: int, size: int) -> None:
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

    def passed(self, process: int, seq: int, message: Message, time: int, entries: int, size: int) -> None:
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
        """A relevant event, with what its tracker told of it in attributes, as `p0:3 p1:1`.

        Not in `clock`: that counts all events, and a tracker only relevant ones.
        """
        attributes = {"relevant_seq": str(stamp.seq)}
        for name, counts in (("vector", stamp.counts), ("dependencies", stamp.dependencies)):
            if counts is not None:
                attributes[name] = _names((k, count) for k, count in enumerate(counts) if count)
        if stamp.immediate is not None:
            attributes["predecessors"] = _names(sorted(stamp.immediate))
        if stamp.scalar is not None:
            attributes["scalar"] = str(stamp.scalar)
        self._append(
            {
                "computation": self._computation,
                "process": f"p{process}",
                "seq": seq,
                "kind": "internal",
                "time": time,
                "relevant": True,
                "label": "null event" if stamp.null else "relevant event",
                "attributes": attributes,
            }
        )


def _names(events: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"p{process}:{seq}" for process, seq in events)
