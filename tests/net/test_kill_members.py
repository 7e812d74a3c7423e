"""Processes that are killed and restarted from their journals while others join, leave and are expelled.

Real engines and their journals, with a network of lists: every step is a throw of the seed's dice, so that
`--seed N` replays a run step by step. What was not journaled when a process is killed is lost, and nobody
has seen it. The judge is that of the contract (tests/contract/drive.py): sets of events, and nothing that
messages carry.
"""

import pytest

from contract.drive import Dice, System, destinations, options
from happened.net.engine import Engine
from happened.ordering import protocols
from oracles.history import History

NAMES = ["alice", "bob", "carol", "dave"]


class World(System):
    """Processes are known by their names; `engines` are those that run."""

    def __init__(self, facts, dice):
        self.facts, self.dice = facts, dice
        self.engines, self.started_with, self.journals = {}, {}, {}
        self.history, self.payloads = History(), {}
        self.leaving, self.departed, self.lost = set(), set(), set()
        self.expelled_by = {}
        self.knew = {}  # of those who have left, whom they had heard of by then
        self.ever = len(NAMES)
        self.faults = dict.fromkeys(("kill", "join", "leave", "expel"), 0)
        self.uids = Self()
        for name in NAMES:
            self.start(name, NAMES)

    def start(self, name, members):
        self.started_with[name], self.journals[name] = members, []
        self.engines[name] = self.engine(name)

    def engine(self, name):
        return Engine(name, self.started_with[name], self.facts.name, options(self.facts, len(NAMES)))

    # Steps. Each is one input of one engine, which is journaled, or lost if the process is killed first.

    def give(self, name, act, lethal=0.05):
        engine = self.engines[name]
        done = act(engine)
        if self.dice.random() < lethal and name not in self.leaving:
            self.faults["kill"] += 1
            self.engines[name] = again = self.engine(name)
            for entries in self.journals[name]:
                again.replay(entries, 0)
            return None
        batch = engine.cut()
        self.journals[name].append(batch.entries)
        if isinstance(done, tuple):
            payload, clock, to = done
            self.payloads[name, clock] = payload
            self.history.send(name, (name, clock), to)
        for _, sender, clock, delivered, _ in batch.deliveries:
            self.deliver(name, (engine.roster.name(sender), clock), delivered)
        engine.release(batch)
        return True

    def multicast_from(self, name):
        engine = self.engines[name]
        if self.facts.assumes.serialized and not self.has_turn(name):
            return
        present = [engine.roster.index(each) for each in engine.roster]
        to = destinations(self.facts, self.dice, engine.me, present, set(present))
        payload = b"%d" % len(self.payloads)

        def send(engine):
            clock = engine.multicast(sorted(to), payload)
            return payload, clock, {engine.roster.name(d) for d in to}

        self.give(name, send)
        if self.facts.assumes.serialized and self.dice.random() < 0.7 and self.engines[name].has_turn:
            self.give(name, lambda engine: engine.serialization.release(away=self.dice.random() < 0.2))

    def has_turn(self, name):
        """Whether the token is there; if it is not, it is asked for."""
        if not self.engines[name].has_turn:
            self.give(name, lambda engine: engine.serialization.want())
        return self.engines[name].has_turn

    def tokens(self):
        """Where the token is, now that nothing is on its way."""
        return [name for name, engine in self.engines.items() if engine.serialization.token.is_here]

    def waiting(self):
        """The links on which frames wait: (sender, link, receiver)."""
        found = []
        for name, engine in self.engines.items():
            for link, outbox in engine.outboxes.items():
                receiver = engine.roster.name(link)
                peer = self.engines.get(receiver)
                if outbox and peer is not None and self.knows(peer, engine):
                    found.append((name, link, receiver))
        return found

    @staticmethod
    def knows(peer, engine):
        """Whether a process would take a call of another: it has heard that this one has joined."""
        return engine.me < len(peer.roster) and peer.roster.name(engine.me) == engine.name

    def carry(self, lethal=0.05):
        name, link, receiver = self.dice.one(self.waiting())
        engine, outbox = self.engines[name], self.engines[name].outboxes[link]
        me = engine.me
        for number, frame in outbox.after(outbox.acknowledged, 1 << 20)[: self.dice.randint(1, 4)]:
            if self.engines[receiver].inboxes[me].received_through < number:
                taken = self.give(receiver, lambda peer, frame=frame: peer.receive(me, frame), lethal)
                if taken is None:
                    return
            self.give(name, lambda engine, number=number: engine.free(link, number), lethal=0)

    def change(self):
        staying = [name for name in self.engines if name not in self.leaving]
        kind = self.dice.one(["join", "leave", "expel"])
        if kind == "join" and self.facts.membership.joins and len(staying) < 7:
            admits = [e for e in map(self.engines.get, staying) if e.members.registrar == e.me]
            registrar = admits[0] if self.calm() else None
            if registrar is not None:
                name = f"p{self.ever}"
                self.ever += 1
                self.give(registrar.name, lambda engine: engine.join(name, "nowhere"), lethal=0)
                roster = self.engines[registrar.name].roster
                self.start(name, [roster.name(index) for index in range(len(roster))])
                self.faults["join"] += 1
        elif kind == "leave" and self.facts.membership.departures and len(staying) > 3:
            name = self.dice.one(staying)
            if self.facts.assumes.serialized and not self.has_turn(name):
                return
            if not self.engines[name].machine.queued:
                self.leaving.add(name)
                self.departed.add(name)
                self.give(name, lambda engine: engine.leave(name), lethal=0)
                self.faults["leave"] += 1
        elif (
            kind == "expel"
            and self.facts.membership.departures
            and self.facts.membership.expulsions
            and len(staying) > 3
        ):
            name = self.dice.one(staying)
            by = self.dice.one([other for other in staying if other != name])
            known = all(each in self.engines[other].roster for each in staying for other in staying)
            if known and (not self.facts.membership.expels_one or self.is_closed(staying)):
                del self.engines[name]
                self.departed.add(name)
                self.lost.add(name)
                self.expelled_by[name] = by
                self.give(by, lambda engine: engine.leave(name), lethal=0)
                self.faults["expel"] += 1

    def is_closed(self, staying):
        """Whether all know that all have closed with everybody who was expelled."""
        engines = [self.engines[name] for name in staying]
        return not any(name in engine.roster for name in self.lost for engine in engines) and all(
            each.stage > 1
            for engine in engines
            for each in engine.members.departures.values()
            if each.expelled
        )

    def calm(self):
        """Whether one process is known to be the registrar, and it is no process that leaves."""
        staying = [engine for name, engine in self.engines.items() if name not in self.leaving]
        if any(each.expelled and not each.closed for e in staying for each in e.members.departures.values()):
            return False
        registrars = {engine.name for engine in staying if engine.members.registrar == engine.me}
        agreed = {engine.roster.name(engine.members.registrar) for engine in staying}
        return len(registrars) == 1 and agreed == registrars

    def part(self):
        """Let go those who have everybody's farewell."""
        for name in sorted(self.leaving & self.engines.keys()):
            engine = self.engines[name]
            links = [link for link in engine.present_links() if engine.roster.name(link) in self.engines]
            if all(map(engine.members.has_parted, links)):
                self.knew[name] = set(engine.roster.ever())
                del self.engines[name]

    def run(self, steps):
        for _ in range(
            steps * (4 if self.facts.assumes.serialized else 1)
        ):  # the token makes its way in most of them
            roll = self.dice.random()
            if roll < 0.25:
                senders = [name for name in self.engines if name not in self.leaving]
                self.multicast_from(self.dice.one(senders))
            elif roll < 0.95:
                if self.waiting():
                    self.carry()
            else:
                self.change()
            self.part()
        self.drain_links()
        self.drop_strangers()
        assert not any(engine.members.awaited for engine in self.engines.values())
        self.expel_again()

    def drop_strangers(self):
        """Who was admitted by a registrar that was expelled before anybody else heard is nobody's member; nor
        is whoever only such a process knows."""
        while strangers := [name for name in sorted(self.engines) if not self.is_known(name)]:
            for name in strangers:
                assert name not in NAMES and self.faults["expel"]
                del self.engines[name]
                self.departed.add(name)
                self.lost.add(name)

    def is_known(self, name):
        return any(name in engine.roster.ever() for other, engine in self.engines.items() if other != name)

    def expel_again(self):
        """Who expelled a process may have been expelled before anybody heard: somebody does it again. And who
        left may not have heard of those who were admitted by a process that was expelled since."""
        for name, engine in list(self.engines.items()):
            for missing in [each for each in engine.roster if each not in self.engines]:
                if missing in self.knew:
                    assert name not in self.knew[missing] and self.lost
                else:
                    assert self.expelled_by[missing] in self.lost
                self.give(name, lambda engine, missing=missing: engine.leave(missing), lethal=0)
            self.drain_links()

    def drain_links(self):
        while self.waiting():
            self.carry(lethal=0)
            self.part()

    def judge(self):
        left = {
            (m, x) for m, x in self.history.undelivered() if x not in self.departed and m[0] not in self.lost
        }
        assert not left, f"never delivered: {sorted(left)[:5]}"
        for name, engine in self.engines.items():
            assert name not in self.leaving, f"{name} waits for farewells"
            assert not engine.pending() and not engine.machine.queued
            assert all(each.stage or each.closed for each in engine.members.departures.values())
        if self.facts.order.is_total:
            self.check_one_order()
        if self.facts.assumes.serialized:
            assert len(self.tokens()) == 1


class Self(dict):
    def __missing__(self, key):
        return key


def survive(protocol, seed, steps):
    world = World(protocols()[protocol], Dice(seed))
    world.run(steps)
    world.judge()
    return world


EVERY = list(protocols())


@pytest.mark.parametrize("protocol", EVERY)
def test_kills_joins_departures_and_expulsions_lose_and_misorder_nothing(protocol, seed):
    facts, faults = protocols()[protocol], dict.fromkeys(("kill", "join", "leave", "expel"), 0)
    for run in range(6):
        world = survive(protocol, f"{seed}/{run}", 400)
        faults = {kind: count + world.faults[kind] for kind, count in faults.items()}
        assert len(world.payloads) > (10 if facts.assumes.serialized else 20)
    assert faults["kill"] and bool(faults["join"]) == facts.membership.joins
    assert faults["leave"] + faults["expel"] > 0
    assert facts.membership.expulsions or not faults["expel"]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", EVERY)
def test_many_more_of_them(protocol, seed):
    for run in range(
        20 if protocols()[protocol].assumes.serialized else 100
    ):  # those take four times as many steps
        survive(protocol, f"{seed}/{run}", 1500)


def test_a_run_is_a_function_of_its_seed(seed):
    first, second, other = (survive("ks", each, 300) for each in (seed, seed, seed + 1))
    assert first.history == second.history and first.faults == second.faults
    assert first.history != other.history
