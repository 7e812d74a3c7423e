"""A protocol nobody would want to pay for, in the shape of ours: every message carries its whole causal past.

It is right by inspection. `toy_codec` is its codec, `test_toys` plants faults in it.
"""

from happened.core.destinations import unpack
from happened.core.effects import Send
from happened.core.orders import Order
from happened.ordering.facts import Facts, Waits, WireFormat
from happened.ordering.holding import HoldingProcess
from happened.ordering.messages import Application

FACTS = Facts(
    name="toy",
    description="the whole causal past",
    paper="none",
    order=Order.CAUSAL,
    wire=WireFormat(128, "contract.toy_codec"),
    waits=Waits(only_for_past=True),
)


class ToyMessage(Application):
    past: tuple[tuple[int, int, int], ...]  # (sender, clock, destinations) of every message before this one
    payload: bytes

    def units(self):
        return frozenset((s, t, d) for s, t, dests in self.past for d in unpack(dests))

    def size(self):
        return len(self.past), len(self.units())

    def known_to(self, n):
        return self._replace(n=n)


class WholePast(HoldingProcess):
    facts = FACTS
    message_type = ToyMessage

    def __init__(self, me, n):
        super().__init__(me, n)
        self._past = {}  # (sender, clock): destinations
        self._delivered = {}  # sender: clock of its last message delivered here

    def stamp(self, clock, dests, payload):
        message = self.message_type(self.me, clock, self.n, dests, self.entries(), payload)
        self._past[self.me, clock] = dests
        return [Send(d, message) for d in unpack(dests)]

    def entries(self):
        return tuple((*key, dests) for key, dests in sorted(self._past.items()))

    def delivered(self, sender):
        return self._delivered.get(sender, 0)

    def told(self, message):
        return max((t for s, t, _ in message.past if s == self.me), default=0)

    def lacks(self, message):
        return next(self.missing(message), None)

    def missing(self, message):
        to_us = ((s, t) for s, t, dests in message.past if dests >> self.me & 1)
        return ((s, t) for s, t in to_us if t > self.delivered(s))

    def skip(self, process, clock):
        self._delivered[process] = max(clock, self.delivered(process))
        return (process,)

    def learn(self, message):
        self._delivered[message.sender] = message.clock
        self._past.update({(s, t): dests for s, t, dests in message.past})
        self._past[message.sender, message.clock] = message.dests

    def save(self):
        return {"past": self.entries(), "delivered": sorted(self._delivered.items())}

    def load(self, state):
        past = {(s, t): dests for s, t, dests in state["past"]}
        delivered = dict(state["delivered"])
        self._past, self._delivered = past, delivered
