"""Old copies of journals that go on for a while: found exactly if a peer has other frames than they do."""

from random import Random
from unittest.mock import MagicMock

import pytest

from happened.net import lives
from happened.net.batch import Input, read_entries
from happened.net.engine import Engine
from happened.net.errors import OldJournal, PeerRefused
from happened.net.hosting import Hosting
from happened.net.limits import Limits
from happened.net.link import Outbox
from happened.net.lives import Lives, life_of
from happened.net.membership import InitialMembers, Membership
from happened.net.records import hello_from_json, hello_to_json
from happened.net.refused_frames import Quarantine
from happened.wire import decode

NAMES = ("a", "b")


class Process:
    """A node without a loop: its journal is a list of batches; what is not in it dies with a kill."""

    def __init__(self, name, dice, journal=()):
        self.name, self.peer = name, NAMES[name == "a"]
        self.dice = dice
        self.journal = list(journal)
        self.start()

    def start(self):
        """What is left after kill -9: the journal, and perhaps a snapshot of its beginning."""
        self.engine = Engine(self.name, NAMES, "ks")
        for entries in self.journal:
            self.engine.replay(entries, 0)
            if self.dice.random() < 0.1:
                state = self.engine.snapshot()
                self.engine = Engine(self.name, NAMES, "ks")
                self.engine.restore(state)
        initial = InitialMembers(self.name, {self.peer: ""}, NAMES, None, Limits())
        members = Membership(initial, self.engine, "ks", self.name.encode())
        running = MagicMock(engine=self.engine, members=members, paused=(), quarantine=Quarantine())
        running.name, running.life.failure = self.name, None
        self.host = Hosting(running)
        self.engine.begin_life(self.dice.randbytes(8))
        self.commit()

    def commit(self):
        if self.engine.is_dirty:
            batch = self.engine.cut()
            self.journal.append(batch.entries)
            self.engine.release(batch)


def inputs(journal, kind):
    return [data for batch in journal for each, _, data in read_entries(batch) if each == kind]


def sent(journal):
    return [data[1:] for data in inputs(journal, Input.MULTICAST)]


def taken(journal):
    return [decode(frame)[0].payload for frame in inputs(journal, Input.FRAME_RECEIVED)]


def connect(a, b, dice):
    """What two ends of a link from a to b do over TCP (tcp.py), until the connection breaks somewhere."""
    ours = hello_from_json(hello_to_json(a.host.hello("b")))
    b.host.check("a", ours)
    b.host.numbered_in("a", ours.lives)
    theirs, have = hello_from_json(hello_to_json(b.host.hello("a"))), b.host.received("a")
    a.host.check("b", theirs)
    a.host.resumes("b", have, theirs.heard)
    for _ in range(dice.randrange(4)):
        frames = a.engine.outboxes[1].after(have, dice.choice([1, 30, 1000]))
        if not frames:
            return
        b.host.arrived("a", frames)
        have = frames[-1][0]
        if dice.random() < 0.7:
            b.commit()
        if dice.random() < 0.5:
            a.host.freed("b", b.host.received("a"))


def explore(dice, steps, copies):
    """Random sends, kills and connections; returns how often a connection showed that the journal was old,
    and it was. AssertionError: it said so and was not, or it did not say so."""
    a, b = Process("a", dice), Process("b", dice)
    kept, found = [], 0
    for step in range(steps):
        act = dice.random()
        if act < 0.4:
            a.engine.multicast([1], b"%d" % step)
        elif act < 0.5:
            a.commit()
        elif act < 0.65:
            a = Process("a", dice, a.journal)
        elif act < 0.7:
            b = Process("b", dice, b.journal)
        elif act < 0.75 and copies:
            kept.append(list(a.journal))
        elif act < 0.78 and kept:
            kept.append(list(a.journal))
            a = Process("a", dice, dice.choice(kept))
        elif act > 0.85:
            have = b.host.received("a")
            has = taken(b.journal)[:have]
            is_old = sent(a.journal)[:have] != has
            try:
                connect(a, b, dice)
            except OldJournal:
                assert is_old, f"step {step}: refused, and b has what a sent"
                found += 1
                fits = [each for each in kept if sent(each)[:have] == has]
                if not fits:
                    return found
                a = Process("a", dice, dice.choice(fits))
            except PeerRefused:
                assert b.engine.is_dirty and copies, f"step {step}: refused for now, and all is journaled"
            else:
                assert not is_old, f"step {step}: b has other frames than a sent, and nobody noticed"
    return found


def test_restarts_are_never_taken_for_old_copies(dice: Random, monkeypatch):
    for most in (64, 3):
        monkeypatch.setattr(lives, "MOST", most)
        for _ in range(3):
            assert explore(dice, 120, copies=False) == 0


def test_lives_that_are_forgotten_more_than_once_show_nothing(monkeypatch):
    """The first one that is kept may be one of those, once what came before them is acknowledged."""
    monkeypatch.setattr(lives, "MOST", 3)
    known, outbox = Lives(), Outbox()
    for number in range(1, 9):
        known.begin(b"%d" % number, {0: outbox})
        outbox.put(b"frame")
        if number == 5:
            outbox.release(5)
            outbox.acknowledge(3)
    assert [name for name, _ in known.ours(0)].count(lives.FORGOTTEN) == 2
    assert not any(known.unknown(0, number, b"%d" % number) for number in range(4, 9))
    assert known.unknown(0, 8, b"another")


def test_a_copy_is_found_to_be_old_exactly_if_the_peer_has_other_frames(dice: Random):
    assert sum(explore(dice, 120, copies=True) for _ in range(15)) > 3


@pytest.mark.parametrize("fault", ["no comparison", "the first life alone"])
def test_a_fault_in_the_comparison_is_noticed(dice: Random, monkeypatch, fault):
    if fault == "no comparison":
        monkeypatch.setattr(Lives, "unknown", lambda *_: "")
    else:
        monkeypatch.setattr("happened.net.hosting.life_of", lambda number, told: told[0][0])
    with pytest.raises(AssertionError, match=r"nobody noticed|refused, and b has"):
        for _ in range(100):
            explore(dice, 120, copies=True)


def test_a_copy_that_was_made_during_a_life_stops_where_that_life_went_on(dice: Random):
    a, b = Process("a", dice), Process("b", dice)
    a.engine.multicast([1], b"1")
    a.commit()
    copy = list(a.journal)
    for _ in range(2):
        a.engine.multicast([1], b"in the same life")
        a.commit()
    b.host.numbered_in("a", a.host.hello("b").lives)
    b.host.arrived("a", a.engine.outboxes[1].after(0, 1000))
    b.commit()
    a = Process("a", dice, copy)
    for number in range(9):
        a.engine.multicast([1], b"again %d" % number)
        a.commit()
    a = Process("a", dice, a.journal)
    why = "'b' has 3 frames of 'a', the last of a life that ended with frame 1 in its journal"
    with pytest.raises(OldJournal, match=why):
        connect(a, b, dice)


def test_replay_and_snapshots_know_the_lives(dice: Random):
    a, b = Process("a", dice), Process("b", dice)
    for step in range(12):
        a.engine.multicast([1], b"%d" % step)
        a.commit()
        connect(a, b, dice)
        for each in (a, b):
            each.commit()
            again = Engine(each.name, NAMES, "ks")
            for entries in each.journal:
                again.replay(entries, 0)
            assert again.snapshot() == each.engine.snapshot()
        a = Process("a", dice, a.journal)
    assert b.host.hello("a").heard


def test_what_a_receiver_says_is_what_its_journal_knows(dice: Random):
    """The life of a frame that is not journaled could be forgotten: then it would seem to go back."""
    a, b = Process("a", dice), Process("b", dice)
    a.engine.multicast([1], b"1")
    a.commit()
    b.host.numbered_in("a", a.host.hello("b").lives)
    b.host.arrived("a", a.engine.outboxes[1].after(0, 100))
    assert b.host.hello("a").heard == b""
    b.commit()
    assert b.host.hello("a").heard == a.host.hello("b").lives[-1][0]


def test_lives_are_bounded_and_idle_ones_are_not_kept():
    kept, outbox = Lives(), Outbox()
    for number in range(500):
        kept.begin(b"%08d" % number, {1: outbox})
    assert kept.ours(1) == ((b"00000499", 0),)
    for number in range(500, 1000):
        outbox.put(b"frame")
        kept.begin(b"%08d" % number, {1: outbox})
    told = kept.ours(1)
    assert len(told) == lives.MOST and told[0] == (b"00000499", 0) and told[1] == (b"", 1)
    assert kept.unknown(1, 1, b"00000499") == ""
    assert kept.unknown(1, 2, b"00000499") == "of a life that ended with frame 1 in its journal"
    assert kept.unknown(1, 400, b"00000700") == ""  # one of those that are forgotten
    assert kept.unknown(1, 480, b"another!") == "of a life that ended with frame 439 in its journal"
    outbox.release(500)
    outbox.acknowledge(499)
    kept.begin(b"the last", {1: outbox})
    assert kept.ours(1) == ((b"00000998", 498), (b"the last", 500)) or len(kept.ours(1)) <= 3
    assert kept.unknown(1, 499, b"00000700") == "of a life that its journal does not know"


def test_the_life_of_a_frame_is_the_last_one_that_began_before_it():
    told = [(b"x", 2), (b"y", 5)]
    assert [life_of(number, told) for number in (2, 3, 5, 6)] == [b"", b"x", b"x", b"y"]
    assert life_of(7, ()) == b""


def test_a_hello_without_lives_shows_nothing(dice: Random):
    """As one of a version that knows none."""
    a, b = Process("a", dice), Process("b", dice)
    a.engine.multicast([1], b"1")
    a.commit()
    b.host.numbered_in("a", a.host.hello("b").lives)
    b.host.arrived("a", a.engine.outboxes[1].after(0, 100))
    b.commit()
    assert b.host.hello("a").heard
    a.engine.multicast([1], b"2")
    a.commit()
    b.host.numbered_in("a", ())
    b.host.arrived("a", a.engine.outboxes[1].after(1, 100))
    b.commit()
    assert b.host.hello("a").heard == b""
