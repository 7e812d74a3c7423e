"""Causal order in a communication graph: routers and topological timestamps (Rodrigues & Veríssimo, R1-R9).

Assumes    reliable links between neighbours, FIFO or not, that may duplicate; the multicast of one step
           reaches all its neighbours or none; the places are those of one hypertree (see core/places), the
           same for all, with cuts of the links in use. Places change atomically (`resume_at`).
Promises   causal order between application messages, from any process to any set, whatever the graph; a
           router's timestamps leave out messages sent on the other sides of its separators.
Leaves out application messages that reached a router which fails with neither witness nor journal.
Invariant  that of `extended_history`, about *hop* messages. Hop messages are delivered in causal order, and
           their content is forwarded at once in that order: so each process forwards the causally earlier
           before the later, and on a tree the paths of two messages to one process meet.

An application multicast becomes a chain of hop messages (chapter 5 of their report), each from one process to
some neighbours: those that forward it (`next`) and those that only take note (`watching`), namely the other
members of the separator for which the next process forwards, and of the sender's own. A witness keeps what
its forwarder has yet to forward. The order of hops alone does not order application messages: over routes
with cycles, one message can overtake another although every hop is in order.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.effects import Send
from ...core.lanes import CLOCK_LIMIT
from ...core.places import Branch, Place, onward
from .. import notation
from ..facts import WIDE, CopyTravel, Facts, MembershipChanges, Relays, Waits, WireFormat
from ..machine import Effect, Held, Hop, MessageKey
from ..messages import Record, WholeMessage, field
from ..process import refusal
from ..snapshots import kept, reader, table
from .extended_history import HistoryEntry, Timestamped, check_entries, without
from .histories import OPTIONS, HistoryProcess


class HopMessage(Timestamped):
    """M(sender, clock) on its way from `relay` to some neighbours; its name as a hop message is (relay, hop).
    Its units are about hop messages: the destinations of each are the neighbours that its relay addressed."""

    relay: int
    hop: int
    next: int  # bit set: the neighbours that forward or deliver it
    watching: int  # bit set: the neighbours that only take note
    entries: tuple[HistoryEntry, ...]  # about hop messages, sorted
    payload: bytes
    via = field("relay")

    @property
    def address(self) -> int:
        return self.next | self.watching

    @property
    def carried(self) -> WholeMessage:
        return WholeMessage(self.sender, self.clock, self.dests, self.payload)


class Unforwarded(NamedTuple):
    """A message that a forwarder is known to have received and not to have forwarded yet."""

    carried: WholeMessage
    due: bool  # whether the forwarder must forward it towards the witness itself


class _NamedHop(Record):
    """A hop message under its hop name: sender and clock are those of the hop."""

    message: HopMessage
    sender = field("message.relay")
    clock = field("message.hop")
    dests = field("message.address")
    entries = field("message.entries")


class Topological(HistoryProcess[Any]):
    """One process, application or router. `pending` names hop messages: (relay, clock of the relay). The
    delay queue holds `_NamedHop`s, and the history is about hops too."""

    facts = Facts(
        name="topological",
        description="routers on a tree whose timestamps leave out what stays on other sides of their "
        "separators",
        paper="Rodrigues & Veríssimo, ICDCS 1995",
        options=OPTIONS,
        wire=WireFormat(61, "happened.wire.causal:TOPOLOGICAL"),
        membership=MembershipChanges(expels_one=True, recycles=True),
        copies=CopyTravel(relays=Relays.ROUTERS, common_frame=True),
        waits=Waits(names_missing=False),  # it names the hop messages that bring them
        assumes=WIDE,
    )

    message_type = _NamedHop

    _unforwarded: dict[int, dict[MessageKey, Unforwarded]] = kept(
        table(
            lambda of: tuple((f, tuple(left.values())) for f, left in sorted(of.items())),
            lambda of: {f: {u.carried[:2]: u for u in map(reader(Unforwarded), left)} for f, left in of},
        )
    )  # per forwarder, in order of arrival

    def address(self, to: Iterable[int], payload: bytes) -> int:
        return self.routed(to, payload)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        carried = WholeMessage(self.me, clock, dests, payload)
        effects = self._pass_on(carried, hop=clock)
        if dests >> self.me & 1:
            effects.append(self.delivery(carried))
        return effects

    def checked(self, message: HopMessage) -> _NamedHop:
        self._check(message)
        hop = _NamedHop(message)
        known = self._reached | self.gone  # a departed leaf no longer has a route
        if not known >> message.sender & 1 and not self.is_duplicate(hop):
            raise refusal(message, "comes from where we have no route to: move() to a new place first")
        return self.cleared(hop) if self.forgotten else hop

    def cleared(self, message: _NamedHop) -> _NamedHop:
        hop = message.message
        return _NamedHop(hop._replace(entries=without(hop.entries, self.forgotten)))

    def _check(self, message: HopMessage) -> None:
        if isinstance(message, HopMessage):  # its relay addresses neighbours, whatever the destinations
            self.check(message._replace(dests=message.address), HopMessage)
        else:
            self.check(message, HopMessage)
        if not 0 <= message.relay < message.n or not 0 < message.hop < CLOCK_LIMIT:
            raise refusal(message, f"has no relay among {message.n} processes, or no clock there")
        if message.relay == self.me or (message.sender == self.me and message.next >> self.me & 1):
            raise refusal(message, "is ours, and has come back")
        if message.next & message.watching or message.address >> message.relay & 1 or not message.next:
            raise refusal(message, "is sent twice to a neighbour, to its own relay, or on to nobody")
        if (message.dests | message.address) >> message.n or not message.dests:
            raise refusal(message, f"is for nobody, or for others than {message.n} processes")
        check_entries(message, message.entries, (message.relay, message.hop), self)

    def take(self, hop: _NamedHop) -> list[Effect]:
        self.learn(hop)
        self._parking.reached(hop.sender, hop.clock)
        message = hop.message
        self._unforwarded.get(message.relay, {}).pop((message.sender, message.clock), None)
        self._note(message.next, message.carried)
        if not message.next >> self.me & 1:
            return []
        arrived = [self.delivery(message)] if message.dests >> self.me & 1 else []
        return [*arrived, *self._pass_on(message.carried)]

    def _pass_on(self, carried: WholeMessage, hop: int | None = None) -> list[Effect]:
        """Send an application message to the next neighbours on its route, with copies to witnesses. `hop` is
        the clock of this hop; None: the clock advances by one."""
        return self._send_on(carried, self._onward(self.place.branches, carried), hop)

    def _send_on(
        self, carried: WholeMessage, following: list[Branch], hop: int | None = None
    ) -> list[Effect]:
        if not following:
            return []
        onto = pack(branch.towards for branch in following)
        watching = self.place.witnesses & ~onto
        for branch in following:
            watching |= branch.copies & ~onto & ~(1 << self.me) & self.place.neighbours
        entries = self.timestamp(onto | watching)
        if hop is None:  # this is no event of the application; only the clock advances
            hop = self.clock = self.clock + 1
        sender, clock, dests, payload = carried
        message = HopMessage(sender, clock, self.n, dests, self.me, hop, onto, watching, entries, payload)
        self._history.sent(hop, message.address)
        self._note(onto, carried)
        return [Send(d, message) for d in unpack(message.address)]

    def _note(self, onto: int, carried: WholeMessage) -> None:
        """As a witness, keep the message that a watched forwarder got and has to forward. Skip branches that
        the same hop addressed: then the predecessor of this forwarder sent it. An addressed process may
        itself have been succeeded; its successor stands behind the same branch."""
        for forwarder, branches in self.place.watches:
            if not onto >> forwarder & 1:
                continue
            after = self._onward(branches, carried)
            if due := [branch for branch in after if not onto & branch.behind]:
                mine = carried.dests >> self.me & any(branch.behind >> self.me & 1 for branch in due)
                left = self._unforwarded.setdefault(forwarder, {})
                left[carried.sender, carried.clock] = Unforwarded(carried, bool(mine))

    def _onward(self, branches: tuple[Branch, ...], carried: WholeMessage) -> list[Branch]:
        """The branches on which a message is forwarded; behind them, departed processes count as senders."""
        return onward(branches, carried.sender, carried.dests & ~self.gone)

    def pending(self) -> list[Held]:
        return [Held(hop.message, waits_for, since) for hop, waits_for, since in super().pending()]

    def hop_of(self, message: HopMessage, peer: int) -> Hop:
        to, watching = frozenset(unpack(message.address)), frozenset(unpack(message.watching))
        return Hop("", message.relay, message.hop, to, watching, message.units())

    def knowledge(self) -> list[tuple[str, str]]:
        """H, C and D, and the messages that a witness keeps."""
        kept = [
            (f"unforwarded by {forwarder}", " ".join(map(notation.key_name, left)))
            for forwarder, left in sorted(self._unforwarded.items())
            if left
        ]
        return super().knowledge() + kept

    def stand_in(self, forwarder: int) -> list[Effect]:
        """As a witness, forward what the failed forwarder got and has not forwarded, over its branches. All
        messages that it sent, and our copies of all messages to it, must have arrived."""
        branches = dict(self.place.watches)[forwarder]
        effects: list[Effect] = []
        for carried, _ in self._unforwarded.pop(forwarder, {}).values():
            following = self._onward(branches, carried)
            if any(branch.towards == self.me for branch in following) and carried.dests >> self.me & 1:
                effects.append(self.delivery(carried))
            effects += self._send_on(carried, [branch for branch in following if branch.towards != self.me])
        return effects

    def move(self, place: Place) -> None:
        """Take this place of the communication graph from now on."""
        super().move(place)
        watched = dict(place.watches)
        self._unforwarded = {
            f: {name: u for name, u in left.items() if self._onward(watched[f], u.carried)}
            for f, left in self._unforwarded.items()
            if f in watched
        }
