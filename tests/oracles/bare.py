"""What drivers ask of every machine and message, for oracles that have nothing to say to it."""

from happened.core.destinations import pack
from happened.ordering.messages import Application


class BareMachine:
    queued = 0

    def pending(self):
        return []

    def join(self, process):
        self.n = process + 1

    def leave(self, process):
        pass


class BareMessage(Application):
    """A part of messages that have a field `to`, a set."""

    __slots__ = ()

    @property
    def dests(self):
        return pack(self.to)
