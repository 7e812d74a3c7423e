"""Routers that do what the report does not forbid and order between application messages does not survive."""

from happened.core.destinations import pack, unpack
from happened.core.effects import Send
from happened.core.places import onward
from happened.ordering.causal.topological import HopMessage, Topological


class Routed(Topological):
    """Each destination is routed by itself: `route(me, carried, destination)` tells the next hop.

    It is still one hop message to all next hops, each of which takes on its own part of the destinations.
    """

    def __init__(self, me, n, *, route, **options):
        super().__init__(me, n, **options)
        self._route = route

    def _pass_on(self, carried, hop=None):
        onto = {}
        for d in unpack(carried.dests & ~(1 << self.me)):
            onto.setdefault(self._route(self.me, carried, d), []).append(d)
        if not onto:
            return []
        address = pack(onto)
        entries = self._history.stamp(address, self.place.separators, redundancy=True, extended=False)
        if hop is None:
            hop = self.clock = self.clock + 1
        sender, clock, _, payload = carried
        message = HopMessage(sender, clock, self.n, 0, self.me, hop, address, 0, entries, payload)
        self._history.sent(hop, address)
        return [Send(q, message._replace(dests=pack(dests))) for q, dests in sorted(onto.items())]


class Split(Topological):
    """A multicast as one hop message to each next hop, instead of one to all."""

    def _pass_on(self, carried, hop=None):
        effects = []
        for branch in onward(self.place.branches, carried.sender, carried.dests):
            if hop is None or effects:
                hop = self.clock = self.clock + 1
            address = 1 << branch.towards
            entries = self._history.stamp(address, self.place.separators, redundancy=True, extended=False)
            sender, clock, dests, payload = carried
            message = HopMessage(sender, clock, self.n, dests, self.me, hop, address, 0, entries, payload)
            self._history.sent(hop, address)
            effects.append(Send(branch.towards, message))
        return effects


def shortest_paths(graph):
    """The next hop of a shortest path, the smallest of several."""

    def distances(d):
        found, todo = {d: 0}, [d]
        for p in todo:
            for q in sorted(graph.neighbours(p)):
                if q not in found:
                    found[q] = found[p] + 1
                    todo.append(q)
        return found

    to = [distances(d) for d in range(graph.n)]

    def route(me, carried, d):
        return min(graph.neighbours(me), key=lambda q: (to[d][q], q))

    return route


def gateways(choose):
    """Sides {0, 1} and {4, 5}; 2 and 3 lead across, and `choose(carried, destination)` says by which."""

    def route(me, carried, d):
        same_side = me in (2, 3) or d in (2, 3) or (me < 2) == (d < 2)
        return d if same_side else choose(carried, d)

    return route


class OutOfDeliveryOrder(Topological):
    """What one arrival releases is forwarded last first."""

    def receive(self, message):
        self._later = []
        effects = super().receive(message)
        for carried in reversed(self._later):
            effects += super()._pass_on(carried)
        return effects

    def _pass_on(self, carried, hop=None):
        if hop is not None:
            return super()._pass_on(carried, hop)
        self._later.append(carried)
        return []


class BeforeDelivering(Topological):
    """Forwards what arrives at once, and delivers it when its turn has come."""

    def receive(self, message):
        known = (message.hop <= self._history.last(message.relay)) or any(
            (held.message.relay, held.message.hop) == (message.relay, message.hop) for held in self.pending()
        )
        first = [] if known or not message.next >> self.me & 1 else super()._pass_on(message.carried)
        return first + super().receive(message)

    def _pass_on(self, carried, hop=None):
        return super()._pass_on(carried, hop) if hop is not None else []
