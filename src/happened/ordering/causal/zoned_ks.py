"""Zones of `ks`: each zone keeps optimal causal order inside, and its control information does not leave it.

Assumes    reliable links between the members of a zone, FIFO or not, that may duplicate; everything that a
           process sends in one step arrives; the places are those of one hypertree (see core/places), the
           same for all. Its blocks are the *zones*; a process in several zones is a gateway between them.
           Places change at all processes at once, and zones only grow.
Promises   causal order between application messages, from any process to any set. In each zone, hops carry
           exactly what is necessary for the order of that zone's hops: entries about its members only.
Leaves out gateways that fail or leave: a place's witnesses get no copies here (see `topological`).

A multicast becomes one hop in each zone on its way: a message of a `ks` machine that knows only the members
of that zone. A gateway has one such machine for each of its zones. A message that one of them delivers goes
to the application, if we are a destination, and into our other zones, at once and in delivery order.

Why this gives causal order. Let m1 be sent causally before m2, both to d.
  Say that x sends the hop of m1 into zone Z, and y that of m2. Then the first hop is sent before the second
  in the order that Z's hops alone define. Z is entered and left only through its members, so a chain of
  messages from m1 to m2 crosses Z by hops from one member to another, and a member by which the chain enters
  and later leaves Z has delivered the one hop before it sends the other. And x sends m1 into Z before the
  first of these hops (before m2, if x is y), or as that hop: behind x both are on their way to x, m1 being
  causally earlier, so x has m1 first, by induction over the processes behind x.
  So if the last hops to d are in one zone, `ks` delivers m1 there first. If they come by two zones, d is
  between them: the chain passes d after m1, by the above, and m2 is sent later still.
The argument needs all of this: one gateway between two zones, forwarding at delivery and in delivery order,
and one hop to all of a zone. It is the hierarchical organisation that Kshemkalyani & Singhal mention (§7.1),
with the separators of Rodrigues & Veríssimo: a gateway separates its zones, and a history filtered there (R9)
keeps nothing for one zone about messages to members of the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...core.destinations import pack, unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError, RemoteProtocolError
from ...core.places import Place, alone, check, reach, restored
from .. import notation
from ..facts import WIDE, CopyTravel, Facts, MembershipChanges, Relays, Waits, WireFormat
from ..machine import Effect, Held, Hop, Unit
from ..messages import WholeMessage, field
from ..process import State, refusal
from .carrier import Carrier, HopHeader, InHop
from .ks import KsMessage
from .placed import PLACE, PlacedProcess


class ZonedMessage(InHop):
    """M(sender, clock) on its way through one zone, as `relay` sends it to one member. The hop numbers only
    the members of the zone, in the order of their indices. Two processes share at most one zone, so the relay
    determines the zone."""

    relay: int
    hop: KsMessage
    via = field("relay")


@dataclass(slots=True)
class _Zone:
    """What a process knows of a zone: its members, the processes behind each, and the `ks` machine."""

    me: int  # our own number within the zone
    members: tuple[int, ...]  # increasing
    behind: tuple[int, ...]  # of each member: itself and all processes reached through it
    carrier: Carrier

    def onward(self, relay: int, dests: int) -> int:
        """The members, in the zone's numbers, to which `relay` sends a message for `dests`."""
        return pack(i for i, behind in enumerate(self.behind) if i != relay and behind & dests)

    @property
    def name(self) -> str:
        return f"zone {notation.dests(self.members)}"

    def entries(self) -> Iterator[tuple[int, int, frozenset[int]]]:
        for s, t, to in self.carrier.ks.log_entries():
            yield self.members[s], t, frozenset(self.members[d] for d in to)

    def named(self, units: Iterable[Unit]) -> frozenset[Unit]:
        """Units in the zone's numbers, translated to the indices of the whole system."""
        return frozenset((self.members[s], t, self.members[d]) for s, t, d in units)


class ZonedKs(PlacedProcess):
    """One process, gateway or not. `pending` names hops: (relay, clock of the relay in that zone). A place
    that it moves to may have new zones, or more members of higher indices in its zones. It refuses to take a
    member from a zone or to insert one between others, since hops in flight number the members."""

    facts = Facts(
        name="zoned-ks",
        description="ks in each zone, gateways between them: entries about the members of one zone only",
        paper="Kshemkalyani & Singhal 1998, §7.1; Rodrigues & Veríssimo, ICDCS 1995",
        options=(PLACE,),
        wire=WireFormat(70, "happened.wire.causal:ZONED_KS"),
        copies=CopyTravel(relays=Relays.ROUTERS),
        waits=Waits(names_missing=False),  # it names the hops that bring them
        membership=MembershipChanges(recycles=True),
        assumes=WIDE,
    )
    _zones: Sequence[_Zone] = ()

    def address(self, to: Iterable[int], payload: bytes) -> int:
        return self.routed(to, payload)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        carried = WholeMessage(self.me, clock, dests, payload)
        effects = self._send_into(self._zones, carried)
        if dests >> self.me & 1:
            effects.append(self.delivery(carried))
        return effects

    def receive(self, message: ZonedMessage) -> list[Effect]:
        zone = self._checked(message)
        named = HopHeader(message.sender, message.clock, message.dests)
        try:
            delivered = zone.carrier.receive(message.hop, named, self.events + 1)
        except RemoteProtocolError as error:
            why = f"came in a hop of process {message.relay} that is refused: {error}"
            raise refusal(message, why) from error
        self.arrival()
        return self._deliver(zone, delivered)

    def _deliver(self, zone: _Zone, delivered: Iterable[WholeMessage]) -> list[Effect]:
        """Deliver each message to the application if we are a destination, and forward it at once."""
        effects: list[Effect] = []
        for carried in delivered:
            if carried.dests >> self.me & 1:
                effects.append(self.delivery(carried))
            effects += self._send_into([other for other in self._zones if other is not zone], carried)
        return effects

    def _send_into(self, zones: Iterable[_Zone], carried: WholeMessage) -> list[Effect]:
        sender, clock, dests, payload = carried
        effects: list[Effect] = []
        for zone in zones:
            if onto := zone.onward(zone.me, dests) & ~self._gone_from(zone):
                effects += [
                    Send(zone.members[d], ZonedMessage(sender, clock, self.n, dests, self.me, hop))
                    for d, hop in zone.carrier.send(onto, payload)
                ]
        return effects

    def _checked(self, message: ZonedMessage) -> _Zone:
        """The zone through which a message came; raises if no correct peer can have sent it to us."""
        if not isinstance(message, ZonedMessage) or not isinstance(message.hop, KsMessage):
            raise RemoteProtocolError(f"not a ZonedMessage: {message!r:.100}")
        sender, _, n, dests, relay, hop = message
        self.check(message._replace(dests=1 << self.me), ZonedMessage)  # whatever its destinations
        zone = self._zone_with.get(relay)
        if zone is None:
            raise refusal(message, f"was relayed by {relay}, who shares no zone with process {self.me}")
        i = zone.members.index(relay)
        if hop.sender != i or not zone.behind[i] >> sender & 1:
            raise refusal(message, f"does not come through process {relay}")
        astray = (hop.dests ^ zone.onward(i, dests)) & ~self._gone_from(zone)
        if dests >> n or not hop.dests >> zone.me & 1 or astray:
            why = f"is not addressed to process {self.me}, or to others than its way leads to"
            raise refusal(message, why)
        return zone

    def pending(self) -> list[Held]:
        held = []
        for zone in self._zones:
            members = zone.members
            for (sender, clock, dests), hop, waits_for, since in zone.carrier.pending():
                message = ZonedMessage(sender, clock, self.n, dests, members[hop.sender], hop)
                held.append(Held(message, tuple((members[s], t) for s, t in waits_for), since))
        return held

    def log_size(self) -> tuple[int, int]:
        """The entries and units in the logs of all zones."""
        sizes = [zone.carrier.ks.log_size() for zone in self._zones]
        return sum(entries for entries, _ in sizes), sum(units for _, units in sizes)

    def hop_of(self, message: ZonedMessage, peer: int) -> Hop:
        zone, hop = self._zone_with[peer], message.hop
        to = frozenset(zone.members[d] for d in unpack(hop.dests))
        return Hop(zone.name, message.relay, hop.clock, to, frozenset(), zone.named(hop.units()))

    def logs(self) -> dict[str, frozenset[Unit]]:
        return {zone.name: zone.named(zone.carrier.ks.log_units()) for zone in self._zones}

    def knowledge(self) -> list[tuple[str, str]]:
        return [(f"log of {zone.name}", notation.entries(zone.entries())) for zone in self._zones]

    def resume_at(self, place: Place) -> None:
        check(place, self.me, self.n)
        self._zones = ()  # no hop is in flight, so their numbering may end
        self.stand(place)

    def stand(self, place: Place | None) -> None:
        self._stand(place, self._carriers(place))

    def _carriers(self, place: Place | None) -> list[Carrier]:
        """One carrier per zone of the place; a continued zone keeps its own. Changes nothing if it raises."""
        zones = _zones_of(place or alone(self.me, self.n), self.me)
        before = {zone.members: zone.carrier for zone in self._zones}
        carriers = []
        for members, _ in zones:
            old = next((old for old in before if members[: len(old)] == old), None)
            new = Carrier(members.index(self.me), len(members))
            carriers.append(new if old is None else before.pop(old))
        for old in before:
            names = ", ".join(map(str, old))
            why = f"zone {{{names}}} of process {self.me} can only get members of higher index"
            raise LocalProtocolError(why)
        for carrier, (members, _) in zip(carriers, zones, strict=True):
            for member in range(carrier.ks.n, len(members)):
                carrier.join(member)
        return carriers

    def _stand(self, place: Place | None, carriers: Iterable[Carrier]) -> None:
        super().stand(place)
        self._zones = [
            _Zone(members.index(self.me), members, behind, carrier)
            for (members, behind), carrier in zip(_zones_of(self.place, self.me), carriers, strict=True)
        ]
        self._zone_with = {m: zone for zone in self._zones for m in zone.members if m != self.me}

    def _gone_from(self, zone: _Zone) -> int:
        """The departed members of a zone, in the zone's numbers."""
        return self.gone and pack(i for i, member in enumerate(zone.members) if self.gone >> member & 1)

    def leave(self, process: int) -> list[Effect]:
        """Raise for a gateway, whose departure would cut its zones off from each other."""
        behind = [branch.behind for branch in self.place.branches if branch.towards == process]
        forwards = any(reached != 1 << process for reached in behind)
        if forwards or (process == self.me and len(self._zones) > 1):
            raise LocalProtocolError(f"process {process} is a gateway and cannot leave")
        return self._leave(process)

    def do_without(self, process: int) -> list[Effect]:
        # Allowed even for a gateway, which leaves its zones cut off from each other.
        return [*self._leave(process), *self.close(process)]

    def _leave(self, process: int) -> list[Effect]:
        effects = super().leave(process)
        for zone, member in self._zones_with(process):
            zone.carrier.ks.leave(member)
        return effects

    def close(self, process: int) -> list[Effect]:
        effects = super().close(process)
        for zone, member in self._zones_with(process):
            effects += self._deliver(zone, zone.carrier.close(member))
        return effects

    def forget(self, process: int) -> None:
        super().forget(process)
        for zone, member in self._zones_with(process):
            zone.carrier.ks.forget(member)

    def join(self, process: int) -> list[Effect]:
        is_known = process < self.n
        effects = super().join(process)
        for zone, member in self._zones_with(process) if is_known else ():
            zone.carrier.join(member)
        return effects

    def _zones_with(self, process: int) -> list[tuple[_Zone, int]]:
        """Each zone that we share with a process, with the process's number in that zone."""
        return [(zone, zone.members.index(process)) for zone in self._zones if process in zone.members]

    def save(self) -> State:
        return super().save() | {"zones": tuple(zone.carrier.state() for zone in self._zones)}

    def load(self, state: State) -> None:
        place = None if state["place"] is None else restored(state["place"])
        carriers = [Carrier(0, 1).resume(carrier) for carrier in state["zones"]]
        zones = _zones_of(place or alone(self.me, self.n), self.me)
        if [carrier.ks.n for carrier in carriers] != [len(members) for members, _ in zones]:
            raise ValueError("its zones are not those of its place")
        self._stand(place, carriers)


def _zones_of(place: Place, me: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each zone of a place: its members, and the set of processes behind each member."""
    everybody = 1 << me | reach(place)
    blocks: dict[int, dict[int, int]] = {}
    for branch in place.branches:
        blocks.setdefault(branch.block, {})[branch.towards] = branch.behind
    zones = []
    for _, behind in sorted(blocks.items()):
        others = 0
        for reached in behind.values():
            others |= reached
        behind[me] = everybody & ~others
        members = tuple(sorted(behind))
        zones.append((members, tuple(behind[member] for member in members)))
    return zones
