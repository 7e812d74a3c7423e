"""What listens to an engine's events on their way to the trace."""

from collections.abc import Sequence
from typing import Any

from ..tracking import Stamp
from .batch import Recorder


class Listener:
    """A recorder that passes everything on to another one, if there is one. Parts that want to know of
    arrivals or deliveries extend these two."""

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder

    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        if self._recorder is not None:
            self._recorder.received(seq, time, message, frame)

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None:
        if self._recorder is not None:
            self._recorder.delivered(seq, time, sender, clock)

    def sent(
        self,
        seq: int,
        time: int,
        clock: int,
        to: int,
        messages: Sequence[Any],
        frames: Sequence[bytes],
    ) -> None:
        if self._recorder is not None:
            self._recorder.sent(seq, time, clock, to, messages, frames)

    def sent_unordered(
        self, seq: int, time: int, clock: int, to: int, attributes: dict[str, str] | None = None
    ) -> None:
        if self._recorder is not None:
            self._recorder.sent_unordered(seq, time, clock, to, attributes)

    def relevant(self, seq: int, time: int, tracker: str, stamp: Stamp, label: str) -> None:
        if self._recorder is not None:
            self._recorder.relevant(seq, time, tracker, stamp, label)
