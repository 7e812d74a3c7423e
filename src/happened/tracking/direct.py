"""Direct dependencies, one entry per message: Fowler & Zwaenepoel (ICDCS 1990).

Assumes    what tracker.py says, and that a process that has learnt of an event produces one of its own before
           it sends: asking it to send earlier is a LocalProtocolError. (p2 with b = 1 produces a null
           event instead.) Calling every receipt relevant is enough.
Promises   dependency vectors from which `reconstruction` gets the exact vectors of all events.
Leaves out vectors on the fly.
Invariant  entry k is the last event of k that a message of k itself told us of; `_untold` is whether one
           of them arrived after our own last event, so that no event of ours tells of it yet.
"""

from typing import Any

from ..core.errors import LocalProtocolError
from ..core.lanes import clock_lanes
from . import refusals, saved_state
from .piggyback import Piggyback
from .tracker import Protocols, Timestamp, TrackerFacts
from .tracking_process import State, TrackingProcess

FACTS = TrackerFacts(
    "direct",
    frozenset({"dependencies"}),
    fifo_links=False,
    bound="1",
    description="the sender's own last event; needs an event between hearing news and sending",
    paper="Fowler & Zwaenepoel, Causal distributed breakpoints, ICDCS 10, 1990",
    number=4,
)


class Direct(TrackingProcess):
    def __init__(self, me: int, n: int) -> None:
        super().__init__(FACTS.name, me, n, clock_lanes(n))
        self._vector = [0] * n
        self._untold = False

    def relevant(self) -> Timestamp:
        seq = self._vector[self.me] + 1
        refusals.countable(seq)
        self._vector[self.me] = seq
        self._untold = False
        return Timestamp(self.me, seq, dependencies=tuple(self._vector))

    def on_send(self, to: int) -> Piggyback:
        refusals.peer(to, self.me, self.n)
        if self._untold:
            raise LocalProtocolError(
                f"process {self.me} has heard of an event since its own last one: produce a relevant event "
                "before sending, or use p2, which produces one where it is needed"
            )
        place, seq = self._geometry.width * self.me, self._vector[self.me]
        return Piggyback(self._geometry, 1 << place if seq else 0, seq << place)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        refusals.arrival(sender, piggyback, self.me, self._geometry)
        told = self._geometry.get(piggyback.values, sender)
        if told > self._vector[sender]:
            self._vector[sender] = told
            self._untold = True

    def join(self, process: int) -> None:
        super().join(process)
        self._vector.append(0)

    def save(self) -> State:
        return {"vector": self._vector, "untold": self._untold}

    def load(self, state: State) -> None:
        vector = list(self._geometry.unpack(saved_state.numbers(state["vector"], self._geometry)))
        self._vector, self._untold = vector, bool(state["untold"])


PROTOCOLS: Protocols = ((FACTS, Direct),)
