"""A process of a topology fails for good at any step, and is succeeded, while frames of the engines themselves
are on their way and others are killed and replayed.

The judge is that of `test_site_changes`: it knows what each message's sender had sent or been given. What a
failed process sent counts as sent only where somebody got it.
"""

import functools
import json
import random

import pytest
from test_site_changes import ROUTING, Running, told

from effort import samples
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net import site as net_site
from happened.net.engine import Engine
from happened.net.site import site_of
from happened.net.site_failures import How, check_witnesses, succession_proposal
from happened.ordering import protocols
from happened.wire import resent
from happened.wire import site_news as wire



@pytest.fixture(autouse=True)
def derive_once(monkeypatch):
    """Routes are a function of the text, and take longer than all that is tested here."""
    once = functools.lru_cache(maxsize=1000)(site_of)
    for module in ("site", "site_changes"):
        monkeypatch.setattr(f"happened.net.{module}.site_of", once)


WITNESSED = [name for name in ROUTING if protocols()[name].witnesses]

GATEWAYS = {  # two sites of two, each behind its gateways f and w
    "processes": ["a", "b", "c", "d"],
    "routers": ["f", "w"],
    "links": [["f", "w"], *([x, y] for x in "abcd" for y in "fw")],
    "separators": [["f", "w"]],
}
NETWORK = {  # a broadcast network of three behind f and w, another process beyond
    "processes": ["a", "b", "c", "d", "f"],
    "routers": ["w"],
    "links": [["a", "b", "c", "f"], ["w", "f"], *([x, "w"] for x in "abcd"), ["d", "f"]],
    "separators": [["f", "w"]],
}


class Failing(Running):
    """The same, where frames leave when they are released, and one process may be gone for good."""

    def __init__(self, dice, protocol, text):
        super().__init__(dice, protocol, text)
        self.dead = None
        self.is_lossy = False
        self.passed_over = {}  # per name: messages that cannot come any more, since later ones have

    def links(self):
        found = []
        for name, engine in self.engines.items():
            engine.let_go()
            for link, outbox in engine.outboxes.items():
                other = engine.roster.name(link)
                if outbox.released > self.taken[name, other] and self.would_greet(name, other):
                    found.append((name, other))
        return sorted(found)

    def step(self):
        before = dict(self.taken)
        if not super().step():
            return False
        for (name, other), number in self.taken.items():
            if number != before.get((name, other), 0) and self.dice.random() < 0.7:
                self.free(self.engines[name], other, number)
        return True

    def settle(self):
        """Until nothing is on its way: acknowledgements come in the end."""
        while True:
            super().settle()
            for (name, other), number in sorted(self.taken.items()):
                if name in self.engines and other in self.engines:
                    self.free(self.engines[name], other, number)
            if not self.links():
                return

    def free(self, sender, other, number):
        if sender.free(self.engines[other].me, number):
            self.cut(sender.name)

    def fail(self, name):
        self.dead = name
        del self.engines[name]

    def admit(self):
        for engine in list(self.engines.values()):
            text = engine.sites.text
            for name in json.loads(text)["names"] if text else ():
                if name not in self.engines and name != self.dead:
                    self.start(name, text)

    def judge(self, name, delivery):
        message = (self.engines[name].roster.name(delivery.sender), delivery.clock)
        over = self.passed_over.setdefault(name, set())
        assert message not in over, f"{message} comes to {name} after what follows it"
        if self.is_lossy:
            over |= {m for m in self.past[message] if name in self.to[m] and m not in self.given[name]}
            past, self.past[message] = self.past[message], self.past[message] - over
            super().judge(name, delivery)
            self.past[message] = past
            self.knows[name] |= past
        else:
            super().judge(name, delivery)

    def engine(self, name, text):
        site = net_site.site_of(text, name)
        return Engine(name, site.members, self.protocol, site=site)

    def succeed(self, at, heir, how):
        engine = self.engines[at]
        sites = engine.sites
        addresses = dict.fromkeys([*sites.site.members, heir or ""], "somewhere")
        text = succession_proposal(sites.site, self.dead, heir, how, addresses, sites.past)
        engine.propose_site(text)
        self.cut(at)

    def missing(self):
        """Per sender and destination, how many messages have not come, those of the failed one aside."""
        found = {}
        for (sender, clock), to in self.to.items():
            for name in to - {self.dead}:
                if sender != self.dead and (sender, clock) not in self.given[name]:
                    found.setdefault(sender, {}).setdefault(name, 0)
                    found[sender][name] += 1
        return found

    def check(self):
        assert all(each.sites.change is None and not each.pending() for each in self.engines.values())
        assert len({each.sites.site.digest for each in self.engines.values()}) == 1
        assert all(self.dead not in each.roster for each in self.engines.values())
        told_lost = {name: each.sites.lost() for name, each in self.engines.items() if each.sites.lost()}
        assert told_lost == self.missing()
        assert not any(each.sites.unaccounted() for each in self.engines.values())


def run(running, steps, kills=0.03):
    for _ in range(steps):
        choice = running.dice.random()
        if choice < 0.3:
            running.send()
        elif choice < 0.3 + kills:
            running.kill(running.dice.choice(sorted(running.engines)))
        else:
            running.step()


def start(dice, protocol, document):
    names = [*document["processes"], *document["routers"]]
    return Failing(dice, protocol, told(document, names))


def atomic(running):
    """What the failed process sent has come to all that are left, or to nobody."""
    for (sender, clock), to in running.to.items():
        if sender == running.dead:
            came = [name for name in to - {sender} if (sender, clock) in running.given[name]]
            assert len(came) in (0, len(to - {sender})), (sender, clock, to, came)


@pytest.mark.parametrize("document", [GATEWAYS, NETWORK], ids=["gateways", "network"])
@pytest.mark.parametrize("protocol", WITNESSED)
def test_a_router_dies_at_any_step_and_its_witness_brings_everything(protocol, document, seed):
    for steps in range(60):
        dice = random.Random(f"{seed}/{steps}")
        running = start(dice, protocol, document)
        run(running, steps)
        running.fail("f")
        run(running, dice.randint(0, 20))
        running.succeed(dice.choice(sorted(running.engines)), "w", How.WITNESS)
        run(running, 40, kills=0.1)
        running.settle()
        run(running, 15)
        running.settle()
        running.check()
        assert not running.missing()
        atomic(running)


LINE = {  # f alone between two networks of two
    "processes": ["a", "b", "c", "d"],
    "routers": ["f"],
    "links": [["a", "b", "f"], ["c", "d", "f"]],
}


@pytest.mark.parametrize("document", [GATEWAYS, NETWORK, LINE], ids=["gateways", "network", "line"])
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_router_dies_at_any_step_and_what_is_lost_with_it_is_told(protocol, document, seed):
    lost = 0
    for steps in range(60):
        dice = random.Random(f"{seed}/{steps}")
        running = start(dice, protocol, document)
        run(running, steps)
        running.fail("f")
        running.is_lossy = True
        run(running, dice.randint(0, 20))
        heir = dice.choice(["new", "a"])
        for at in ("a", "d") if document is LINE else (dice.choice(sorted(running.engines)),):
            running.succeed(at, heir, How.COLLECTION)
            run(running, dice.randint(0, 20), kills=0.1)
        run(running, 40, kills=0.1)
        running.settle()
        lost += len(running.missing())
        run(running, 15)
        running.settle()
        running.check()
    assert lost
