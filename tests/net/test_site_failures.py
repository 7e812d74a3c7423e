"""A process of a topology fails for good at any step, and is succeeded, while frames of the engines are on
their way and others are killed and replayed.

The judge is that of `test_site_changes`: it knows what each message's sender had sent or been given. What a
failed process sent counts as sent only where somebody got it.
"""

import functools
import json
import random

import pytest
from test_site_changes import ROUTING, Running, draw, told

from effort import samples
from happened.core.errors import CausalityError, LocalProtocolError, RemoteProtocolError
from happened.net import site as net_site
from happened.net.engine import Engine
from happened.net.site import site_of
from happened.net.site_failures import How, check_witnesses, succession_proposal
from happened.ordering import able, protocols
from happened.ordering.capabilities import ReplacesForwarder
from happened.topology import derive, from_document, problems
from happened.wire import resent
from happened.wire import site_news as wire


@pytest.fixture(autouse=True)
def derive_once(monkeypatch):
    """Routes are a function of the text, and take longer than all that is tested here."""
    once = functools.lru_cache(maxsize=1000)(site_of)
    for module in ("site", "site_changes"):
        monkeypatch.setattr(f"happened.net.{module}.site_of", once)


WITNESSED = [name for name in ROUTING if name in able(ReplacesForwarder)]

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


LINE = {  # f alone between two networks of two
    "processes": ["a", "b", "c", "d"],
    "routers": ["f"],
    "links": [["a", "b", "f"], ["c", "d", "f"]],
}


class Arrivals:
    """In place of a trace: every hop arrives once."""

    def __init__(self):
        self._seen = set()

    def received(self, seq, time, message, frame):
        name = (message.sender, message.clock, message.via)
        assert name not in self._seen, f"{name} comes twice"
        self._seen.add(name)

    def sent(self, *_):
        pass

    delivered = sent


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

    def kill(self, name):
        """What others have had was released before: they say so when they connect again."""
        super().kill(name)
        engine = self.engines[name]
        for link, outbox in engine.outboxes.items():
            outbox.release(self.taken[name, engine.roster.name(link)])

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
        return Engine(name, site.members, self.protocol, site=site, recorder=Arrivals())

    def say(self, name, to):
        """A message of this process to those."""
        engine = self.engines[name]
        message = (name, engine.machine.clock + 1)
        engine.multicast([engine.roster.index(each) for each in to], repr(message).encode())
        self.past[message], self.to[message] = set(self.knows[name]), set(to)
        self.knows[name].add(message)
        self.cut(name)
        return message

    def hand(self, name, other):
        """The next frame of a link arrives."""
        sender, receiver = self.engines[name], self.engines[other]
        frame = [*sender.outboxes[receiver.me].unacknowledged][self.taken[name, other]]
        receiver.receive(sender.me, frame)
        self.taken[name, other] += 1
        self.cut(other)

    def succeed(self, at, heir, how):
        engine = self.engines[at]
        sites = engine.sites
        addresses = dict.fromkeys([*sites.site.members, heir or ""], "somewhere")
        text = succession_proposal(sites.site, self.dead, heir, how, addresses, sites.past)
        engine.sites.propose(text)
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


STEPS = 60


def every_step():
    """How far a run has come when a router dies: in `make test`, some of the steps."""
    return range(0, STEPS, STEPS // samples(STEPS))


@pytest.mark.sampled
@pytest.mark.parametrize("document", [GATEWAYS, NETWORK], ids=["gateways", "network"])
@pytest.mark.parametrize("protocol", WITNESSED)
def test_a_router_dies_at_any_step_and_its_witness_brings_everything(protocol, document, seed):
    for steps in every_step():
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


@pytest.mark.sampled
@pytest.mark.parametrize("document", [GATEWAYS, NETWORK, LINE], ids=["gateways", "network", "line"])
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_router_dies_at_any_step_and_what_is_lost_with_it_is_told(protocol, document, seed):
    lost = 0
    for steps in every_step():
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


def draw_watched(dice):
    """A random graph in which f and its witness w separate some processes from others."""
    while True:
        names = [f"p{i}" for i in range(dice.randint(3, 6))]
        document = draw(dice, ["f", *names])
        around = {other for link in document["links"] if "f" in link for other in link} - {"f"}
        links = [*document["links"], ["f", "w"], *([name, "w"] for name in sorted(around))]
        claimed = {"processes": ["f", *names], "routers": ["w"], "links": links, "separators": [["f", "w"]]}
        topology = from_document(claimed)
        if not problems(topology) and derive(topology).witnesses == {"f": ("w",)}:
            return claimed


@pytest.mark.sampled
@pytest.mark.parametrize("protocol", WITNESSED)
def test_a_witness_brings_everything_wherever_it_stands(protocol, seed):
    for number in range(samples(120)):
        dice = random.Random(f"{seed}/{number}")
        running = start(dice, protocol, draw_watched(dice))
        run(running, dice.randint(20, 80))
        running.fail("f")
        run(running, dice.randint(0, 20))
        running.succeed(dice.choice(sorted(running.engines)), "w", How.WITNESS)
        run(running, 60, kills=0.1)
        running.settle()
        run(running, 15)
        running.settle()
        running.check()
        assert not running.missing()
        atomic(running)


@pytest.mark.sampled
@pytest.mark.parametrize("leaves", ["a", "w"], ids=["an application", "a witness"])
@pytest.mark.parametrize("protocol", ROUTING)
def test_nobody_need_succeed_a_process_that_forwards_nothing(protocol, leaves, seed):
    """Nothing is lost but what was for it; a forwarder waits no more for a witness that is gone."""
    for steps in every_step():
        dice = random.Random(f"{seed}/{steps}")
        running = start(dice, protocol, GATEWAYS)
        run(running, steps)
        running.fail(leaves)
        run(running, dice.randint(0, 20))
        running.succeed(dice.choice(sorted(running.engines)), None, How.COLLECTION)
        run(running, 40, kills=0.1)
        running.settle()
        run(running, 15)
        running.settle()
        running.check()
        assert not running.missing()


@pytest.mark.parametrize("protocol", ROUTING)
def test_what_a_lost_message_followed_comes_before_what_follows_it(protocol, seed):
    """f was given m1 and sent m2 to b and c, of which only b has it: at c, m3 of b waits for m2, and must not
    come before m1, which is still on its way from a."""
    document = {"processes": ["a", "b", "c", "f"], "routers": [], "links": [["a", "b", "c", "f"]]}
    running = start(random.Random(seed), protocol, document)
    running.is_lossy = True
    m1 = running.say("a", ["c", "f"])
    running.hand("a", "f")
    running.say("f", ["b", "c"])
    running.hand("f", "b")
    m3 = running.say("b", ["c"])
    running.hand("b", "c")
    running.fail("f")
    running.succeed("c", None, How.COLLECTION)
    assert not running.given["c"]
    running.settle()
    assert running.given["c"] == [m1, m3]


def test_a_witness_forgets_what_everybody_has(seed, monkeypatch):
    every = 4
    monkeypatch.setattr("happened.net.site_failures.REPORT_EVERY", every)
    dice = random.Random(seed)
    running = start(dice, WITNESSED[0], GATEWAYS)
    most = 0
    for _ in range(20 * every):
        running.say(dice.choice("abcd"), dice.sample("abcd", 2))
        running.settle()
        most = max(most, len([*running.engines["w"].sites.witnessing.kept(4)]))
    assert every / 2 < most <= 5 * every


def test_a_process_that_was_taken_for_dead_is_refused(seed):
    running = start(random.Random(seed), WITNESSED[0], GATEWAYS)
    running.dead = "f"
    running.succeed("w", "w", How.WITNESS)
    witness = running.engines["w"]
    assert witness.sites.has_failed("f") and not witness.sites.digests("f")
    frame = wire.encode(wire.LinkDrained("0" * 64))
    with pytest.raises(RemoteProtocolError, match="'f' was declared to have failed"):
        witness.receive(running.engines["f"].me, frame)
    del running.engines["f"]
    running.settle()
    running.check()
    assert witness.sites.has_failed("f")


def test_a_succession_overrules_a_change_that_waits_for_the_failed_process(seed):
    running = start(random.Random(seed), WITNESSED[0], GATEWAYS)
    running.fail("f")
    engine = running.engines["a"]
    names = engine.sites.site.members
    links = [link for link in GATEWAYS["links"] if link != ["d", "w"]]
    engine.sites.propose(told(GATEWAYS | {"links": links}, list(names)))
    running.cut("a")
    running.settle()
    assert engine.sites.change is not None
    running.succeed("w", "w", How.WITNESS)
    with pytest.raises(LocalProtocolError, match=r"for which .* must come back"):
        running.succeed("w", None, How.COLLECTION)
    running.settle()
    run(running, 20)
    running.settle()
    running.check()
    assert not running.missing()


def test_successions_that_cannot_be_are_refused(seed):
    running = start(random.Random(seed), WITNESSED[0], LINE)
    site = running.engines["a"].sites.site

    def propose(failed, heir, how, addresses=()):
        succession_proposal(site, failed, heir, how, dict(addresses), [site.base])

    for failed, heir, how, why in (
        ("f", "b", How.WITNESS, "'b' is no witness of 'f': it has no witness. Start 'f' again from its jour"),
        ("x", "b", How.WITNESS, "'x' is no process"),
        ("a", "b", How.COLLECTION, "'a' is running"),
        ("f", "f", How.COLLECTION, "'f' cannot take the place of 'f'"),
        ("f", "new", How.COLLECTION, "say where they are, in `addresses`"),
    ):
        with pytest.raises(LocalProtocolError, match=why):
            propose(failed, heir, how)
    with pytest.raises(CausalityError, match="the graph is disconnected"):
        propose("f", None, How.COLLECTION)
    for protocol in ROUTING:
        if protocol not in WITNESSED:
            with pytest.raises(LocalProtocolError, match=f"{protocol} gives witnesses no copies"):
                check_witnesses(protocols()[protocol], How.WITNESS)
            with pytest.raises(LocalProtocolError, match="lacks the capability ReplacesForwarder"):
                running = start(random.Random(seed), protocol, LINE)
                running.engines["a"].layers[-1].stand_in(4)


def test_news_of_a_failure_are_read_as_they_were_written():
    digest = "0" * 64
    for news in (
        wire.SuccessionProposed(digest, "{}"),
        wire.LinkFlushed(digest, "f" * 64),
        wire.HopsTaken(digest, 3, 1 << 40),
        wire.Account(digest, 3, ((0, 1), (7, 2))),
    ):
        assert wire.decode(wire.encode(news)) == news
    for said in (
        f'[5,"{digest}","x"]',
        f'[6,"{digest}",3,-1]',
        f'[6,"{digest}",65536,1]',
        f'[7,"{digest}",3,[[1]]]',
        f'[7,"{digest}",3,[[1,true]]]',
        f'[8,"{digest}"]',
    ):
        with pytest.raises(RemoteProtocolError, match="not a change of the topology"):
            wire.decode(wire.HEAD + said.encode())
    assert resent.decode(resent.encode(7, b"frame")) == (7, b"frame")
    with pytest.raises(RemoteProtocolError, match="cut off"):
        resent.decode(resent.HEAD + b"\0\0\0\7")


def test_what_was_said_to_be_of_a_failed_process_is_checked(seed):
    running = start(random.Random(seed), WITNESSED[0], GATEWAYS)
    with pytest.raises(RemoteProtocolError, match="which it does not succeed"):
        running.engines["a"].receive(5, resent.encode(4, b"frame"))
