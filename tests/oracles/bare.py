"""What drivers ask of every machine and message, for oracles that have nothing to say to it."""

from happened.core.destinations import pack
from happened.ordering.messages import BareApplication


class BareMachine:
    queued = 0

    def pending(self):
        return []

    def join(self, process):
        self.n = process + 1

    def leave(self, process):
        pass


class BareMessage(BareApplication):
    """A part of messages that have a field `to`, a set."""

    @property
    def dests(self):
        return pack(self.to)
