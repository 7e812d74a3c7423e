"""What an engine tells: the inputs that become durable together, the deliveries among them, and the trace."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ..tracking import Stamp
from .parked import Parking


class Delivery(NamedTuple):
    """One hand-over to the application: its own number, then the message's name and payload."""

    number: int
    sender: int
    clock: int
    payload: bytes
    history: str = ""  # that comes with it, where the application manages histories


class Batch(NamedTuple):
    """Inputs that become durable together, and what others and the application may see once they are."""

    entries: bytes
    time: int  # ns, of the last input
    released_through: dict[int, int]  # per link: our frames up to this number may leave
    received_through: dict[int, int]  # per link: its frames up to this number may be acknowledged
    deliveries: list[Delivery]
    shared: Sequence[tuple[bytes, dict[int, int]]] = ()
    """Frames sent, in order, each with its link number on every link that has it; only if the engine
    `shares`. A replay has none: what it makes again is left to the links."""
    parking: Parking | None = None


class Recorder(Protocol):
    """Takes the events of the trace; see trace_recorder.py."""

    def sent(
        self,
        seq: int,
        time: int,
        clock: int,
        to: int,
        messages: Sequence[Any],
        frames: Sequence[bytes],
    ) -> None:
        """A multicast to the set `to`, as messages and their frames."""

    def sent_unordered(
        self, seq: int, time: int, clock: int, to: int, attributes: dict[str, str] | None = None
    ) -> None: ...
    def received(self, seq: int, time: int, message: Any, frame: bytes) -> None:
        """`frame` is empty if the message came without one, as a message to ourselves does."""

    def delivered(self, seq: int, time: int, sender: int, clock: int) -> None: ...
    def relevant(self, seq: int, time: int, tracker: str, stamp: Stamp, label: str) -> None: ...
