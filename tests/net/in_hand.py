"""A transport whose frames are carried by the test: nodes without sockets, in any order of arrival."""

from happened.net import Node
from happened.wire import MAX_FRAME


class InHand:
    """Keeps nothing but what the node tells it; `carry` is the network."""

    max_payload = MAX_FRAME
    keeps_order = True
    acknowledges_for_peers = True

    def __init__(self):
        self.peers, self.paused, self.acknowledged = {}, set(), {}
        self.host = None

    async def start(self, host):
        self.host = host

    def check_address(self, peer, address):
        pass

    def add_peer(self, peer, address):
        self.peers[peer] = address

    def remove_peer(self, peer):
        self.peers.pop(peer, None)

    def wake(self, peer):
        pass

    def durable(self, peer, number):
        self.acknowledged[peer] = number

    def pause(self, peer):
        self.paused.add(peer)

    def resume(self, peer):
        self.paused.discard(peer)

    async def close(self):
        pass


def make_node(name, names, protocol="ks", **more):
    peers = dict.fromkeys(names, "in hand")
    more.setdefault("transport", InHand())
    return Node(name, peers=peers, members=names, protocol=protocol, **more)


def carry(sender, receiver, most=1 << 30):
    """Bring frames from one node to another, about `most` bytes, and back what is acknowledged."""
    sender.host.freed(receiver.name, receiver.host.received(sender.name))
    frames = sender.host.outbox(receiver.name).after(receiver.host.expects(sender.name) - 1, most)
    receiver.host.arrived(sender.name, frames)
    return len(frames)
