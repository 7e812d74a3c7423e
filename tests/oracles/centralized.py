"""The centralized algorithm of the textbook chapter as printed, and Mattern–Fünfrocken used for multicasts.

Neither numbers anything: what order they have is their links'.
"""

import pickle

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Multicast
from oracles.bare import BareMachine
from oracles.unordered import PlainMessage


class _Stateful(BareMachine):
    def __init__(self, me, n):
        self.me, self.n, self.clock = me, n, 0

    def snapshot(self):
        return pickle.dumps(self.__dict__)

    def restore(self, data):
        self.__dict__ = pickle.loads(data)


class PrintedSequencer(_Stateful):
    """(1a) to the coordinator, process 0; (2a) from there to all members; (3a) deliver on arrival."""

    def multicast(self, to, payload):
        self.clock += 1
        request = PlainMessage(self.me, self.clock, frozenset(to), b"request")
        return Multicast(self.clock, [Send(0, request)])

    def receive(self, message):
        if message.payload == b"request":
            relayed = message._replace(payload=b"")
            return [Send(d, relayed) for d in sorted(message.to)]
        return [Deliver(message.sender, message.clock, b"")]


class AcknowledgedMulticast(_Stateful):
    """The next message leaves when every destination of the previous one has acknowledged it."""

    def __init__(self, me, n):
        super().__init__(me, n)
        self.output, self.missing = [], set()

    def multicast(self, to, payload):
        self.clock += 1
        self.output.append(PlainMessage(self.me, self.clock, frozenset(to), b""))
        return Multicast(self.clock, self.leave_buffer() if len(self.output) == 1 else [])

    def leave_buffer(self):
        self.missing = set(self.output[0].to)
        return [Send(d, self.output[0]) for d in sorted(self.missing)]

    def receive(self, message):
        if message.to:
            acknowledgement = PlainMessage(message.sender, message.clock, frozenset(), b"%d" % self.me)
            return [Send(message.sender, acknowledgement), Deliver(message.sender, message.clock, b"")]
        self.missing.remove(int(message.payload))
        if self.missing:
            return []
        self.output.pop(0)
        return self.leave_buffer() if self.output else []
