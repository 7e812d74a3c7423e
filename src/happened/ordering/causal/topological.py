"""Causal order in a communication graph: routers and topological timestamps (Rodrigues & Veríssimo, R1-R9).

Assumes    reliable links between neighbours, FIFO or not, that may duplicate; that the multicast of one step
           reaches all its neighbours or none; places that are those of one hypertree (see core/places), the
           same for everybody, with separators of the whole graph. Places change atomically (`succession`).
Promises   causal order between application messages, from anybody to any set, whatever the graph; a router's
           timestamps leave out what was sent on the other sides of its separators.
Leaves out application messages that reached a router which fails with neither witness nor journal.
Invariant  that of `history`, about *hop* messages. A hop message is delivered in causal order among those,
           and in that order what it carries goes on, at once: so each process passes what is causally earlier
           on before what is later, and on a tree the paths of two messages to one process meet.

An application multicast becomes a chain of hop messages (chapter 5 of their report), each from one process to
some of its neighbours: those that take it on (`next`) and those that only take note (`watching`), the other
members of the separator that the next one forwards for, and of the sender's own. A witness keeps what its
forwarder has yet to forward. The order of hops alone is not that of application messages: over routes with
cycles, one can overtake another although every hop is in order.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core.destinations import pack, unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.lanes import CLOCK_LIMIT
from ...core.places import Branch, Place, alone, check, onward, reach, restored
from ..machine import Effect, Facts, Held
from ..parking import Parking, Want
from ..process import Process, refusal
from ..snapshots import opened, seal
from .history import Entry, History, Name, check_entries, size_of
from .hop_message import Carried, HopMessage, Unforwarded

__all__ = ["FACTS", "HopMessage", "Topological"]

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="routers on a tree whose timestamps leave out what stays on other sides of their separators",
    paper="Rodrigues & Veríssimo, ICDCS 1995",
)


class _Hop(NamedTuple):
    """A hop message under its own name."""

    message: HopMessage

    @property
    def sender(self) -> int:
        return self.message.relay

    @property
    def clock(self) -> int:
        return self.message.hop


class Topological:
    """One process, application or router. `pending` names hop messages: (relay, clock of the relay)."""

    def __init__(
        self,
        me: int,
        n: int,
        *,
        place: Place | None = None,
        timestamp_redundancy: bool = True,
        extended: bool = False,
    ) -> None:
        self._process = Process(me, n)
        self._history = History(me)
        self._timestamp_redundancy = timestamp_redundancy
        self._extended = extended
        self._parking: Parking[_Hop] = Parking(self._lacks)
        self._unforwarded: dict[int, dict[Name, Unforwarded]] = {}  # per forwarder, in order
        self._alone = place is None
        if place is None:
            self._stand(alone(me, n))
        else:
            self.move(place)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def clock(self) -> int:
        return self._process.clock

    @property
    def gone(self) -> int:
        """Bit set: those who have left."""
        return self._process.gone

    @property
    def place(self) -> Place:
        return self._place

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        if lost := dests & ~self._reached:
            names = ", ".join(map(str, unpack(lost)))
            raise LocalProtocolError(f"process {self.me} has no route to {names}: move() it to a new place")
        carried = Carried(self.me, self._process.next_clock(), dests, payload)
        effects = self._pass_on(carried, hop=carried.clock)
        if dests >> self.me & 1:
            effects.append(self._process.delivery(carried))
        return effects

    def receive(self, message: HopMessage) -> list[Effect]:
        self._check(message)
        hop = _Hop(message)
        duplicate = message.hop <= self._history.last(message.relay) or hop in self._parking
        known = self._reached | self._process.gone  # whoever was a leaf here and has left comes from nowhere
        if not duplicate and not known >> message.sender & 1:
            raise refusal(message, "comes from where we have no route to: move() to a new place first")
        since = self._process.arrival()
        if duplicate:
            return []
        effects: list[Effect] = []
        for ready in self._parking.admit(hop, since):
            effects += self._deliver(ready.message)
            self._parking.reached(ready.sender, ready.clock)
        return effects

    def _check(self, message: HopMessage) -> None:
        if not isinstance(message, HopMessage):
            self._process.check(message, HopMessage)
        self._process.check(_Addressed(message.sender, message.clock, message.n, message.address), _Addressed)
        if not 0 <= message.relay < message.n or not 0 < message.hop < CLOCK_LIMIT:
            raise refusal(message, f"has no relay among {message.n} processes, or no clock there")
        if message.relay == self.me or (message.sender == self.me and message.next >> self.me & 1):
            raise refusal(message, "is ours, and has come back")
        if message.next & message.watching or message.address >> message.relay & 1 or not message.next:
            raise refusal(message, "is sent twice to a neighbour, to its own relay, or on to nobody")
        if (message.dests | message.address) >> message.n or not message.dests:
            raise refusal(message, f"is for nobody, or for others than {message.n} processes")
        check_entries(message, message.entries, (message.relay, message.hop), self._process)

    def _deliver(self, message: HopMessage) -> list[Effect]:
        self._history.deliver(message.relay, message.hop, message.address, message.entries)
        self._unforwarded.get(message.relay, {}).pop((message.sender, message.clock), None)
        self._note(message.next, message.carried)
        if not message.next >> self.me & 1:
            return []
        arrived = [self._process.delivery(message)] if message.dests >> self.me & 1 else []
        return [*arrived, *self._pass_on(message.carried)]

    def _pass_on(self, carried: Carried, hop: int | None = None) -> list[Effect]:
        """Send an application message to whoever is next on its way."""
        following = self._onward(self._place.branches, carried)
        if not following:
            return []
        onto = pack(branch.towards for branch in following)
        watching = self._place.witnesses & ~onto
        for branch in following:
            watching |= branch.copies & ~onto & ~(1 << self.me)
        entries = self._history.stamp(
            onto | watching,
            self._place.separators,
            redundancy=self._timestamp_redundancy,
            extended=self._extended,
        )
        if hop is None:  # no event of the application: only the clock advances
            hop = self._process.clock = self._process.clock + 1
        sender, clock, dests, payload = carried
        message = HopMessage(sender, clock, self.n, dests, self.me, hop, onto, watching, entries, payload)
        self._history.sent(hop, message.address)
        self._note(onto, carried)
        return [Send(d, message) for d in unpack(message.address)]

    def _note(self, onto: int, carried: Carried) -> None:
        """As a witness, keep what a forwarder got and has to forward.

        Not where the same hop went: then it was sent by the one that this forwarder succeeded. Who got it may
        have been succeeded too, and then stands behind the same branch.
        """
        for forwarder, branches in self._place.watches:
            if not onto >> forwarder & 1:
                continue
            after = self._onward(branches, carried)
            if due := [branch for branch in after if not onto & branch.behind]:
                mine = carried.dests >> self.me & any(branch.behind >> self.me & 1 for branch in due)
                left = self._unforwarded.setdefault(forwarder, {})
                left[carried.sender, carried.clock] = Unforwarded(carried, bool(mine))

    def _onward(self, branches: tuple[Branch, ...], carried: Carried) -> list[Branch]:
        """Where a message goes on: not to those who have left, who still stand behind a branch as senders."""
        return onward(branches, carried.sender, carried.dests & ~self._process.gone)

    def _lacks(self, hop: _Hop) -> Want | None:
        return self._history.lacks(hop.message.entries)

    def pending(self) -> list[Held]:
        held = self._parking.pending(lambda hop: self._history.missing(hop.message.entries))
        return [Held(hop.message, waits_for, since) for hop, waits_for, since in held]

    def history(self) -> tuple[Entry, ...]:
        """The hop messages that precede the next one to be sent, with their carbon copies."""
        return tuple(self._history)

    def overdue(self) -> tuple[Entry, ...]:
        """The hop messages that arrived and wait for others, and those they name: not yet in our history."""
        held = [hop.message for hop, _, _ in self._parking.pending(lambda hop: ())]
        return tuple(
            entry
            for message in held
            for entry in (
                *message.entries,
                Entry(message.relay, message.hop, message.address, 1 << message.relay),
            )
        )

    def log_size(self) -> tuple[int, int]:
        return size_of(self.history())

    def unforwarded(self, forwarder: int) -> tuple[Unforwarded, ...]:
        """What this forwarder got and was not seen to forward, in the order it may be forwarded in."""
        return tuple(self._unforwarded.get(forwarder, {}).values())

    def awaits(self, entries: Iterable[Entry]) -> tuple[Name, ...]:
        """The messages of another process's history that were sent to us and have not been delivered yet."""
        return tuple(self._history.missing(entries))

    def adopt(self, entries: Iterable[Entry]) -> None:
        """Take over the history of another process, for a new place in the graph.

        Like a timestamp, it can be taken only when what it names and was sent to us has been delivered.
        """
        entries = tuple(entries)
        if missing := self.awaits(entries):
            names = ", ".join(f"M{name}" for name in missing)
            raise LocalProtocolError(f"process {self.me} must deliver {names} before it adopts this history")
        self._history.adopt(entries)

    def forward(self, left: Iterable[Unforwarded]) -> list[Effect]:
        """Send on what another forwarder has left behind."""
        effects: list[Effect] = []
        for carried, due in left:
            if due and carried.dests >> self.me & 1:
                effects.append(self._process.delivery(carried))
            effects += self._pass_on(carried)
        return effects

    def move(self, place: Place) -> None:
        """Stand at this place of the communication graph from now on."""
        check(place, self.me, self.n)
        self._stand(place)
        self._alone = False
        watched = dict(place.watches)
        self._unforwarded = {
            f: {name: u for name, u in left.items() if self._onward(watched[f], u.carried)}
            for f, left in self._unforwarded.items()
            if f in watched
        }

    def _stand(self, place: Place) -> None:
        self._place = place
        self._reached = 1 << self.me | reach(place)

    def expire(self) -> None:
        """To be called when a time Δ that delivers every hop message has passed since the last call."""
        self._history.expire()

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        """Without a topology, the new process is a neighbour; otherwise it has no route until we `move`."""
        self._process.join(process)
        if self._alone:
            self._stand(alone(self.me, self.n))

    def leave(self, process: int) -> None:
        self._process.leave(process)
        self._history.leave(process)

    def snapshot(self) -> bytes:
        return seal(
            "topological",
            process=self._process.state(),
            history=self._history.state(),
            held=self._parking.state(),
            unforwarded=tuple((f, tuple(left.values())) for f, left in sorted(self._unforwarded.items())),
            place=None if self._alone else self._place,
        )

    def restore(self, data: bytes) -> None:
        with opened("topological", data) as state:
            process, history = Process.from_state(state["process"]), state["history"]
            History(process.me).restore(history)
            place = alone(process.me, process.n) if state["place"] is None else restored(state["place"])
            held = [(_restored(message), since) for message, since in state["held"]]
            unforwarded = {
                f: [Unforwarded(Carried(*carried), due) for carried, due in left]
                for f, left in state["unforwarded"]
            }
        self._process, self._alone = process, state["place"] is None
        self._stand(place)
        self._unforwarded = {
            f: {(u.carried.sender, u.carried.clock): u for u in left} for f, left in unforwarded.items()
        }
        self._history.restore(history)
        self._parking.refill(held)


class _Addressed(NamedTuple):
    """A hop message as something that its relay sends to its neighbours: what every protocol checks."""

    sender: int
    clock: int
    n: int
    dests: int


def _restored(fields: tuple[Any, ...]) -> _Hop:
    message = HopMessage(*fields)
    return _Hop(message._replace(entries=tuple(Entry(*entry) for entry in message.entries)))
