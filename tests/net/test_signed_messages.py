"""Signed messages on engines of every protocol: what arrives is what was signed, a liar who passes messages
on alters nothing, and a replay signs nothing anew.

The judge knows what each process gave to its engine, by the name that was returned, and nothing of
signatures.
"""

import contextlib

import pytest
import test_site_changes
import test_site_failures
from keyed_stamps import Stamps, signed
from test_engine_replay import EVERY, NAMES, to_whom
from test_incomplete_nodes import INCOMPLETE
from test_site_changes import told

from contract.drive import options
from happened import wire
from happened.core.destinations import pack
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net.engine import Engine
from happened.net.errors import EngineFault
from happened.net.qualified import keywords
from happened.net.signed import HEAD
from happened.net.site import site_of
from happened.ordering import Relays, incomplete, protocols
from happened.wire import piggybacks, resent
from happened.wire import unordered_message as unordered

TRACKED = sorted(name for name, facts in protocols().items() if not facts.assumes.serialized)
PASSED_ON = sorted(
    name for name, facts in protocols().items() if facts.copies.relays or facts.copies.carries_payloads
)


STAR = told({"processes": NAMES, "links": [["a", each] for each in NAMES[1:]]}, NAMES)


def make(name, protocol, *, is_signed=True, **more):
    """One that passes messages on stands in the middle of a star, if the protocol has routers: a."""
    facts = (protocols() | incomplete())[protocol]
    if facts.copies.relays is Relays.ROUTERS:
        more["site"] = site_of(STAR, name)
    given = options(facts, len(NAMES))
    return Engine(name, NAMES, protocol, given, signed=signed(name) if is_signed else None, **more)


class World:
    """Engines, the frames between them, and what was given to them. `m`, if there is one, is a liar: of what
    it passes on it sends something else first, and what is true when that was refused."""

    def __init__(self, dice, protocol, *, liar=None, **more):
        self.dice, self.protocol, self.liar = dice, protocol, liar
        self.more = more
        self.engines = [make(name, protocol, **more) for name in NAMES]
        self.journals = [b""] * len(NAMES)
        self.sent = {}  # by name: destinations and payload
        self.payloads = {}  # of each origin, as they stand in its messages
        self.refused = self.lies = 0
        self.kinds = set()  # of the messages that it lied about
        self.wrong = []
        self.dead = None

    def send(self, engine):
        if not engine.has_turn:
            engine.serialization.want()
            self.settle(engine)
            return
        to = to_whom(self.protocol, self.dice, engine.me)
        payload = self.dice.randbytes(self.dice.randrange(9))
        clock = engine.multicast(to, payload)
        self.sent[engine.me, clock] = set(to), payload
        if engine.serialization is not None:
            engine.serialization.release()
        self.settle(engine)

    def send_unordered(self, engine):
        to, payload = self.dice.sample(range(len(NAMES)), 2), self.dice.randbytes(3)
        self.sent[engine.me, engine.unordered.multicast(to, payload)] = set(to), payload
        self.settle(engine)

    def settle(self, engine):
        batch = engine.cut()
        engine.release(batch)
        self.journals[engine.me] += batch.entries
        for _, sender, clock, payload, _ in batch.deliveries:
            to, true = self.sent.get((sender, clock), (set(), None))
            if engine.me not in to or payload != true:
                self.wrong.append((engine.me, sender, clock, payload))

    def carry(self, engine, link):
        """The next frame of a link arrives, unless one of its ends is not there any more."""
        if self.dead in (engine.me, link):
            return False
        source, inbox = self.engines[link], engine.inboxes[link]
        frames = source.outboxes[engine.me].after(inbox.received_through, 1)
        for _, frame in frames[:1]:
            if link != self.liar or not self.lie(engine, frame):
                engine.receive(link, frame)
            self.settle(engine)
        return bool(frames)

    def lie(self, engine, frame):
        """Send lies for a frame; whether one was taken in its place."""
        for altered in self.altered(frame):
            before = engine.snapshot()
            self.lies += 1
            try:
                engine.receive(self.liar, altered)
                return True
            except RemoteProtocolError:
                self.refused += 1
                assert engine.snapshot() == before
        return False

    def altered(self, frame):
        """What a liar makes of the messages of others in a frame, one after the other."""
        if frame[0] in (0xFD, 0xFE, 0xFF) or self.dice.random() < 0.5:
            return
        message, _ = wire.decode(frame)
        for carried in message.carries():
            if carried.sender == self.liar:
                continue
            self.kinds.add(type(message).__name__)
            others = [sent for (sender, _), sent in self.payloads.items() if sender == carried.sender]
            payload = carried.payload
            lies = [
                {"payload": payload[:-1] + b"!?"},
                {"payload": payload + b"!"},
                {"clock": carried.clock + 1},
            ]
            lies += [{"dests": carried.dests ^ 1 << p} for p in range(len(NAMES))]
            lies += [{"sender": p} for p in range(len(NAMES)) if p != carried.sender]
            lies += [{"payload": old} for old in others if old != payload]
            self.payloads[carried.sender, carried.clock] = payload
            for lie in self.dice.sample(lies, min(3, len(lies))):
                if (told := replaced(message, carried, lie)) is not None:
                    yield told

    def run(self, steps):
        for _ in range(steps):
            engine, act = self.dice.choice(self.engines), self.dice.random()
            if act < 0.3:
                self.send(engine)
            elif act < 0.33:
                self.send_unordered(engine)
            else:
                self.carry(engine, self.link(engine))
        moved = True
        while moved:
            moved = any(self.carry(engine, link) for engine in self.engines for link in engine.inboxes)

    def link(self, engine):
        """Any, and that of the liar more often: what it sends is there before what others send."""
        links = list(engine.inboxes)
        return self.liar if self.liar in links and self.dice.random() < 0.6 else self.dice.choice(links)

    def missing(self):
        got = {(e.me, d.sender, d.clock) for e in self.engines for d in e.unacknowledged.values()}
        return {(p, *name) for name, (to, _) in self.sent.items() for p in to if (p, *name) not in got}


def replaced(message, carried, lie):
    """The frame of a message in which one that it carries is altered; None if it cannot be written."""

    def put(value):
        if value is carried:
            return replaced_in(value, lie)
        if type(value) is tuple:
            return tuple(map(put, value))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return value._replace(**{name: put(getattr(value, name)) for name in value._fields})
        return value

    try:
        return wire.encode(put(message))
    except (LocalProtocolError, OverflowError, ValueError):
        return None


def replaced_in(value, lie):
    if "payload" in lie and "payload" not in value._fields:  # the payload is that of its hop
        return value._replace(hop=value.hop._replace(**lie))
    return value._replace(**lie)


@pytest.mark.parametrize(
    "protocol, tracker", [(p, None) for p in EVERY] + [(p, "p3-reduced") for p in TRACKED]
)
def test_what_is_signed_is_what_arrives(protocol, tracker, dice):
    world = World(dice, protocol, tracker=tracker)
    world.run(150)
    assert not world.wrong and not world.missing()
    assert sum(engine.delivered for engine in world.engines) > 10
    for engine, journal in zip(world.engines, world.journals, strict=True):
        again = make(engine.name, protocol, tracker=tracker)
        again.replay(journal, engine.time)
        assert again.snapshot() == engine.snapshot()  # frames to be sent and all


@pytest.mark.parametrize("protocol", INCOMPLETE)
def test_incomplete_orders_are_signed_too(protocol, dice):
    facts = incomplete()[protocol]
    given = {"label": "x", "priority": 3}.get(facts.qualifier.keyword)
    a, b = (make(name, protocol) for name in NAMES[:2])
    a.qualified.multicast([1], b"hello", keywords(facts, **{facts.qualifier.keyword: given}))
    a.release(a.cut())
    ((_, frame),) = a.outboxes[1].after(0, 1 << 20)
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, frame[:-1] + b"!")
    b.receive(0, frame)
    assert [each.payload for each in b.unacknowledged.values()] == [b"hello"]


# A liar.


@pytest.mark.parametrize("protocol", PASSED_ON)
def test_a_liar_alters_nothing_that_it_passes_on(protocol, dice):
    world = World(dice, protocol, liar=0)  # the coordinator of `sequencer`
    world.run(120)
    assert world.refused == world.lies > 15
    assert not world.wrong and not world.missing()


@pytest.mark.parametrize("protocol", PASSED_ON)
def test_without_signatures_the_judge_finds_what_a_liar_alters(protocol, dice):
    """As far as it gets: what follows from a lie may be refused by others. Then another run does it."""
    for _ in range(50):
        world = World(dice, protocol, liar=0, is_signed=False)
        with contextlib.suppress(RemoteProtocolError, EngineFault):
            world.run(100)
        if world.wrong:
            return
    raise AssertionError("no run delivers anything altered")


@pytest.mark.parametrize("liar, kind", [(0, "SequencerHandover"), (2, "SequencerReport")])
def test_what_an_office_hands_on_is_as_it_was_signed(liar, kind, dice):
    """a coordinates and leaves, and d is expelled: what a entrusted to c, that one reports."""
    lied_about = set()
    for _ in range(10):
        world = World(dice, "sequencer", liar=liar)
        for _ in range(8):
            world.send(dice.choice(world.engines))
        for _ in range(12):
            world.carry(engine := dice.choice(world.engines), world.link(engine))
        for at, name in ((0, "a"), (1, "d")):
            world.engines[at].leave(name)
            world.settle(world.engines[at])
            world.dead = 3 if name == "d" else None
            world.run(0)
        assert world.refused == world.lies and not world.wrong
        assert not {each for each in world.missing() if each[0] in (1, 2)}
        lied_about |= world.kinds
    assert kind in lied_about


def test_nobody_puts_words_into_the_mouth_of_another_by_its_office():
    """Whoever coordinates, or did, may put requests of others on a link: they are checked all the same."""
    a, b, c, d = (make(name, "sequencer") for name in NAMES)
    b.multicast([2, 3], b"mine")
    b.release(b.cut())
    ((_, request),) = b.outboxes[0].after(0, 1 << 20)
    message, _ = wire.decode(request)
    forged = [message._replace(sender=3), message._replace(dests=pack([2])), message._replace(clock=7)]
    for each in forged:
        with pytest.raises(RemoteProtocolError, match="has not signed this"):
            a.receive(2, wire.encode(each))
    assert not a.is_dirty
    a.receive(2, request)  # passed on as it was: it is b's, whoever brings it
    assert c.delivered == d.delivered == 0


def test_an_unordered_message_is_no_ordered_one():
    """Nor the other way round: whoever passes it on cannot take it out of the order."""
    a, b = make("a", "ks"), make("b", "ks")
    a.multicast([1], b"ordered")
    a.release(a.cut())
    message, _ = wire.decode(a.outboxes[1].after(0, 1 << 20)[0][1])
    lie = unordered.encode(unordered.UnorderedMessage(4, 0, message.clock, message.dests, message.payload))
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, lie)
    a.unordered.multicast([1], b"unordered")
    a.release(a.cut())
    frame = a.outboxes[1].after(1, 1 << 20)[0][1]
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, frame[:-1] + b"!")
    b.receive(0, frame)
    assert [each.payload for each in b.unacknowledged.values()] == [b"unordered"]


def test_what_has_no_signature_or_one_of_another_system_is_refused():
    a, b = make("a", "ks", is_signed=False), make("b", "ks")
    a.multicast([1], b"x" * 2 * HEAD)
    a.release(a.cut())
    with pytest.raises(
        RemoteProtocolError, match="no signature of 'a': give all nodes `signatures`, or none"
    ):
        b.receive(0, a.outboxes[1].after(0, 1 << 20)[0][1])
    other = Engine("a", NAMES, "ks", signed=signed("a", "another system"))
    other.multicast([1], b"x")
    other.release(other.cut())
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, other.outboxes[1].after(0, 1 << 20)[0][1])
    assert not b.is_dirty


def test_processes_that_nobody_knows_are_refused_before_anything_is_looked_up():
    b = make("b", "sequencer")
    a = Engine("a", [*NAMES, "e"], "sequencer", {"coordinator": 1}, signed=signed("a"))
    a.multicast([1, 4], b"x")
    a.release(a.cut())
    with pytest.raises(RemoteProtocolError, match="not among the 4 known here"):
        b.receive(0, a.outboxes[1].after(0, 1 << 20)[0][1])


def test_a_piggyback_is_around_what_is_signed():
    a, b = (make(name, "ks", tracker="p3-reduced") for name in NAMES[:2])
    a.multicast([1], b"x")
    a.release(a.cut())
    number, inner = piggybacks.unmark(a.outboxes[1].after(0, 1 << 20)[0][1])
    message, _ = wire.decode(inner)
    envelope = piggybacks.open_sealed(message.payload)
    assert len(envelope.payload) == HEAD + 1
    lie = message._replace(payload=piggybacks.seal(envelope._replace(payload=envelope.payload[:-1] + b"y")))
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, piggybacks.mark(number, wire.encode(lie)))


def test_a_protocol_of_others_that_does_not_tell_enough_is_refused(monkeypatch):
    from happened.ordering.causal.ks import KsMessage
    from happened.ordering.messages import BareApplication
    from happened.ordering.process import Process

    with monkeypatch.context() as patched:
        patched.delattr(Process, "coming_clock")
        with pytest.raises(
            LocalProtocolError, match="ks cannot be signed: its machine tells no `coming_clock`"
        ):
            make("a", "ks")
    monkeypatch.delattr(BareApplication, "carries")
    assert not hasattr(KsMessage, "carries")
    with pytest.raises(LocalProtocolError, match="KsMessage tells nothing by `carries`"):
        make("a", "ks")


# Topologies that change, and routers that fail.


class SignedRunning(test_site_changes.Running):
    def engine(self, name, text):
        site = site_of(text, name)
        return Engine(name, site.members, self.protocol, site=site, signed=signed(name))


@pytest.mark.parametrize("protocol", test_site_changes.ROUTING)
def test_signed_messages_survive_changes_of_the_topology(protocol, seed, monkeypatch):
    monkeypatch.setattr(test_site_changes, "Running", SignedRunning)
    monkeypatch.setattr(test_site_changes, "samples", lambda number: 4)
    test_site_changes.test_changes_in_a_row_lose_repeat_and_misorder_nothing(protocol, seed)


class SignedFailing(test_site_failures.Failing):
    """With a witness that lies first about everything that it sends again for the one that failed."""

    lies = 0

    def engine(self, name, text):
        site = site_of(text, name)
        return Engine(name, site.members, self.protocol, site=site, signed=signed(name))

    def step(self):
        for name, other in self.links():
            sender, receiver = self.engines[name], self.engines[other]
            outbox = sender.outboxes[receiver.me]
            frame = [*outbox.unacknowledged][self.taken[name, other] - outbox.acknowledged]
            if frame.startswith(resent.HEAD):
                SignedFailing.lies += 1
                with pytest.raises(RemoteProtocolError, match="has not signed this"):
                    receiver.receive(sender.me, frame[:-1] + b"!")
        return super().step()


def test_a_witness_cannot_alter_what_it_sends_again(seed, monkeypatch):
    monkeypatch.setattr(test_site_failures, "Failing", SignedFailing)
    monkeypatch.setattr(test_site_failures, "samples", lambda number: 6)
    for protocol in test_site_failures.WITNESSED:
        test_site_failures.test_a_router_dies_at_any_step_and_its_witness_brings_everything(
            protocol, test_site_failures.GATEWAYS, seed
        )
    assert SignedFailing.lies


def every_message(message):
    return {(each.sender, each.clock, each.dests, each.payload) for each in message.carries()}


@pytest.mark.parametrize("protocol", EVERY)
def test_a_message_tells_all_the_messages_in_it(protocol, dice):
    """By the payloads that are in its frame: each is unlike the others."""
    world = World(dice, protocol)
    world.dice.randbytes = lambda size: b"<%d>" % dice.getrandbits(64)
    for _ in range(120):
        engine = dice.choice(world.engines)
        if dice.random() < 0.5:
            world.send(engine)
        else:
            world.carry(engine, dice.choice(list(engine.inboxes)))
    found = 0
    payloads = {payload for _, payload in world.sent.values()}
    for engine in world.engines:
        for outbox in engine.outboxes.values():
            for frame in outbox.unacknowledged:
                if frame[0] == wire.VERSION:
                    told = {payload[HEAD:] for *_, payload in every_message(wire.decode(frame)[0])}
                    assert told == {payload for payload in payloads if payload in frame}
                    found += len(told)
    assert found


def test_destinations_are_signed_by_name_in_any_order():
    """So those who number members in another way, as a registrar that lies could make them, notice."""
    a, b = make("a", "ks"), Engine("b", ["a", "b", "d", "c"], "ks", signed=signed("b"))
    for to in ([1, 2], [1, 2, 3]):
        a.multicast(to, b"x")
    a.release(a.cut())
    (_, to_c), (_, to_both) = a.outboxes[1].after(0, 1 << 20)
    with pytest.raises(RemoteProtocolError, match="'a' has not signed this"):
        b.receive(0, to_c)
    b.receive(0, to_both)


def test_a_message_that_comes_again_is_checked_once_and_a_different_one_is_checked(monkeypatch):
    monkeypatch.setattr("happened.net.signed.REMEMBERED", 2)
    a, b = make("a", "ks"), make("b", "ks")
    for k in range(4):
        a.multicast([1], b"%d" % k)
    a.release(a.cut())
    messages = [wire.decode(frame)[0] for _, frame in a.outboxes[1].after(0, 1 << 20)]
    checked = []
    monkeypatch.setattr(Stamps, "check", lambda self, name, signature, *parts: checked.append(parts[-1]))
    for message in [*messages[:2], *messages[:2], messages[2], messages[0]]:
        b.signed.signed.check(message, b.roster, tracked=False)
    assert checked == [b"0", b"1", b"2", b"0"]
    first = messages[0]
    for other in (
        first._replace(clock=9),
        first._replace(dests=3),
        first._replace(payload=first.payload + b"!"),
    ):
        b.signed.signed.check(other, b.roster, tracked=False)
    assert len(checked) == 7
