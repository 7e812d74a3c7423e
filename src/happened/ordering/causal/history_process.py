"""A process that keeps an extended causal history and stands at a place of a communication graph: what
`histories` and `topological` share."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

from ...core.destinations import unpack
from ...core.places import Place
from ...core.telling import RuleUse
from .. import notation
from ..delay_queue import Want
from ..facts import Option
from ..holding import HoldingProcess
from ..machine import Effect, MessageKey
from ..process import State
from .extended_history import ExtendedHistory, HistoryEntry, size_of
from .observed_history import ObservedHistory
from .placed import PLACE, PlacedProcess

OPTIONS = (
    PLACE,
    Option("timestamp_redundancy", "whether identifiers that a recipient was told of are left out (R7)"),
    Option("extended", "whether the carbon copies travel along (R6.1)"),
)

M = TypeVar("M", bound=Any)


class HistoryProcess(PlacedProcess, HoldingProcess[M]):
    """The messages that it holds have `entries`: their timestamp."""

    def __init__(
        self,
        me: int,
        n: int,
        *,
        place: Place | None = None,
        timestamp_redundancy: bool = True,
        extended: bool = False,
    ) -> None:
        super().__init__(me, n, place=place)
        self._history = ExtendedHistory(me)
        self._timestamp_redundancy = timestamp_redundancy
        self._extended = extended

    def timestamp(self, to: int) -> tuple[HistoryEntry, ...]:
        """What a message from here to this set of neighbours says of those before it."""
        separators = self.place.separators if self._has_topology else ()
        return self._history.stamp(
            to, separators, redundancy=self._timestamp_redundancy, extended=self._extended
        )

    def delivered(self, sender: int) -> int:
        return self._history.last(sender)

    def lacks(self, message: M) -> Want | None:
        return self._history.lacks(message.entries)

    def missing(self, message: M) -> Iterable[MessageKey]:
        return self._history.missing(message.entries)

    def learn(self, message: M) -> None:
        self._history.deliver(message.sender, message.clock, message.dests, message.entries)

    def history(self) -> tuple[HistoryEntry, ...]:
        """The messages that precede the next one to be sent, with their carbon copies."""
        return tuple(self._history)

    def log_size(self) -> tuple[int, int]:
        return size_of(self.history())

    def expire(self) -> None:
        """To be called when a time Δ in which every message is delivered has passed since the last call."""
        self._history.expire()

    def skip(self, process: int, clock: int) -> Iterable[int]:
        self._history.skip(process, clock)
        return (process,)

    def hold(self, message: M, want: Want) -> None:
        super().hold(message, want)
        if isinstance(self._history, ObservedHistory):
            self._history.held(f"{message.sender},{message.clock}", message.entries)

    def observe(self) -> None:
        observed = ObservedHistory(self.me)
        observed.restore(self._history.state())
        self._history = observed

    def observed(self) -> list[RuleUse]:
        return self._history.observed() if isinstance(self._history, ObservedHistory) else []

    def knowledge(self) -> list[tuple[str, str]]:
        history = self.history()
        delivered = " ".join(f"{s},{t}" for s, t in self._history.delivered())
        return [
            ("H", notation.entries((e.sender, e.clock, frozenset(unpack(e.dests))) for e in history)),
            ("C", notation.entries((e.sender, e.clock, frozenset(unpack(e.copied))) for e in history)),
            ("D", delivered or "nothing"),
        ]

    @abstractmethod
    def cleared(self, message: M) -> M:
        """A message without what is said in it about those whom we have forgotten."""

    def forget(self, process: int) -> None:
        super().forget(process)
        self._history.forget(process)
        self._parking.replace(self.cleared)

    def join(self, process: int) -> list[Effect]:
        is_known = process < self.n
        effects = super().join(process)
        if is_known:
            self._history.meet(process)
        return effects

    def leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        self._history.leave(process)
        return effects

    def save(self) -> State:
        return super().save() | {"history": self._history.state()}

    def load(self, state: State) -> None:
        history = type(self._history)(self.me)
        history.restore(state["history"])
        super().load(state)
        self._history = history
