"""What messages carry does not grow with the changes that a system has been through."""

from itertools import permutations

import pytest

from churn import Churning
from happened.net.engine import Engine
from happened.ordering import protocols

CHURNING = ("ks", "histories", "topological", "zoned-ks")
RECYCLING = [
    name for name, facts in protocols().items() if facts.membership.recycles and facts.membership.joins
]
EXPELLING = [
    name for name, facts in protocols().items() if facts.membership.expulsions and facts.membership.joins
]


@pytest.mark.parametrize("protocol", CHURNING)
def test_churn_does_not_make_messages_longer(protocol, seed):
    steady = Churning(protocol, 6, seed)
    steady.talk(200)
    system = Churning(protocol, 6, seed)
    for _ in range(40):
        system.talk(8)
        system.replace()
    system.talk(60)
    assert max(len(engine.roster) for engine in system.engines.values()) <= 9, "indices are given again"
    assert not any(engine.pending() for engine in system.engines.values())
    assert system.bytes_per_message(300) <= 2 * steady.bytes_per_message(300)


def bring(sender, receiver):
    """What waits on one link."""
    sender.release(sender.cut())
    link = receiver.me
    outbox = sender.outboxes[link]
    for number, frame in outbox.after(outbox.acknowledged, 1 << 20):
        receiver.receive(sender.me, frame)
        sender.free(link, number)


@pytest.mark.parametrize("protocol", RECYCLING)
def test_what_one_who_has_left_says_of_an_index_is_of_who_had_it_then(protocol):
    """q leaves as soon as it has joined. When it hears that p1 had gone before, r has p1's index."""
    names = ["p0", "p1", "p2"]
    p0, p1, p2 = (Engine(name, names, protocol) for name in names)
    p1.leave("p1")
    for sender, receiver in [(p1, p0), (p1, p2), (p0, p1), (p2, p1), (p0, p2)]:
        bring(sender, receiver)
    assert p0.join("q", "nowhere") == 3
    q = Engine("q", [*names, "q"], protocol)
    q.leave("q")
    bring(p0, p2)
    for receiver in (p0, p2):
        bring(q, receiver)
    for _ in range(5):
        bring(p0, p2)
        bring(p2, p0)
    assert p0.join("r", "nowhere") == 1
    for sender, receiver in [(p0, p2), (p0, q), (q, p2), (q, p0)]:
        bring(sender, receiver)
    assert set(p0.roster) == set(p2.roster) == {"p0", "p2", "r"}
    bring(p2, q)
    assert q.members.farewells == {0, 2}


@pytest.mark.parametrize("protocol", EXPELLING)
def test_a_newcomer_waits_for_no_farewell_of_one_who_left_before_whoever_tells_it(protocol):
    """p0, who admits q, is expelled before it can say that p1 had gone: p2 and p3 say so."""
    names = ["p0", "p1", "p2", "p3"]
    p0, p1, p2, p3 = (Engine(name, names, protocol) for name in names)
    p1.leave("p1")
    for receiver in (p0, p2, p3):
        bring(p1, receiver)
        bring(receiver, p1)
    assert p0.join("q", "nowhere") == 4
    q = Engine("q", [*names, "q"], protocol)
    bring(p0, p2)
    p2.leave("p0")
    staying = [p2, p3, q]
    for _ in range(6):
        for sender, receiver in permutations(staying, 2):
            bring(sender, receiver)
    assert not q.members.awaited and all(departure.closed for departure in q.members.departures.values())
    assert all(set(engine.roster) == {"p2", "p3", "q"} for engine in staying)


@pytest.mark.parametrize("protocol", [name for name in RECYCLING if name in EXPELLING])
def test_what_a_newcomer_was_told_of_the_former_holder_of_an_index_is_not_said_of_the_next(protocol):
    """The others had told all stages before the newcomer joined: its own word of them may come late."""
    system = Churning(protocol, 5, 1)
    for name in ("p3", "p4"):
        del system.engines[name]
        system.engines["p0"].leave(name)
        system.carry()
    p0, p1, p2 = system.engines.values()

    def admitted(name):
        index = p0.join(name, "nowhere")
        roster = p0.roster
        names = [roster.name(each) for each in range(len(roster))]
        system.engines[name] = engine = Engine(name, names, protocol)
        return index, engine

    first, newcomer = admitted("p5")
    for sender, receiver in ((p0, newcomer), (p1, p2), (p0, p1), (p0, p2), (p1, newcomer), (p2, newcomer)):
        bring(sender, receiver)
    for _ in range(4):
        for sender, receiver in permutations((p0, p2, newcomer), 2):
            bring(sender, receiver)
        bring(p0, p1), bring(p2, p1)
        bring(p1, p0), bring(p1, p2), bring(p1, newcomer)
    second, _ = admitted("p6")
    assert {first, second} == {3, 4}, "both indices are given again"
    bring(p0, p1)
    again = Engine(p1.name, ["p0", "p1", "p2", "p3", "p4"], protocol)
    p1.release(p1.cut())
    again.restore(p1.snapshot())
    system.engines["p1"] = again
    system.carry()
    for engine in system.engines.values():
        assert {*engine.roster} == {"p0", "p1", "p2", "p5", "p6"} and not engine.members.awaited
    system.talk(30)
    assert not any(engine.pending() for engine in system.engines.values())
