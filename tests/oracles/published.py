"""Protocols with a fault of their published form (docs/papers.md), or a shortcut that looks harmless."""

from happened.core.destinations import unpack
from happened.core.effects import Deliver, Send
from happened.ordering.causal.pruning import Pruning, PruningMessage, _entries
from happened.ordering.causal.serialized_sends import SerializedBroadcasts
from happened.ordering.causal.ses import SchiperEggliSandoz
from happened.ordering.machine import Held, Multicast
from oracles.bare import BareMachine
from oracles.unordered import PlainMessage


class CountingRst(BareMachine):
    """Raynal, Schiper & Toueg as published, for unicasts: messages are counted, not named.

    A message carries the counts before its send, and its receiver adds the message itself. One to oneself
    is counted at its send and again at its delivery: the next waits for one that does not exist. And of a
    multicast each receiver counts only its own copy.
    """

    def __init__(self, me, n):
        self.me, self.n = me, n
        self._clock = 0
        self._sent = [[0] * n for _ in range(n)]
        self._delivered = [0] * n
        self._held = []

    def multicast(self, to, payload):
        self._clock += 1
        matrix = tuple(map(tuple, self._sent))
        message = CountedMessage(self.me, self._clock, frozenset(to), matrix)
        for d in message.to:
            self._sent[self.me][d] += 1
        return Multicast(self._clock, [Send(d, message) for d in sorted(message.to)])

    def receive(self, message):
        self._held.append(message)
        effects = []
        while ready := [m for m in self._held if not self._lacks(m)]:
            message = ready[0]
            self._held.remove(message)
            self._delivered[message.sender] += 1
            for k, row in enumerate(message.matrix):
                for d, count in enumerate(row):
                    self._sent[k][d] = max(self._sent[k][d], count)
            self._sent[message.sender][self.me] += 1
            effects.append(Deliver(message.sender, message.clock, b""))
        return effects

    def _lacks(self, message):
        counts = [row[self.me] for row in message.matrix]
        return tuple((k, count) for k, count in enumerate(counts) if self._delivered[k] < count)

    def pending(self):
        return [Held(message, self._lacks(message), 0) for message in self._held]

    def snapshot(self):
        held = [tuple(message) for message in self._held]
        return repr((self._clock, self._sent, self._delivered, held)).encode()

    def restore(self, data):
        self._clock, self._sent, self._delivered, held = eval(data.decode())
        self._held = [CountedMessage(*fields) for fields in held]


class CountedMessage(PlainMessage):
    """The last field is the matrix of counts."""

    __slots__ = ()

    @property
    def matrix(self):
        return self.payload


class OwnClockSes(SchiperEggliSandoz):
    """Tests against its own clock, which counts a message to itself when it is sent."""

    def wanted(self, message):
        return self._lanes.newer(super().wanted(message), self._time)


class EagerPruning(Pruning):
    """Jang et al. as printed: the own entry is inserted before the message is sent, and travels with it."""

    def stamp(self, clock, dests, payload):
        me, n = self.me, self.n
        constraints = self._take_out(dests)
        self._ci.setdefault(me, {})[clock] = dests
        ci = tuple(_entries(self._ci))
        return [
            Send(d, PruningMessage(me, clock, n, dests, d, ci, tuple(constraints.get(d, ())), payload))
            for d in unpack(dests)
        ]


class ForeignConstraintsPruning(Pruning):
    """The prose of Jang et al.: (j, τ) constrains the delivery at k only where j ≠ k."""

    def _take_out(self, dests):
        constraints = super()._take_out(dests)
        return {d: [(s, t) for s, t in pairs if s != d] for d, pairs in constraints.items()}


class RuleEightPruning(Pruning):
    """Raises where R8 would have something to delete."""

    def receive(self, message):
        effects = super().receive(message)
        for s, row in self._ci.items():
            named = sum(dests.bit_count() for dests in row.values())
            together = 0
            for dests in row.values():
                together |= dests
            if named != together.bit_count():
                raise AssertionError(f"R8 fires on the entries of {s}: {row}")
        return effects


class HastySerializedBroadcasts(SerializedBroadcasts):
    """Counts its own broadcast as delivered when it is made, whatever it follows."""

    def multicast(self, to, payload):
        made = super().multicast(to, payload)
        link = self._latest
        self._waiting = {after: entry for after, entry in self._waiting.items() if entry[0].sender != self.me}
        self._last = link
        self._passed[self.me] = link[0]
        return made
