"""Priorities: urgent messages do not wait for others (Rodrigues & Veríssimo, chapter 6).

Assumes    what `managed` does.
Promises   a message is delivered to d after every causally earlier message to d of the same or a higher
           priority, whatever messages the chain between them is made of; and waits for no other. The
           report asks for order within a priority and that no high one waits for a low one; that a low one
           waits for high ones costs nothing more.
Leaves out urgency in the network: which packet travels first is the driver's to say.

An application of `managed`: one history that everything sent or delivered here is merged into. With a
single priority this is complete causal order.
"""

from collections.abc import Iterable

from ....core.effects import Deliver
from ....core.orders import Order
from ...facts import Facts, MembershipChanges, Qualifier, Waits, WireFormat
from ...machine import Effect, Multicast
from ...process import State
from .managed import NOTHING, CausalHistory, ManagedMessage, ManagedProcess, Preceding

FACTS = Facts(
    name="priorities",
    description="a message waits for earlier ones of its own or a higher priority, and for no other",
    paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
    order=Order.NONE,
    wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
    qualifier=Qualifier(
        keyword="priority", usual=0, promise="causal, but that a message waits for none of a lower priority"
    ),
    membership=MembershipChanges(
        expulsions=False, at_expulsion="a message that only it could send again would be waited for"
    ),
    waits=Waits(only_for_past=True),
)


class Priorities(ManagedProcess):
    """One process; priorities are whole numbers, the larger the more urgent."""

    facts = FACTS

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._past = NOTHING

    def multicast(self, to: Iterable[int], payload: bytes, *, priority: int = 0) -> Multicast:
        sends, self._past = self.send_after(self._past, to, payload, priority)
        return Multicast(self.clock, [*sends])

    def receive(self, message: ManagedMessage) -> list[Effect]:
        effects: list[Effect] = []
        for sender, clock, payload, history in self.admit(message):
            self._past = self._past.merge(history)
            effects.append(Deliver(sender, clock, payload))
        return effects

    def history(self) -> CausalHistory:
        return self._past

    def save(self) -> State:
        return super().save() | {"past": tuple(map(tuple, self._past))}

    def load(self, state: State) -> None:
        past = CausalHistory(Preceding(*cause) for cause in state["past"])
        super().load(state)
        self._past = past
