"""What processes of `agreed` and `causal-total` tell one another, in three phases and after expulsions."""

from typing import NamedTuple

from ..machine import MessageKey
from ..messages import Application, Control


class AgreedMessage(Application):
    """Phase 1, REVISE_TS: the message with its sender's timestamp."""

    number: int  # 1, 2, … among the messages of this sender to this destination
    timestamp: int
    payload: bytes

    def size(self) -> tuple[int, int]:
        return 1, 0

    def model_bytes(self) -> int:
        return 4 + 4


class AgreedProposal(Control):
    """Phase 2, PROPOSED_TS: the timestamp that process `by` proposes for M(sender, clock)."""

    clock: int
    by: int
    timestamp: int

    def __str__(self) -> str:
        return f"PROPOSED_TS({self.by},{self.sender},{self.clock},{self.timestamp})"

    @property
    def via(self) -> int:
        return self.by

    def model_bytes(self) -> int:
        return 4 + 2


class AgreedFinal(Control):
    """Phase 3, FINAL_TS: the timestamp of M(sender, clock)."""

    clock: int
    timestamp: int

    def __str__(self) -> str:
        return f"FINAL_TS({self.sender},{self.clock},{self.timestamp})"

    @property
    def via(self) -> int:
        return self.sender

    def model_bytes(self) -> int:
        return 4


class AgreedSeen(Control):
    """Process `sender` has delivered all that it ever will before this timestamp."""

    timestamp: int

    def __str__(self) -> str:
        return f"word of {self.sender} that it delivers nothing more before timestamp {self.timestamp}"

    @property
    def via(self) -> int:
        return self.sender

    def model_bytes(self) -> int:
        return 4


class Known(NamedTuple):
    """What a process knows of the timestamp of M(sender, clock): the final one, or what it has proposed."""

    sender: int
    clock: int
    dests: int  # bit set
    timestamp: int
    is_final: bool

    @property
    def name(self) -> MessageKey:
        return self.sender, self.clock


class AgreedReport(Control):
    """What process `sender` knows of the messages of those who were expelled."""

    ended: int  # bit set: those of whom it gets nothing more
    known: tuple[Known, ...]

    @property
    def via(self) -> int:
        return self.sender

    def size(self) -> tuple[int, int]:
        return len(self.known), 0

    def model_bytes(self) -> int:
        return 4 + 10 * len(self.known)


class AgreedFinals(Control):
    """Phase 3 of messages of others: what process `sender` has decided in the place of one who was expelled,
    or knows and passes on before it leaves."""

    finals: tuple[tuple[int, int, int], ...]  # (sender, clock, timestamp) of messages of others

    @property
    def via(self) -> int:
        return self.sender

    def size(self) -> tuple[int, int]:
        return len(self.finals), 0

    def model_bytes(self) -> int:
        return 10 * len(self.finals)
