"""Machines of one protocol, the packets between them, and a judge; what they may be asked, its Facts say.

The judge (`oracles.history`) keeps sets of events and never looks at what messages carry. Every packet makes
a trip over the wire. Whoever drives a `System` decides what happens next: dice, or Hypothesis (`Choices`).
"""

import random
from graphlib import TopologicalSorter
from itertools import combinations, pairwise
from typing import Any, Protocol

import pytest

from happened import wire
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.core.orders import Order
from happened.ordering import create
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


class System:
    def __init__(self, facts, n, *, act=None):
        self.facts = facts
        self.machines = [make(facts, p, n) for p in range(n)]
        self.active = list(range(n))[-act:] if act else list(range(n))  # who sends, is sent to, and may leave
        self.gone = set()
        self.history = History()
        self.channels = {}  # (source, destination) -> packets in the order sent
        self.payloads = {}
        self.token = None  # of a serialized protocol: what its next sender must be told
        self.made = []  # every message put on a link, in order
        self.decoded = None  # the last of these, after its trip over the wire

    # What may happen.

    @property
    def present(self):
        return [p for p in range(len(self.machines)) if p not in self.gone]

    def multicast(self, choose, payload=None):
        sender = choose.one(self.active)
        self.send(sender, self.destinations(choose, sender), payload)

    def destinations(self, choose, sender):
        return destinations(self.facts, choose, sender, self.active, self.present)

    def send(self, sender, to, payload=None):
        machine, necessary = self.machines[sender], None
        if self.facts.optimal:
            necessary = self.history.log(sender)
        if self.token is not None:
            machine.follow(self.token)
        payload = b"%d" % len(self.payloads) if payload is None else payload
        clock, effects = machine.multicast(to, payload)
        if self.facts.serialized:
            self.token = machine.latest
        name = (sender, clock)
        assert clock > 0 and name not in self.payloads, f"a second message is called M{name}"
        self.payloads[name] = payload
        self.history.send(sender, name, to)
        self.check_sends(name, to, effects)
        if necessary is not None:
            for d, message in (effect for effect in effects if isinstance(effect, Send)):
                required = self.history.edge(necessary, to, d)
                assert message.units() == required, f"M{name} on its edge to {d}: {required} is necessary"
        self.perform(sender, effects)
        return effects

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
                self.deliver(process, (effect.sender, effect.clock), effect.payload)
        if self.facts.optimal:
            log = self.machines[process].log_units()
            assert log == self.history.log(process), f"log of {process}"

    def put_on_link(self, source, to, message):
        if not self.made or message is not self.made[-1]:  # copies that are one value are looked at once
            frame = wire.encode(message)
            self.decoded, used = wire.decode(frame)
            assert self.decoded == message and type(self.decoded) is type(message) and used == len(frame)
            assert message.via in (None, source), f"{source} sends what claims to come from {message.via}"
            self.check_size(message)
        self.made.append(message)
        self.channels.setdefault((source, to), []).append(self.decoded)

    def check_size(self, message):
        entries, units = message.size()
        assert units == len(message.units()) and entries >= 0 and message.model_bytes() >= 0
        assert is_application(message) or not message.payload, "a control message is for no application"
        assert bool(message.to) == is_application(message)
        if is_application(message) and self.facts.entries is not None:
            assert entries == self.facts.entries(len(self.machines))
        if not self.facts.relays:  # those that relay speak of hops
            dests = self.history.dests
            assert all((s, t) in dests and d in dests[s, t] for s, t, d in message.units())

    def deliver(self, process, name, payload):
        history, facts = self.history, self.facts
        assert payload == self.payloads[name], f"M{name} is delivered with another payload"
        assert process in history.dests[name], f"M{name} is not addressed to {process}"
        assert name not in history.order.get(process, []), f"M{name} is delivered twice at {process}"
        for other in history.overtaken_by(process, name):
            assert self.may_overtake(name, other), f"M{name} overtakes M{other} at {process}"
        history.deliver(process, name)
        if facts.order.is_total:
            self.check_agreement(process)

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
            if name in order:
                after = set(before) & set(order[order.index(name) + 1 :])
                assert not after, f"{process} delivers {after} before M{name}, and {q} after it"

    def arrive(self, choose, *, duplicate=False):
        """The network hands over some packet; those of a FIFO link in order. A duplicate stays on its way."""
        channel = choose.one(sorted(channel for channel, packets in self.channels.items() if packets))
        packets = self.channels[channel]
        i = 0 if self.facts.fifo_links else choose.one(range(len(packets)))
        self.receive(channel[1], packets[i] if duplicate else packets.pop(i))

    def receive(self, process, message):
        effects = self.machines[process].receive(message)
        self.perform(process, effects)
        return effects

    @property
    def in_flight(self):
        return any(self.channels.values())

    def join(self):
        index = len(self.machines)
        for machine in self.machines:
            machine.join(index)
            assert machine.n == index + 1
        self.machines.append(make(self.facts, index, index + 1))
        for gone in sorted(self.gone):
            self.machines[index].leave(gone)
        self.active.append(index)

    def leave(self, process):
        """What is on its way to the process still arrives."""
        self.active.remove(process)
        self.gone.add(process)
        for machine in self.machines:
            machine.leave(process)
        with pytest.raises(LocalProtocolError, match="has left"):
            self.machines[self.active[0]].multicast([process], b"")

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
        holders = [m for m in self.machines if m.coordinator == m.me and m.me in self.active]
        others = [p for p in self.active if holders and p != holders[0].me]
        if others:
            self.perform(holders[0].me, holders[0].hand_over(choose.one(others)))

    @property
    def hands_over(self):
        return self.facts.relays is Relays.COORDINATOR

    # What always holds.

    def check_held(self):
        for process in self.active:
            for held in self.machines[process].pending():
                name = (held.message.sender, held.message.clock)
                assert held.waits_for and held.since > 0
                assert process in self.history.dests[name]
                assert name not in self.history.order.get(process, [])
                self.check_named(process, name, set(held.waits_for))

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
            assert all(any(s == p and t <= clock for p, clock in named) for s, t in missing)

    def drain(self, choose):
        """Everything on its way arrives; then nothing is left undelivered, held or kept back."""
        while self.in_flight:
            self.arrive(choose)
        left = self.history.undelivered()
        assert not left, f"never delivered: {sorted(left)[:5]}"
        assert not any(machine.pending() or machine.queued for machine in self.machines)
        if self.facts.order.is_total:
            self.check_one_order()

    def check_one_order(self):
        """There is one order of all messages that every process kept."""
        sorter: TopologicalSorter[Any] = TopologicalSorter()
        for order in self.history.order.values():
            for earlier, later in pairwise(order):
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


def walk(system, dice, steps):
    """One step after another, each of them anything that may happen within the assumptions."""
    for _ in range(steps):
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
        elif roll < 0.97:
            if system.facts.departures and len(system.active) > 2:
                system.leave(dice.one(system.active))
        elif system.hands_over:
            system.hand_over(dice)
        system.check_held()
