"""Machines of one protocol, the packets between them, and a judge; what they may be asked, its Facts say.

The judge (`oracles.history`) keeps sets of events and never looks at what messages carry. Every packet makes
a trip over the wire. Whoever drives a `System` decides what happens next: dice, or Hypothesis (`Choices`).
"""

import random
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from typing import Any, NamedTuple, Protocol

import pytest

from happened import wire
from happened.core.destinations import unpack
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.core.orders import Order
from happened.ordering import create, having
from happened.ordering.capabilities import TellsUnits
from happened.ordering.facts import BROADCAST, MULTICAST, UNICAST, Relays
from oracles.history import History

ENOUGH = 700  # messages on the links of a busy system: those that relay make n² of each


class Choices(Protocol):
    """Where the decisions of a run come from."""

    def one(self, of): ...
    def some(self, of, most): ...
    def flip(self): ...


class Dice(random.Random):
    def one(self, of):
        return self.choice(list(of))

    def some(self, of, most):
        return set(self.sample(list(of), self.randint(1, min(len(of), most))))

    def flip(self):
        return self.random() < 0.5


def overlapping(n):
    """Every non-empty group among the first processes, and everybody."""
    few = range(min(n, 3))
    groups = [set(group) for size in range(1, len(few) + 1) for group in combinations(few, size)]
    return groups if set(range(n)) in groups else [*groups, set(range(n))]


def takes_groups(facts):
    return facts.fixed_groups and MULTICAST in facts.casts


def options(facts, n):
    """Options that widen what a protocol can be asked."""
    return {"groups": overlapping(n)} if takes_groups(facts) else {}


def make(facts, me, n):
    return create(facts.name, me, n, **options(facts, n))


def widest_cast(facts):
    """The cast that asks most of a protocol: multicast if it takes them, be it to groups only."""
    return next(cast for cast in (MULTICAST, UNICAST, BROADCAST) if cast in facts.casts)


def some_destinations(facts, n, sender=0):
    """Destinations that this sender may name, others than itself wherever there are others."""
    others = [p for p in range(n) if p != sender] or [sender]
    return others[:1] if widest_cast(facts) == UNICAST else others


def destinations(facts, choose, sender, active, present):
    """A set that the protocol may be asked to send to: some of the active ones, or what its groups leave."""
    cast = widest_cast(facts)
    if cast == MULTICAST and not facts.fixed_groups:
        return choose.some(active, 9)
    if cast == UNICAST:
        return {choose.one(active)}
    groups = overlapping(max(present) + 1) if takes_groups(facts) else [set(present)]
    group = choose.one([group & set(present) for group in groups if sender in group])
    return group - {sender} if len(group) > 1 and choose.flip() else group


def is_application(message):
    return bool(message.dests)


def arranged(facts, pending):
    """What is held in an order that two machines in the same state must share."""
    if facts.waits_only_for_past:
        return pending
    return sorted(pending, key=lambda held: (held.since, held.message.sender, held.message.clock))


class Packet(NamedTuple):
    message: Any
    serial: int  # in the order of all sends
    knew: int  # how many changes of members its sender had heard of


class Change(NamedTuple):
    kind: str  # join, leave, expel
    index: int
    who: int  # see System.uids
    serial: int  # of the last packet before it


class System:
    """Processes are told apart by their `uids`: the index, or a larger number if somebody else had that."""

    def __init__(self, facts, n, *, act=None):
        self.facts = facts
        self.machines = [make(facts, p, n) for p in range(n)]
        self.active = list(range(n))[-act:] if act else list(range(n))  # who sends, is sent to, and may leave
        self.uids = list(range(n))
        self.history = History()
        self.channels = {}  # (source, destination) -> packets in the order sent
        self.payloads = {}
        self.token = None  # of a serialized protocol: what its next sender must be told
        self.made = []  # every message put on a link, in order
        self.decoded = None  # the last of these, after its trip over the wire
        self.serial = 0
        self.newest = {}  # (source, destination) -> the largest serial that has arrived
        # Changes of members, and how far each process has got with them.
        self.changes = []
        self.heard = [0] * n
        self.gone = {}  # index -> its change, until the index is given again
        self.stopped = set()  # indices of those who were expelled: they take no step
        self.lost = set()  # uids of those who were expelled
        self.departed = set()  # uids of everybody who has left or was expelled
        self.closed = [set() for _ in range(n)]
        self.forgotten = [{} for _ in range(n)]  # index -> the serial of the last packet before that

    # What may happen.

    @property
    def present(self):
        return [p for p in range(len(self.machines)) if p not in self.gone]

    def multicast(self, choose, payload=None):
        sender = choose.one(self.active)
        if self.token is not None:
            self.hear_all(sender)  # like a message, the right to send comes after what its giver had heard
        self.send(sender, self.destinations(choose, sender), payload)

    def destinations(self, choose, sender):
        """As far as the sender knows who is there: some of those it names may have left."""
        seen = set(unpack(self.machines[sender].present))
        active = [p for p in range(len(self.machines)) if p in seen and (p in self.active or p in self.gone)]
        return destinations(self.facts, choose, sender, active, seen)

    def name(self, message_or_effect):
        return self.uids[message_or_effect.sender], message_or_effect.clock

    def send(self, sender, to, payload=None):
        machine, necessary = self.machines[sender], None
        if self.facts.optimal:
            necessary = self.history.log(self.uids[sender])
        if self.token is not None:
            machine.follow(self.token)
        payload = b"%d" % len(self.payloads) if payload is None else payload
        coming = machine.coming_clock
        clock, effects = machine.multicast(to, payload)
        assert clock == coming, f"M({sender}, {clock}) was to be called M({sender}, {coming})"
        if self.facts.serialized:
            self.token = machine.latest
        name = (self.uids[sender], clock)
        assert clock > 0 and name not in self.payloads, f"a second message is called M{name}"
        self.payloads[name] = payload
        self.history.send(self.uids[sender], name, {self.uids[d] for d in to})
        self.check_sends((sender, clock), to, effects)
        if necessary is not None:
            whom = {self.uids[d] for d in to}
            for d, message in (effect for effect in effects if isinstance(effect, Send)):
                required = self.necessary(sender, self.history.edge(necessary, whom, self.uids[d]))
                self.check_necessary(message.units(), required, f"M{name} on its edge to {d}")
        self.perform(sender, effects)
        return effects

    def necessary(self, process, units):
        """What PC1 and PC2 require of a process that knows who has left: nothing about messages to those, nor
        about the messages of those whom everybody has closed with."""
        index = {who: p for p, who in enumerate(self.uids)}
        machine = self.machines[process]
        return frozenset(
            (index[s], t, index[d])
            for s, t, d in units
            if s in index and d in index
            if not machine.gone >> index[d] & 1 and not machine.forgotten >> index[s] & 1
        )

    def check_necessary(self, units, required, what):
        """Exactly what is required, but of messages whose sender somebody has forgotten: all of them have
        arrived everywhere by then, and who has forgotten it tells others neither of these messages nor of
        what became of them. So they may know of them or not, until they forget it too."""
        open_to_doubt = {unit for unit in units ^ required if any(unit[0] in each for each in self.forgotten)}
        lacks, more = required - units - open_to_doubt, units - required - open_to_doubt
        assert not lacks, f"{what} lacks {lacks}"
        assert not more, f"{what} has {more}, which is not necessary"

    def check_sends(self, name, to, effects):
        """Each destination is sent a copy or has its delivery, unless somebody relays or the sender waits."""
        if self.facts.relays or self.facts.waits_at_sender:
            return
        copies = [e for e in effects if isinstance(e, Send) and is_application(e.message)]
        delivered = {name[0] for e in effects if not isinstance(e, Send) and (e.sender, e.clock) == name}
        assert {copy.to for copy in copies} | delivered >= set(to) - {name[0]}
        assert {copy.to for copy in copies} <= set(to)
        for copy in copies:
            assert (copy.message.sender, copy.message.clock) == name
            assert copy.message.to == frozenset(to)

    def perform(self, process, effects):
        for effect in effects:
            if isinstance(effect, Send):
                self.put_on_link(process, effect.to, effect.message)
            else:
                self.deliver(process, self.name(effect), effect.payload)
        if self.facts.optimal and process not in self.gone:
            told = having(self.machines[process], TellsUnits)
            assert told is not None, "an optimal protocol tells the units of its log"
            log = told.log_units()
            required = self.necessary(process, self.history.log(self.uids[process]))
            self.check_necessary(log, required, f"log of {process}")

    def put_on_link(self, source, to, message):
        if not self.made or message is not self.made[-1]:  # copies that are one value are looked at once
            frame = wire.encode(message)
            self.decoded, used = wire.decode(frame)
            assert self.decoded == message and type(self.decoded) is type(message) and used == len(frame)
            assert message.via in (None, source), f"{source} sends what claims to come from {message.via}"
            self.check_size(message)
            self.check_carried(message)
        self.made.append(message)
        self.serial += 1
        if to not in self.stopped and to not in self.closed[source]:
            packet = Packet(self.decoded, self.serial, self.heard[source])
            self.channels.setdefault((source, to), []).append(packet)

    def check_size(self, message):
        entries, units = message.size()
        assert units == len(message.units()) and entries >= 0 and message.model_bytes() >= 0
        assert is_application(message) or not message.payload, "a control message is for no application"
        assert bool(message.to) == is_application(message)
        if is_application(message) and self.facts.entries is not None:
            assert entries == self.facts.entries(message.n)
        if not self.facts.relays:  # those that relay speak of hops
            dests = self.history.dests
            units = ((self.uids[s], t, self.uids[d]) for s, t, d in message.units())
            assert all((s, t) in dests and d in dests[s, t] for s, t, d in units)

    def check_carried(self, message):
        """What a message carries is as its origin sent it, whoever passes it on: so it can be signed."""
        carried = message.carries()
        assert not is_application(message) or any(self.name(each) == self.name(message) for each in carried)
        for each in carried:
            assert each.payload == self.payloads[self.name(each)]
            assert {self.uids[d] for d in unpack(each.dests)} == self.history.dests[self.name(each)]

    def deliver(self, process, name, payload):
        history, facts, who = self.history, self.facts, self.uids[process]
        assert payload == self.payloads[name], f"M{name} is delivered with another payload"
        assert who in history.dests[name], f"M{name} is not addressed to {who}"
        assert name not in history.order.get(who, []), f"M{name} is delivered twice at {who}"
        for other in history.overtaken_by(who, name):
            assert other[0] in self.lost or self.may_overtake(name, other), (
                f"M{name} overtakes M{other} at {who}"
            )
        if name[0] in self.lost and facts.order.is_causal:
            late = [m for m in history.order.get(who, []) if ("send", name) in history.before[m]]
            assert not late, f"M{name} comes to {who} after {late}, which it precedes"
        history.deliver(who, name)
        if facts.order.is_total and who not in self.lost:
            self.check_agreement(who)

    def may_overtake(self, name, other):
        if self.facts.order.is_causal:
            return False
        if self.facts.order is Order.FIFO:
            chain = self.facts.longest_chain or 1
            return self.history.chain_length(other, name) > chain
        return True  # total order alone

    def check_agreement(self, process):
        *before, name = self.history.order[process]
        for q, order in self.history.order.items():
            if name in order and q not in self.lost:
                after = set(before) & set(order[order.index(name) + 1 :])
                assert not after, f"{process} delivers {after} before M{name}, and {q} after it"

    def arrive(self, choose, *, duplicate=False):
        """The network hands over some packet; those of a FIFO link in order. A duplicate stays on its way."""
        channel = choose.one(sorted(channel for channel, packets in self.channels.items() if packets))
        packets = self.channels[channel]
        i = 0 if self.facts.fifo_links else choose.one(range(len(packets)))
        self.take_packet(channel, packets[i] if duplicate else packets.pop(i))

    def take_packet(self, channel, packet):
        source, to = channel
        before = self.channels.get(channel)
        while self.heard[to] < packet.knew:
            self.hear(to)
        # By what it has heard meanwhile it may not listen to the source any more.
        if (
            source not in self.stopped
            or source not in self.closing(to)
            or before is self.channels.get(channel)
        ):
            self.newest[channel] = max(self.newest.get(channel, 0), packet.serial)
            self.receive(to, packet.message)

    def receive(self, process, message):
        effects = self.machines[process].receive(message)
        self.perform(process, effects)
        return effects

    @property
    def in_flight(self):
        return any(self.channels.values())

    # Members. Everybody hears of every change, in the same order, at the latest with the first message of
    # somebody who has; see `Machine`.

    def join(self):
        index = next((p for p in sorted(self.gone) if self.is_free(p)), len(self.machines))
        if index == len(self.machines):
            for table, empty in ((self.machines, None), (self.uids, 0), (self.heard, 0)):
                table.append(empty)
            self.closed.append(set())
            self.forgotten.append({})
        else:
            del self.gone[index]
            self.stopped.discard(index)
            for table in (*self.closed, *self.forgotten):
                if index in table:
                    table.remove(index) if isinstance(table, set) else table.pop(index)
            self.channels = {channel: p for channel, p in self.channels.items() if index not in channel}
            self.newest = {channel: s for channel, s in self.newest.items() if index not in channel}
        who = max(self.uids) + 1 if index in self.uids else index
        self.uids[index] = len(self.changes) + 1000 if who != index else index
        self.machines[index] = machine = make(self.facts, index, len(self.machines))
        self.closed[index], self.forgotten[index] = set(), {}
        for gone in sorted(self.gone):
            machine.leave(gone)
        self.changes.append(Change("join", index, self.uids[index], self.serial))
        self.heard[index] = len(self.changes)
        for gone in sorted(self.gone):
            self.close(index, gone)
        self.active.append(index)

    def leave(self, process):
        """What is on its way to the process still arrives, and it answers. It waits until all has left it."""
        if self.machines[process].queued:
            return
        self.perform(process, self.machines[process].leave(process))
        self.depart("leave", process)
        with pytest.raises(LocalProtocolError, match="has left"):
            self.hear_all(self.active[0])
            self.machines[self.active[0]].multicast([process], b"")

    @property
    def may_expel(self):
        """Whether one more may be expelled. Where only one may be at a time, everybody has closed with the
        one before."""
        unclosed = any(gone not in self.closed[p] for gone in self.stopped for p in self.present)
        return may_depart(self) and self.facts.expulsions and (not self.facts.expels_one or not unclosed)

    def expel(self, choose, process):
        """It stops. Of what it has put on each link, the first so many still arrive."""
        self.stopped.add(process)
        self.lost.add(self.uids[process])
        for channel, packets in self.channels.items():
            if channel[1] == process:
                packets.clear()
            elif channel[0] == process and packets:
                least = self.newest.get(channel, 0)
                until = choose.one(sorted({least, *(p.serial for p in packets if p.serial > least)}))
                packets[:] = [packet for packet in packets if packet.serial <= until]
        self.depart("expel", process)

    def depart(self, kind, process):
        self.active.remove(process)
        self.departed.add(self.uids[process])
        self.gone[process] = change = Change(kind, process, self.uids[process], self.serial)
        self.changes.append(change)

    def hear(self, process):
        """The next change of members comes to a process."""
        change = self.changes[self.heard[process]]
        machine = self.machines[process]
        if change.kind == "expel":
            channel = (change.index, process)
            due, least = self.channels.pop(channel, []), self.newest.get(channel, 0)
            for packet in due:  # a link is a prefix of what was put on it: the rest is not listened to
                if packet.serial < least:
                    self.receive(process, packet.message)
        self.heard[process] += 1
        if change.index == process:
            return  # our own departure
        if change.kind == "join":
            self.perform(process, machine.join(change.index))
            assert machine.n == max(machine.n, change.index + 1)
        else:
            gone = machine.expel if change.kind == "expel" else machine.leave
            self.perform(process, gone(change.index))

    def hear_all(self, process):
        while self.heard[process] < len(self.changes):
            self.hear(process)

    def closing(self, process):
        """Whom a process has heard to be gone, and has not closed with."""
        machine = self.machines[process]
        return [
            p for p in self.gone if machine.gone >> p & 1 and p != process and p not in self.closed[process]
        ]

    def may_close(self, process):
        """The processes that this one may close with now; those who were expelled all together."""
        found, expelled = [], []
        closing = self.closing(process)
        if not closing:
            return []
        for gone in closing:
            change = self.gone[gone]
            if change.kind == "expel":
                expelled.append(gone)
            elif not any(p.serial <= change.serial for p in self.channels.get((gone, process), ())):
                found.append(gone)
        number = max((self.changes.index(self.gone[p]) for p in expelled), default=-1) + 1
        # Its own messages to itself too: what the expelled one sent to others may have told of them. Who has
        # left and is not known to have is waited for like those who are there.
        present = unpack(self.machines[process].present)
        complete = all(
            self.heard[p] >= number
            and not any(packet.knew < number for packet in self.channels.get((p, process), ()))
            for p in present
        )
        leaving = [p for p in closing if p not in expelled and p not in found]
        return found + (expelled if complete and not leaving else [])

    def close(self, process, gone):
        self.closed[process].add(gone)
        if gone in self.stopped:
            self.channels.pop((process, gone), None)
        self.perform(process, self.machines[process].close(gone))

    def may_forget(self, process):
        """Whom a process may forget: everybody has closed with it, and holds nothing of it."""
        due = [gone for gone in self.gone if gone not in self.forgotten[process]]
        present = self.present if due else []
        return [
            gone
            for gone in due
            if all(gone in self.closed[p] for p in present)
            and not any(h.message.sender == gone for p in present for h in self.machines[p].pending())
        ]

    def forget(self, process, gone):
        self.machines[process].forget(gone)
        self.forgotten[process][gone] = self.serial
        self.perform(process, [])

    def is_free(self, index):
        """Whether nothing on its way, nor anybody, can name the process that had this index."""
        if not self.facts.recycles or index not in self.gone:
            return False
        if self.gone[index].kind == "leave" and any(index in c for c, p in self.channels.items() if p):
            return False
        return all(index in self.forgotten[p] for p in self.present) and not any(
            packet.serial <= self.forgotten[source].get(index, 0)
            for (source, _), packets in self.channels.items()
            if source in self.present
            for packet in packets
        )

    def settle(self, choose, *, all_of_it=False):
        """Something that follows from a change happens at some process; with `all_of_it`, everything does."""
        while self.changes and self._settle_somewhere(choose) and all_of_it:
            pass

    def _settle_somewhere(self, choose):
        """One thing happens, at the first process from some on where anything can; whether it does."""
        present = self.present
        start = choose.one(range(len(present)))
        for process in present[start:] + present[:start]:
            steps = [(self.hear, (process,))] if self.heard[process] < len(self.changes) else []
            steps += [(self.close, (process, gone)) for gone in self.may_close(process)]
            steps += [(self.forget, (process, gone)) for gone in self.may_forget(process)]
            if steps:
                act, arguments = choose.one(steps)
                act(*arguments)
                return True
        return False

    def restart(self, process):
        old = self.machines[process]
        self.machines[process] = new = make(self.facts, process, old.n)
        new.restore(old.snapshot())
        assert new.snapshot() == old.snapshot()
        assert arranged(self.facts, new.pending()) == arranged(self.facts, old.pending())

    def tick(self, process):
        machine = self.machines[process]
        assert machine.tick() == machine.clock > 0

    def hand_over(self, choose):
        """The coordinator names its successor, unless the role is on its way."""
        holders = [self.machines[p] for p in self.active if self.machines[p].has_role]
        others = [p for p in unpack(holders[0].present) if p != holders[0].me] if holders else []
        if others:
            self.perform(holders[0].me, holders[0].hand_over(choose.one(others)))

    @property
    def hands_over(self):
        return self.facts.relays is Relays.COORDINATOR

    # What always holds.

    def check_held(self):
        for process in self.active:
            for held in self.machines[process].pending():
                name = self.name(held.message)
                assert held.waits_for and held.since > 0
                assert self.uids[process] in self.history.dests[name]
                assert name not in self.history.order.get(self.uids[process], [])
                self.check_named(self.uids[process], name, {(self.uids[s], t) for s, t in held.waits_for})

    def check_named(self, process, name, named):
        facts, history = self.facts, self.history
        missing = history.overtaken_by(process, name)
        if not facts.names_missing and not facts.waits_only_for_past:
            return
        if facts.order.is_total:  # what is undecided, itself included, and what comes first for others
            assert named <= history.dests.keys() - set(history.order.get(process, []))
        elif facts.names_missing and facts.serialized:  # sends are ordered beyond happened-before
            assert named <= {key for key, x in history.undelivered() if x == process}
        elif facts.names_missing:
            assert named <= missing, f"M{name} at {process} waits for {named}, and {missing} is missing"
        else:
            missing = {m for m in missing if m[0] not in self.lost}
            assert all(any(s == p and t <= clock for p, clock in named) for s, t in missing)

    def drain(self, choose):
        """Everything on its way arrives; then nothing is left undelivered, held or kept back."""
        while self.in_flight:
            self.arrive(choose)
            self.settle(choose)
        self.settle(choose, all_of_it=True)
        while self.in_flight:
            self.arrive(choose)
            self.settle(choose, all_of_it=True)
        left = {
            (m, x) for m, x in self.history.undelivered() if x not in self.departed and m[0] not in self.lost
        }
        assert not left, f"never delivered: {sorted(left)[:5]}"
        staying = [self.machines[p] for p in self.present]
        assert not any(machine.pending() or machine.queued for machine in staying)
        if self.facts.order.is_total:
            self.check_one_order()

    def check_one_order(self):
        """There is one order of all messages that every process kept; whoever was expelled, until others
        could know."""
        sorter: TopologicalSorter[Any] = TopologicalSorter()
        for who, order in self.history.order.items():
            for earlier, later in pairwise(order):
                if who not in self.lost:
                    sorter.add(later, earlier)
        sorter.prepare()  # raises if the orders contradict one another


def busy(facts, n, dice, sends=40, arrive=0.7):
    """A system in the middle of its work, judged; its messages carry something worth looking at."""
    system = System(facts, n)
    for _ in range(sends):
        if len(system.made) > ENOUGH:
            break
        system.multicast(dice, payload=dice.randbytes(dice.randint(0, 20)))
        while system.in_flight and dice.random() < arrive:
            system.arrive(dice)
        if system.hands_over and dice.random() < 0.3:
            system.hand_over(dice)
    return system


def may_depart(system):
    return system.facts.departures and len(system.active) > 2


def walk(system, dice, steps):
    """One step after another, each of them anything that may happen within the assumptions."""
    for _ in range(steps):
        while dice.random() < 0.3:
            system.settle(dice)
        roll = dice.random()
        if roll < 0.35:
            system.multicast(dice)
        elif roll < 0.75:
            if system.in_flight:
                system.arrive(dice, duplicate=dice.random() < 0.2)
        elif roll < 0.85:
            system.restart(dice.one(system.active))
        elif roll < 0.9:
            system.tick(dice.one(system.active))
        elif roll < 0.94:
            if system.facts.joins and len(system.active) < 6:
                system.join()
        elif roll < 0.96:
            if may_depart(system):
                system.leave(dice.one(system.active))
        elif roll < 0.98:
            if system.may_expel:
                system.expel(dice, dice.one(system.active))
        elif system.hands_over:
            system.hand_over(dice)
        system.check_held()
