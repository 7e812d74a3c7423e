"""Topologies that change while messages are on their way; engines are killed and replayed in between.

The judge keeps for every message what its sender had sent or been given before, and shares nothing with the
protocols.
"""

import json
import random
from collections import defaultdict

import pytest

from effort import samples
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net.engine import Engine
from happened.net.site import site_of
from happened.ordering import Relays, protocols
from happened.wire import site_news as wire

ROUTING = sorted(name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS)


def draw(dice, names):
    """A connected graph: a tree and some links more."""
    links = {frozenset((name, dice.choice(names[:at]))) for at, name in enumerate(names) if at}
    for _ in range(dice.randint(0, 2) if len(names) > 1 else 0):
        links.add(frozenset(dice.sample(names, 2)))
    return {"processes": list(names), "links": sorted(map(sorted, links))}


def told(document, everybody, past=()):
    said = {"topology": document, "names": everybody, "addresses": {}, "times before": 0}
    base = site_of(json.dumps(said), everybody[0]).base
    return json.dumps(said | {"times before": list(past).count(base)})


class Running:
    """Engines, the frames between them in order, and the judge."""

    def __init__(self, dice, protocol, text):
        self.dice, self.protocol, self.text = dice, protocol, text
        self.journals = {}  # per name: the text it was started with, and the entries of its inputs
        self.engines = {}
        self.taken = defaultdict(int)  # per link: how many of its frames were received
        self.knows = defaultdict(set)  # per name: messages sent or delivered there, and what they depend on
        self.past = {}  # per message
        self.to = {}
        self.given = defaultdict(list)  # per name: messages delivered, in order
        for name in json.loads(text)["names"]:
            self.start(name, text)

    def start(self, name, text):
        self.journals[name] = (text, [])
        self.engines[name] = self.engine(name, text)

    def engine(self, name, text):
        site = site_of(text, name)
        return Engine(name, site.members, self.protocol, site=site)

    def kill(self, name):
        """All that is left is the journal, and what it had told others of its frames."""
        text, entries = self.journals[name]
        before = self.engines[name]
        self.engines[name] = again = self.engine(name, text)
        if entries and self.dice.random() < 0.5:
            again.restore(before.snapshot())
        else:
            for each in entries:
                again.replay(each, 0)
        assert again.snapshot() == before.snapshot()

    def cut(self, name):
        engine = self.engines[name]
        batch = engine.cut()
        self.journals[name][1].append(batch.entries)
        engine.release(batch)
        for delivery in batch.deliveries:
            self.judge(name, delivery)

    def judge(self, name, delivery):
        message = (self.engines[name].roster.name(delivery.sender), delivery.clock)
        assert delivery.payload == repr(message).encode()
        assert message not in self.given[name], "delivered twice"
        missing = [m for m in self.past[message] if name in self.to[m] and m not in self.given[name]]
        assert not missing, f"{message} overtakes {missing} at {name}"
        self.given[name].append(message)
        self.knows[name] |= self.past[message] | {message}

    def send(self):
        name = self.dice.choice(sorted(self.engines))
        engine = self.engines[name]
        others = [other for other in engine.roster if other != name]
        if not others or engine.has_left:
            return False
        to = self.dice.sample(others, self.dice.randint(1, min(3, len(others))))
        message = (name, engine.machine.clock + 1)
        try:
            indices = [engine.roster.index(each) for each in to]
            clock = engine.multicast(indices, repr(message).encode())
        except LocalProtocolError as error:
            assert "is changing" in str(error)
            return False
        if clock != message[1]:  # the clock has advanced for hops: the name is known when it is sent
            raise AssertionError(f"{clock} is not {message}")
        self.past[message], self.to[message] = set(self.knows[name]), set(to)
        self.knows[name].add(message)
        self.cut(name)
        return True

    def links(self):
        found = []
        for name, engine in self.engines.items():
            for link, outbox in engine.outboxes.items():
                other = engine.roster.name(link)
                if outbox.last > self.taken[name, other] and self.would_greet(name, other):
                    found.append((name, other))
        return sorted(found)

    def would_greet(self, name, other):
        """Whether each would take the other's hello."""
        if other not in self.engines:
            return False
        one, two = self.engines[name].sites, self.engines[other].sites
        return one.site.digest in two.digests(name) and two.site.digest in one.digests(other)

    def step(self):
        """A frame arrives, the oldest of some link."""
        links = self.links()
        if not links:
            return False
        name, other = self.dice.choice(links)
        sender, receiver = self.engines[name], self.engines[other]
        link = receiver.me
        number = self.taken[name, other] + 1
        outbox = sender.outboxes[link]
        frame = [*outbox.unacknowledged][number - outbox.acknowledged - 1]
        receiver.receive(sender.me, frame)
        self.taken[name, other] = number
        self.cut(other)
        if self.dice.random() < 0.5:
            sender.free(link, number)
            self.cut(name)
        self.admit()
        return True

    def admit(self):
        """Whoever a change has brought is started with what it says."""
        for engine in list(self.engines.values()):
            text = engine.sites.text
            for name in json.loads(text)["names"] if text else ():
                if name not in self.engines:
                    self.start(name, text)

    def settle(self):
        for _ in range(200_000):
            if not self.step():
                return
        raise AssertionError("it does not end")


def another(dice, sites, number):
    """A topology with some processes fewer, some more, and other links."""
    site = sites.site
    there = [name for i, name in enumerate(site.members) if not site.departed >> i & 1]
    stay = [name for name in there if dice.random() < 0.85] or there[:1]
    new = [f"n{number}{letter}" for letter in "ab"[: dice.randint(0, 2)]]
    names = stay + new
    dice.shuffle(names)
    return told(draw(dice, names), [*site.members, *new], sites.past if not new else ())


@pytest.mark.sampled
@pytest.mark.parametrize("protocol", ROUTING)
def test_changes_in_a_row_lose_repeat_and_misorder_nothing(protocol, seed):
    for number in range(samples(320)):
        dice = random.Random(f"{seed}/{number}")
        names = [f"p{i}" for i in range(dice.randint(2, 6))]
        running = Running(dice, protocol, told(draw(dice, names), names))
        for change in range(dice.randint(1, 3)):
            proposed = False
            for _ in range(dice.randint(10, 80)):
                choice = dice.random()
                if choice < 0.3:
                    running.send()
                elif choice < 0.35:
                    running.kill(dice.choice(sorted(running.engines)))
                elif choice < 0.42 and not proposed:
                    proposed = propose(dice, running, change)
                else:
                    running.step()
            running.settle()
        for _ in range(10):
            running.send()
        running.settle()
        check_ended(running)


def propose(dice, running, number):
    """Sometimes two at once, at two processes."""
    present = [each for _, each in sorted(running.engines.items()) if not each.has_left]
    for engine in dice.sample(present, min(len(present), dice.choice((1, 1, 2)))):
        if engine.sites.change is None:
            try:
                engine.sites.propose(another(dice, engine.sites, f"{number}{engine.me}"))
            except LocalProtocolError as error:
                assert "is the present one" in str(error)
            running.cut(engine.name)
    running.admit()
    return True


def check_ended(running):
    for message, to in running.to.items():
        for name in to:
            assert message in running.given[name], f"{message} is lost at {name}"
    present = [each for each in running.engines.values() if not each.has_left]
    assert len({each.sites.site.digest for each in present}) == 1
    assert all(each.sites.change is None and not each.pending() for each in running.engines.values())


def test_what_is_no_news_of_a_change_is_refused():
    digest = "0" * 64
    for news in (
        wire.SiteProposed(digest, "{}"),
        wire.LinkDrained(digest),
        wire.ProcessFinished(digest, "f" * 64, 3),
    ):
        assert wire.decode(wire.encode(news)) == news
    for said in (
        "",
        "7",
        "[1]",
        '[2,"x"]',
        f'[3,"{digest}","{digest}",-1]',
        f'[3,"{digest}","{digest}",true]',
    ):
        with pytest.raises(RemoteProtocolError, match="not a change of the topology"):
            wire.decode(wire.HEAD + said.encode())
    with pytest.raises(RemoteProtocolError, match="not a change of the topology"):
        wire.decode(wire.HEAD + b"\xff")
