"""A protocol of one's own: the messages of each sender are delivered in the order it sent them.

A copy names its sender's message before it to the same destination, and waits for that one.
"""

from happened.core.destinations import unpack
from happened.core.effects import Send
from happened.core.orders import Order
from happened.ordering.facts import Facts, Waits, WireFormat
from happened.ordering.holding import HoldingProcess
from happened.ordering.messages import Application
from happened.ordering.snapshots import TABLE, kept
from happened.wire.envelope import encode_alike, read_single_kind_address
from happened.wire.primitives import write_number


class FifoMessage(Application):
    after: int  # the clock of the sender's message before this one to the same destination, 0 if none
    payload: bytes

    def size(self):
        return 1, 0


class FifoMulticast(HoldingProcess[FifoMessage]):
    facts = Facts(
        name="fifo-example",
        order=Order.FIFO,
        description="an example: the order of each sender, one number a message",
        paper="none",
        wire=WireFormat(200, __name__),
        waits=Waits(only_for_past=True),
    )
    message_type = FifoMessage

    _sent = kept(TABLE)  # per destination the clock of our last message to it
    _delivered = kept(TABLE)  # per sender the clock of its last message delivered here

    def stamp(self, clock, dests, payload):
        sends = []
        for d in unpack(dests):
            sends.append(Send(d, FifoMessage(self.me, clock, self.n, dests, self._sent.get(d, 0), payload)))
            self._sent[d] = clock
        return sends

    def delivered(self, sender):
        return self._delivered.get(sender, 0)

    def missing(self, message):
        return [(message.sender, message.after)] if self.delivered(message.sender) < message.after else []

    def learn(self, message):
        self._delivered[message.sender] = message.clock


MESSAGES = (FifoMessage,)


def encode(messages):
    return encode_alike(messages, lambda out, message: write_number(out, message.after))


def decode(reader, max_processes):
    address = read_single_kind_address(reader, max_processes)
    return FifoMessage(*address, reader.number(address.clock), reader.take(reader.left))
