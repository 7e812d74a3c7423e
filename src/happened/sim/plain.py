"""Messages without any order, delivered at their arrival: the protocol for trackers studied alone.

Assumes    nothing.
Promises   a message is delivered once at each of its destinations.
"""

from collections.abc import Iterable, Sequence

from ..core.destinations import pack, unpack
from ..core.effects import Send
from ..core.orders import Order
from ..ordering import Effect, Facts, Multicast
from ..ordering.messages import BareApplication
from ..ordering.process import Process, State


class PlainMessage(BareApplication):
    sender: int
    clock: int
    dests: int  # bit set
    payload: bytes


def control_sizes(messages: Sequence[PlainMessage]) -> Sequence[int]:
    return [0] * len(messages)


class Plain(Process):
    facts = Facts(name="plain", order=Order.NONE, description="no order at all", paper="")

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._delivered: set[tuple[int, int]] = set()

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        message = PlainMessage(self.me, self.next_clock(), pack(to), payload)
        return Multicast(message.clock, [Send(d, message) for d in unpack(message.dests)])

    def receive(self, message: PlainMessage) -> list[Effect]:
        self.events += 1
        name = message.sender, message.clock
        if name in self._delivered:
            return []
        self._delivered.add(name)
        return [self.delivery(message)]

    def save(self) -> State:
        return {"delivered": sorted(self._delivered)}

    def load(self, state: State) -> None:
        self._delivered = set(state["delivered"])
