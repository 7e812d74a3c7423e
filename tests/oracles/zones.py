"""Worlds of zones, walks through them judged from outside, and gateways that do not keep the order."""

from itertools import combinations

from happened import wire
from happened.core.destinations import pack, unpack
from happened.core.effects import Send
from happened.ordering.causal.carrier import Carrier
from happened.ordering.causal.zoned_ks import ZonedKs, ZonedMessage, _Zone
from oracles.history import History
from oracles.places import Graph, routed_places

WORLDS = {
    "two zones, one gateway": [(0, 1), (1, 2)],
    "two zones of two beside a gateway": [(0, 1, 2), (2, 3, 4)],
    "a line of three zones": [(0, 1), (1, 2), (2, 3)],
    "three zones at one gateway": [(0, 1), (0, 2), (0, 3)],
    "a line of three wide zones": [(0, 1, 2), (2, 3), (3, 4, 5)],
    "three levels": [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (6, 9)],
}


def places(zones):
    n = 1 + max(max(zone) for zone in zones)
    edges = [edge for zone in zones for edge in combinations(zone, 2)]
    return routed_places(Graph(n, edges), zones, separators=[])


def random_zones(dice, zones):
    """A hypertree: each zone after the first shares one member with those before it."""
    made, n = [], 0
    for _ in range(zones):
        new = dice.randint(1 if made else 2, 4)
        shared = [dice.randrange(n)] if made else []
        made.append((*shared, *range(n, n + new)))
        n += new
    return made


class Walk:
    """Machines and the packets between them. Application order, and in each zone the necessary information,
    are judged from what goes in and comes out: sets of events, never what is carried."""

    def __init__(self, machines, zones):
        self.machines, self.zones = list(machines), [tuple(sorted(zone)) for zone in zones]
        self.in_flight = []
        self.application = History()
        self.inside = [History() for _ in zones]
        self.arrived = {}  # (process, zone) -> hops not known to be delivered
        self.logs = {}  # (zone, hop) -> what the zone required of its sender's log before it
        self.hops = 0
        self.gone = set()

    def multicast(self, p, to):
        clock, effects = self.machines[p].multicast(to, b"x")
        self.application.send(p, (p, clock), to)
        self.perform(p, effects)

    def arrive(self, i, *, duplicate=False):
        d, message = self.in_flight[i] if duplicate else self.in_flight.pop(i)
        effects = self.machines[d].receive(message)
        zone = self.zone_of(message.relay, d)
        hops = self.arrived.setdefault((d, zone), set())
        name = (message.hop.sender, message.hop.clock)
        local = self.zones[zone].index(d)
        if name not in self.inside[zone].order.get(local, []):
            hops.add(name)
        held = {
            (held.message.hop.sender, held.message.hop.clock)
            for held in self.machines[d].pending()
            if self.zone_of(held.message.relay, d) == zone
        }
        for name in sorted(hops - held):
            self.inside[zone].deliver(local, name)
        hops &= held
        self.perform(d, effects)

    def zone_of(self, p, q):
        (found,) = (i for i, zone in enumerate(self.zones) if p in zone and q in zone)
        return found

    def perform(self, p, effects):
        for effect in effects:
            if isinstance(effect, Send):
                self.send(p, effect)
                continue
            name = (effect.sender, effect.clock)
            assert p in self.application.dests[name] and effect.payload == b"x"
            assert name not in self.application.order.get(p, [])
            overtaken = self.application.overtaken_by(p, name)
            assert not overtaken, f"M{name} overtakes {overtaken} at {p}"
            self.application.deliver(p, name)

    def send(self, p, effect):
        self.hops += 1
        message, _ = wire.decode(wire.encode(effect.message))
        assert message == effect.message
        zone, hop = self.zone_of(p, effect.to), message.hop
        name, local = (hop.sender, hop.clock), self.zones[zone].index(effect.to)
        inside = self.inside[zone]
        if name not in inside.dests:
            self.logs[zone, name] = inside.log(hop.sender)
            inside.send(hop.sender, name, hop.to)
        required = inside.edge(self.logs[zone, name], hop.to, local)
        required = {unit for unit in required if self.zones[zone][unit[2]] not in self.gone}
        assert message.units() == required, f"in zone {zone}, from {p} to {effect.to}"
        self.in_flight.append((effect.to, message))

    def wander(self, dice, sends):
        everybody = range(len(self.machines))
        while sends or self.in_flight:
            if sends and (not self.in_flight or dice.random() > 0.6):
                sends -= 1
                to = dice.sample(everybody, dice.randint(1, min(3, len(everybody))))
                self.multicast(dice.choice(everybody), to)
            else:
                # Packets from the older half are picked less often: slow ones, and quick answers past them.
                i = dice.randrange(len(self.in_flight))
                if 2 * i < len(self.in_flight) and dice.random() < 0.7:
                    i = dice.randrange(len(self.in_flight))
                self.arrive(i, duplicate=dice.random() < 0.05)
        assert not self.application.undelivered()
        assert not any(machine.pending() for machine in self.machines)


class OutOfDeliveryOrder(ZonedKs):
    """What one arrival releases is forwarded last first."""

    def receive(self, message):
        self._later = []
        effects = super().receive(message)
        for zones, carried in reversed(self._later):
            effects += super()._send_into(zones, carried)
        self._later = None
        return effects

    def _send_into(self, zones, carried):
        if getattr(self, "_later", None) is None:
            return super()._send_into(zones, carried)
        self._later.append((zones, carried))
        return []


class BeforeDelivering(ZonedKs):
    """Forwards what arrives at once, and delivers it when its turn has come."""

    def receive(self, message):
        zone = self._checked(message)
        held = [(h.message.relay, h.message.hop.clock) for h in self.pending()]
        known = (message.relay, message.hop.clock) in held
        known |= message.hop.clock <= zone.carrier._last[message.hop.sender]
        carried = (message.sender, message.clock, message.dests, message.payload)
        first = [] if known else super()._send_into([z for z in self._zones if z is not zone], carried)
        self._forwarding = False
        effects = first + super().receive(message)
        self._forwarding = True
        return effects

    def _send_into(self, zones, carried):
        return super()._send_into(zones, carried) if getattr(self, "_forwarding", True) else []


class Split(ZonedKs):
    """A message as one hop to each member of a zone, instead of one to all."""

    def _send_into(self, zones, carried):
        sender, clock, dests, payload = carried
        return [
            Send(zone.members[d], ZonedMessage(sender, clock, self.n, dests, self.me, hop))
            for zone in zones
            for member in unpack(zone.onward(zone.me, dests))
            for d, hop in zone.carrier.send(1 << member, payload)
        ]

    def _checked(self, message):
        return self._zone_with[message.relay]


class TwoGateways(ZonedKs):
    """Sides {0, 1} and {4, 5}; 2 and 3 are both in both zones, and `choose(carried)` says who forwards."""

    ZONES = ((0, 1, 2, 3), (2, 3, 4, 5))

    def __init__(self, me, n, *, choose):
        super().__init__(me, n)
        self._choose = choose
        self._zones = [
            _Zone(members.index(me), members, (), Carrier(members.index(me), 4))
            for members in self.ZONES
            if me in members
        ]

    def _send_into(self, zones, carried):
        sender, clock, dests, payload = carried
        effects = []
        for zone in zones:
            onto = {m for m in unpack(dests) if m in zone.members}
            if self.me not in (2, 3) and len(onto) < dests.bit_count():
                onto.add(self._choose(carried))
            hops = zone.carrier.send(pack(map(zone.members.index, onto)), payload) if onto else []
            effects += [
                Send(zone.members[d], ZonedMessage(sender, clock, self.n, dests, self.me, hop))
                for d, hop in hops
            ]
        return effects

    def _checked(self, message):
        return next(zone for zone in self._zones if message.relay in zone.members)

    def load(self, state):
        for zone, carrier in zip(self._zones, state["zones"], strict=True):
            zone.carrier = Carrier(0, 1).resume(carrier)
