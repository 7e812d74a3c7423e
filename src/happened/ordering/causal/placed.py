"""A process at a place in a communication graph (see core/places); the place can change.

Without a topology, all processes are neighbours of each other, including those that join later.
"""

from collections.abc import Iterable

from ...core.destinations import unpack
from ...core.errors import LocalProtocolError
from ...core.places import Place, alone, check, reach, restored
from ..facts import Option
from ..machine import Effect
from ..process import Process, State

PLACE = Option("place", "where the process stands in the communication graph; next to everybody by default")


class PlacedProcess(Process):
    _place: Place | None  # None: all are neighbours, and nothing has read the place yet

    def __init__(self, me: int, n: int, *, place: Place | None = None) -> None:
        super().__init__(me, n)
        if place is not None:
            check(place, me, n)
        self.stand(place)

    @property
    def place(self) -> Place:
        if self._place is None:
            self._place = alone(self.me, self.n)  # built on first use, since its size grows with n
        return self._place

    def move(self, place: Place) -> None:
        """Take this place of the communication graph from now on."""
        check(place, self.me, self.n)
        self.stand(place)

    def resume_at(self, place: Place) -> None:
        """Take a place of any other graph. Every message must have been delivered at all its destinations, so
        that nothing depends on the route it took."""
        self.move(place)

    def do_without(self, process: int) -> list[Effect]:
        return [*self.leave(process), *self.close(process)]

    def stand(self, place: Place | None) -> None:
        """Take a checked place, or None if all are neighbours. If this raises, nothing has changed."""
        self._has_topology = place is not None
        self._place = place
        self._reached = 1 << self.me | reach(place) if place is not None else (1 << self.n) - 1

    def routed(self, to: Iterable[int], payload: bytes) -> int:
        """The destinations of a multicast as a bit set; raises if a destination has no route."""
        dests = self.destinations(to, payload)
        if lost := dests & ~self._reached:
            names = ", ".join(map(str, unpack(lost)))
            raise LocalProtocolError(f"process {self.me} has no route to {names}: move() it to a new place")
        return dests

    def join(self, process: int) -> list[Effect]:
        """Without a topology, the new process is our neighbour; otherwise it has no route until we `move`."""
        effects = super().join(process)
        if not self._has_topology:
            self.stand(None)
        return effects

    def save(self) -> State:
        return super().save() | {"place": self._place if self._has_topology else None}

    def load(self, state: State) -> None:
        super().load(state)
        self.stand(None if state["place"] is None else restored(state["place"]))
