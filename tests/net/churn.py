"""A system whose members change all the time: engines without a transport, and what their messages carry."""

from random import Random

from happened.net.engine import Engine
from happened.wire.membership import MARK


class Churning:
    """`processes` are always present; a change replaces one of them, which leaves or is expelled."""

    def __init__(self, protocol, processes, seed):
        self.protocol, self.dice = protocol, Random(seed)
        names = [f"p{number}" for number in range(processes)]
        self.engines = {name: Engine(name, names, protocol) for name in names}
        self.ever = processes
        self.sent = self.bytes = 0
        self._counted = {}  # (name, link): the last frame that was counted

    def replace(self):
        """One leaves or is expelled, and another joins: two changes."""
        name = self.dice.choice(sorted(self.engines))
        if self.dice.random() < 0.5:
            self.engines[name].leave(name)
            self.carry()
            assert len(self.engines[name].members.farewells) == len(self.engines) - 1
            del self.engines[name]
        else:
            del self.engines[name]
            self.engines[self.dice.choice(sorted(self.engines))].leave(name)
        self.carry()
        registrar = next(engine for engine in self.engines.values() if engine.members.registrar == engine.me)
        name = f"p{self.ever}"
        self.ever += 1
        registrar.join(name, "nowhere")
        roster = registrar.roster
        names = [roster.name(index) for index in range(len(roster))]
        self.engines[name] = Engine(name, names, self.protocol)
        self.carry()

    def talk(self, messages):
        """Multicasts to three at random, some of which are on their way when the next is sent."""
        for _ in range(messages):
            engine = self.dice.choice(list(self.engines.values()))
            others = [engine.roster.index(name) for name in engine.roster]
            engine.multicast(self.dice.sample(others, min(3, len(others))), b"")
            for link in engine.outboxes:
                self._count(engine, link)
            if self.dice.random() < 0.5:
                self.carry(links=3)
        self.carry()

    def _count(self, engine, link):
        engine.release(engine.cut())
        outbox, key = engine.outboxes[link], (engine.name, engine.roster.name(link))
        for number, frame in outbox.after(outbox.acknowledged, 1 << 30):
            if number > self._counted.get(key, 0) and frame[0] != MARK:
                self.sent += 1
                self.bytes += len(frame)
            self._counted[key] = max(number, self._counted.get(key, 0))

    def carry(self, links=None):
        """Bring what is on its way, on some links or until nothing is."""
        while True:
            waiting = []
            for name, engine in self.engines.items():
                engine.release(engine.cut())
                for link, outbox in engine.outboxes.items():
                    peer = self.engines.get(engine.roster.name(link))
                    if outbox and peer is not None:
                        waiting.append((name, link, peer))
            if not waiting:
                return
            if links is not None:
                waiting = self.dice.sample(waiting, min(links, len(waiting)))
            for name, link, peer in waiting:
                engine = self.engines[name]
                outbox = engine.outboxes[link]
                for number, frame in outbox.after(outbox.acknowledged, 1 << 30):
                    peer.receive(engine.me, frame)
                    engine.free(link, number)
                peer.release(peer.cut())
                for delivery in list(peer.unacknowledged):
                    peer.acknowledge(delivery)
            if links is not None:
                return

    def bytes_per_message(self, messages):
        self.sent = self.bytes = 0
        self.talk(messages)
        return self.bytes / self.sent
