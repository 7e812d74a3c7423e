"""What every tracker is, whatever its protocol: one of n processes, with a state that can be saved.

A protocol adds `relevant`, `on_send` and `on_receive`, and `save` and `load` for what it keeps.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.errors import LocalProtocolError
from ..core.lanes import Lanes, clock_lanes
from . import refusals, saved_state
from .knowledge import Knowledge
from .piggyback import Piggyback, decode
from .remembered import PiggybackEntry, View
from .tracker import Piggybacked

State = dict[str, Any]
"""Values that JSON can write, by name."""


class TrackingProcess:
    """`name` is what snapshots call the protocol, `options` what they must have in common with it."""

    def __init__(self, name: str, me: int, n: int, geometry: Lanes, **options: Any) -> None:
        refusals.member(me, n)
        self.me = me
        self.n = n
        self._name = name
        self._geometry = geometry
        self._options = options

    def on_send(self, to: int) -> Piggybacked:
        raise NotImplementedError

    def on_multicast(self, to: Sequence[int]) -> Sequence[Piggybacked]:
        for each in to:  # before the first of them changes anything
            refusals.peer(each, self.me, self.n)
        return [self.on_send(each) for each in to]

    def decode(self, data: bytes, n: int | None = None) -> Any:
        return decode(data, self._geometry, n=n)

    def join(self, process: int) -> None:
        """Protocols that keep more than packed clocks make room in that too."""
        if process != self.n:
            raise LocalProtocolError(f"the next process to join has index {self.n}, not {process}")
        self.n += 1
        self._geometry = clock_lanes(self.n)  # whose lanes are the same, whatever n is

    def view(self) -> View | None:
        return None

    def carried(self, piggyback: Any) -> list[PiggybackEntry] | None:
        return None

    def mark(self) -> dict[str, Any]:
        # Values are numbers, which never change, or have a copy of their own: lists of numbers, Knowledge.
        return {name: value.copy() if hasattr(value, "copy") else value for name, value in vars(self).items()}

    def rewind(self, mark: dict[str, Any]) -> None:
        vars(self).update(mark)

    def save(self) -> State:
        raise NotImplementedError

    def load(self, state: State) -> None:
        """Take over what `save` gave, or raise ValueError: everything is read before anything changes."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        return saved_state.dump(self._name, self.me, self.n, **self._options, **self.save())

    def restore(self, data: bytes) -> None:
        with saved_state.loading(data, self._name, self.me, self.n, **self._options) as state:
            self.load(state)


class KnowingProcess(TrackingProcess):
    """One that sends what its receiver may lack, as `Knowledge` tells."""

    title: ClassVar[str] = "VC"

    def __init__(self, name: str, knowledge: Knowledge, **options: Any) -> None:
        super().__init__(name, knowledge.me, knowledge.n, knowledge.geometry, **options)
        self._knowledge = knowledge

    def on_send(self, to: int) -> Piggyback:
        return self._knowledge.on_send(to)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._knowledge.on_receive(sender, piggyback)

    def decode(self, data: bytes, n: int | None = None) -> Any:
        return decode(data, self._geometry, columns=self._knowledge.primed, n=n)

    def join(self, process: int) -> None:
        super().join(process)
        self._knowledge.join()
        self._geometry = self._knowledge.geometry

    def read(self, values: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """What the values of a vector or piggyback stand for: counts and, where it has them, bits IP."""
        return tuple(self._geometry.unpack(values)), None

    def view(self) -> View:
        knowledge = self._knowledge
        return View(self.title, *self.read(knowledge.vector), knowledge.known_to(), knowledge.sent_to())

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, *self.read(piggyback.values))

    def save(self) -> State:
        return self._knowledge.to_json()

    def load(self, state: State) -> None:
        self._knowledge.restore(state)


def entries_of(
    piggyback: Piggyback, counts: tuple[int, ...], immediate: tuple[int, ...] | None
) -> list[PiggybackEntry]:
    """The entries of a piggyback whose values stand for these counts and bits."""
    columns = None if piggyback.columns is None else piggyback.geometry.unpack(piggyback.columns)
    return [
        PiggybackEntry(
            k,
            counts[k],
            None if immediate is None else immediate[k],
            None if columns is None else tuple(1 - (columns[k] >> j & 1) for j in range(piggyback.n)),
        )
        for k, _ in piggyback.items()
    ]
