"""What every tracker is, whatever its protocol: one of n processes, with a state that can be saved.

A protocol adds `relevant`, `on_send` and `on_receive`, and `save` and `load` for what it keeps.
"""

from typing import Any

from ..core.lanes import Lanes
from . import refusals, saved_state
from .knowledge import Knowledge
from .piggyback import Piggyback, decode

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

    def decode(self, data: bytes) -> Any:
        return decode(data, self._geometry)

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

    def __init__(self, name: str, knowledge: Knowledge, **options: Any) -> None:
        super().__init__(name, knowledge.me, knowledge.n, knowledge.geometry, **options)
        self._knowledge = knowledge

    def on_send(self, to: int) -> Piggyback:
        return self._knowledge.on_send(to)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        self._knowledge.on_receive(sender, piggyback)

    def decode(self, data: bytes) -> Any:
        return decode(data, self._geometry, columns=self._knowledge.primed)

    def save(self) -> State:
        return self._knowledge.to_json()

    def load(self, state: State) -> None:
        self._knowledge.restore(state)
