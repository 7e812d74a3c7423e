"""Replicas that join late begin with the state of another and end like all, whatever is killed.

Engines exchange frames in one process. Each has an application that appends what is delivered to a log of its
own and acknowledges it at once; what it had when the journal was last written is what a kill leaves. The
judge has the logs, and what the sender of each message had in its own when it sent.
"""

import json
from collections import Counter
from random import Random

import pytest

import effort
from happened.core.destinations import pack
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.core.orders import Order
from happened.net.batch import Delivery
from happened.net.engine import Engine
from happened.net.state_transfer import (
    MOST_NAMES,
    MOST_SETS,
    STATE_CLOCK,
    Owed,
    TransferTally,
)
from happened.ordering import protocols
from happened.wire.membership import StateGiven, encode

FOUNDERS = ("a", "b", "c")


def usable():
    return sorted(
        name
        for name, facts in protocols().items()
        if facts.membership.joins
        and {"unicast", "multicast"} <= facts.assumes.casts
        and not facts.assumes.serialized
        and not facts.qualifier.keyword
    )


class Replica:
    """One process with its journal and its application."""

    def __init__(self, world, name, members, state_from=None):
        self.world, self.name, self.members = world, name, members
        self.journal, self.snapshot, self.taken_at = [], None, 0
        self.log, self.kept = [], []
        self.fresh, self.through, self.uncommitted = [], {}, []
        self.begins = self.kept_begins = 0
        self.needs_state = state_from is not None
        self.engine = self.new_engine()
        if state_from is not None:
            self.engine.transfers.wait_for(self.engine.roster.index(state_from))
            self.commit()

    def new_engine(self):
        return Engine(self.name, self.members, self.world.protocol)

    def multicast(self):
        engine = self.engine
        if self.needs_state > self.begins or engine.has_left:  # what it does in a step, it does to its state
            return
        self.world.names += 1
        name = f"{self.name}/{self.world.names}"
        self.world.past[name] = frozenset(self.log)
        self.uncommitted.append(name)
        present, act = (
            [p for p in range(len(engine.roster)) if p not in engine.gone],
            self.world.dice.random(),
        )
        if "total" in protocols()[self.world.protocol].order or act < 0.4:
            engine.multicast(present, name.encode())
        elif act < 0.6:
            self.world.unordered.add(name)
            engine.unordered.multicast(present, name.encode())
        else:
            present.remove(engine.me)  # done here in the step in which it is sent
            self.log.append(name)
            engine.multicast(present, name.encode())

    def commit(self):
        batch = self.engine.cut()
        self.journal.append(batch.entries)
        self.engine.release(batch)
        self.fresh += batch.deliveries
        self.kept, self.kept_begins, self.uncommitted = list(self.log), self.begins, []
        if self.world.dice.random() < 0.1:
            self.snapshot, self.taken_at = self.engine.snapshot(), len(self.journal)
            copy = self.new_engine()
            copy.restore(self.snapshot)
            assert copy.snapshot() == self.snapshot

    def kill(self):
        self.engine = self.new_engine()
        if self.snapshot is not None:
            self.engine.restore(self.snapshot)
        for entries in self.journal[self.taken_at :]:
            self.engine.replay(entries, 0)
        self.fresh = list(self.engine.unacknowledged.values())
        self.log, self.begins, self.through = list(self.kept), self.kept_begins, {}
        for name in self.uncommitted:  # nobody has seen these
            del self.world.past[name]
        self.uncommitted = []

    def consume(self, most):
        for _ in range(most):
            if not self.fresh:
                return
            delivery = self.fresh.pop(0)
            if delivery.clock == STATE_CLOCK:
                assert not self.log, "the state comes first, and once"
                self.log = json.loads(delivery.payload)
                self.begins += 1
            else:
                self.log.append(delivery.payload.decode())
            self.engine.acknowledge(delivery.number)

    def give_states(self):
        """What giving_state.py does."""
        engine = self.engine
        for newcomer in list(engine.transfers.owed):
            if newcomer not in self.through:
                if engine.transfers.waits_for(newcomer):
                    continue
                self.through[newcomer] = engine.delivered
            if engine.acknowledged >= self.through[newcomer]:
                engine.transfers.send_state(
                    newcomer, json.dumps(self.log).encode(), self.world.dice.choice((7, 100, 10**6))
                )
                del self.through[newcomer]


class World:
    def __init__(self, protocol, dice):
        self.protocol, self.dice = protocol, dice
        self.past, self.names, self.kills = {}, 0, 0
        self.unordered = set()  # whose order nobody keeps
        self.replicas = {}
        for name in FOUNDERS:
            self.replicas[name] = Replica(self, name, FOUNDERS)

    def carry(self, sender, receiver, most):
        """Some frames of one link."""
        ours, theirs = sender.engine, receiver.engine
        if receiver.name not in ours.roster or sender.name not in theirs.roster:
            return
        link, back = ours.roster.index(receiver.name), theirs.roster.index(sender.name)
        outbox, inbox = ours.outboxes[link], theirs.inboxes[back]
        for _, frame in outbox.after(max(inbox.received_through, outbox.acknowledged), most):
            theirs.receive(back, frame)
        ours.free(link, inbox.durable)

    def step(self, *, sends=True):
        dice, replicas = self.dice, list(self.replicas.values())
        replica, act = dice.choice(replicas), dice.random()
        if act < 0.15 and sends:
            replica.multicast()
        elif act < 0.6:
            others = [each for each in replicas if each is not replica]
            self.carry(dice.choice(others), replica, dice.randint(1, 300))
        elif act < 0.75:
            replica.consume(dice.randint(1, 4))
        elif act < 0.8:
            replica.give_states()
        elif act < 0.97 or not sends:
            replica.commit()
        else:
            self.kills += 1
            replica.kill()

    def admit(self, registrar, name):
        replica = self.replicas[registrar]
        index = replica.engine.join(name, "")
        replica.engine.transfers.owe(index)
        replica.commit()
        members = tuple(replica.engine.roster.name(p) for p in range(len(replica.engine.roster)))
        self.replicas[name] = Replica(self, name, members, registrar)

    def is_busy(self):
        engines = [each.engine for each in self.replicas.values()]
        return any(
            e.machine.queued or e.transfers.owed or e.transfers.awaited or e.machine.pending_count
            for e in engines
        )

    def settle(self):
        for _ in range(400):
            if not self.is_busy() and all(len(each.log) == len(self.past) for each in self.replicas.values()):
                return
            for sender in self.replicas.values():
                for receiver in self.replicas.values():
                    if sender is not receiver:
                        self.carry(sender, receiver, 1 << 30)
            for replica in self.replicas.values():
                replica.consume(1 << 30)
                replica.give_states()
                replica.commit()

    def judge(self):
        facts = protocols()[self.protocol]
        logs = {name: replica.log for name, replica in self.replicas.items()}
        everything = sorted(self.past)
        for name, log in logs.items():
            assert sorted(log) == everything, f"{name} lacks {set(everything) - set(log)} or has some twice"
            if Order.CAUSAL in facts.order:
                place = {message: at for at, message in enumerate(log)}
                early = [
                    m
                    for m in log
                    if m not in self.unordered
                    for before in self.past[m] - self.unordered
                    if place[before] > place[m]
                ]
                assert not early, f"{name} has {early[:3]} too early"
        if "total" in facts.order:
            assert all(log == logs["a"] for log in logs.values())


def run(protocol, dice, *, expels):
    world = World(protocol, dice)
    for _ in range(dice.randint(30, 120)):
        world.step()
    if expels and protocols()[protocol].membership.expulsions:
        del world.replicas["c"]  # gone for good, whatever it had sent to some
        world.replicas["a"].engine.leave("c")
        world.replicas["a"].commit()
        while any(
            each.expelled and not each.closed
            for each in world.replicas["a"].engine.members.departures.values()
        ):
            world.step()
    world.admit("a", "d")
    for _ in range(dice.randint(20, 150)):
        world.step()
    world.admit("a", "e")
    for _ in range(dice.randint(50, 250)):
        world.step()
    for _ in range(40):
        world.step(sends=False)
    world.settle()
    return world


@pytest.mark.sampled
@pytest.mark.parametrize("protocol", usable())
def test_newcomers_end_like_the_others(protocol, dice: Random):
    kills = 0
    for _ in range(max(1, effort.samples(24))):
        world = run(protocol, dice, expels=False)
        world.judge()
        kills += world.kills
        assert world.replicas["d"].log and world.replicas["e"].begins == 1
        assert not any(each.engine.transfers.owed for each in world.replicas.values())
    assert kills


@pytest.mark.parametrize("protocol", ["ks", "sequencer", "agreed"])
def test_after_an_expulsion_the_newcomer_has_what_the_admitting_process_has(protocol, dice: Random):
    """What the expelled process had sent to some only is not recovered; the newcomers are like `a`."""
    for _ in range(3):
        world = run(protocol, dice, expels=True)
        logs = {name: sorted(replica.log) for name, replica in world.replicas.items()}
        assert logs["d"] == logs["a"] == logs["e"]


def test_what_a_state_contains_is_passed_over_once_also_after_a_restart():
    transfers, restored = (Engine("a", ("a", "b", "c"), "ks").transfers for _ in range(2))
    transfers.has_begun, transfers.contained = True, {1: [[2, 4], [7, 7], [9, 12]], 2: [[3, 3]]}
    head, _ = transfers.state()
    restored.restore(json.loads(json.dumps(head)), lambda length: b"")
    assert restored.has_begun
    for each in (transfers, restored):
        assert [clock for clock in range(15) if each.is_contained(1, clock)] == [2, 3, 4, 7, 9, 10, 11, 12]
        assert each.is_contained(2, 3) and not each.is_contained(3, 3)
    restored._joined(2)  # somebody else has that index now
    assert not restored.is_contained(2, 3)


def test_names_of_acknowledged_messages_are_put_together(dice: Random):
    """However many are delivered between admission and state, a few stretches are kept."""
    owed, open_ones = Owed([], {}), set()
    clocks = Counter()
    for number in range(1, 30_000):
        sender = dice.randrange(3)
        clocks[sender] += 2 if dice.random() < 0.001 else 1  # now and then one that is not for us
        open_ones.add(number)
        owed.hand_over(Delivery(number, sender, clocks[sender], b""), open_ones)
        if dice.random() < 0.9 and number > 50:
            open_ones = {each for each in open_ones if each > number - 50}
    assert len(owed.delivered) <= MOST_NAMES + 200
    owed.fold(open_ones)
    assert len(owed.delivered) == len(open_ones) and sum(map(len, owed.contained.values())) < 100
    named = sum(last - first + 1 for each in owed.contained.values() for first, last in each)
    assert named == 29_999 - len(open_ones)


def test_a_state_of_too_many_messages_is_refused_before_anything_is_sent():
    engine = Engine("a", ("a", "b"), "ks")
    engine.transfers.owe(1)
    with pytest.raises(LocalProtocolError, match="more than 3000"):
        engine.transfers.send_state(1, b"x" * 10_000, 3)
    assert engine.sent == 0 and engine.transfers.owed


def test_who_does_not_count_on_a_state_refuses_it_and_who_owes_none_says_so():
    a, b = Engine("a", ("a", "b"), "ks"), Engine("b", ("a", "b"), "ks")
    a.transfers.owe(1)
    a.release(a.cut())
    ((_, frame),) = a.outboxes[1].after(0, 1000)
    with pytest.raises(RemoteProtocolError, match="start this node anew, with state_from"):
        b.receive(0, frame)
    c = Engine("b", ("a", "b"), "ks")
    c.transfers.wait_for(0)
    c.release(c.cut())
    ((_, frame),) = c.outboxes[0].after(0, 1000)
    with pytest.raises(RemoteProtocolError, match=r"admit it at a node with Node\(state=…\)"):
        Engine("a", ("a", "b"), "ks").receive(1, frame)
    with pytest.raises(RemoteProtocolError, match="gives a state that nobody waits for"):
        b.receive(0, encode(StateGiven(1, (3,))))


def test_messages_that_are_no_state_are_refused_and_nothing_changes():
    a, b = Engine("a", ("a", "b"), "ks"), Engine("b", ("a", "b"), "ks")
    b.transfers.wait_for(0)
    a.multicast([1], b"no state")
    a.release(a.cut())
    ((_, frame),) = a.outboxes[1].after(0, 1000)
    b.receive(0, frame)
    b.release(b.cut())
    before = b.snapshot()
    with pytest.raises(RemoteProtocolError, match="gave no state that can be read"):
        b.receive(0, encode(StateGiven(1, (1,))))
    assert not b.is_dirty and b.snapshot() == before and b.delivered == 0


def test_messages_are_counted_by_destination_however_many_sets_there_are(seed):
    """Sets of destinations are told apart for a while only."""
    dice, tally, counted = Random(seed), TransferTally(), Counter()
    for _ in range(5 * MOST_SETS):
        to = dice.sample(range(100), dice.randint(1, 9))
        for _ in range(dice.randint(1, 3)):
            tally.count_sent(pack(to))
            counted.update(to)
        if dice.random() < 0.02:
            index = dice.choice(to)
            tally.forget(index)
            del counted[index]
    assert tally.sent == counted
    again = TransferTally()
    again.restore(sorted(tally.sent.items()), [])
    assert again.sent == counted
