"""The engine is a function of its inputs: replaying them, from any snapshot, gives the same node."""

import subprocess
import sys
from random import Random

import pytest

from contract.drive import Dice, destinations, options
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.net.batch import Input, read_entries
from happened.net.engine import Engine
from happened.ordering import protocols

NAMES = ["a", "b", "c", "d"]
EVERY = sorted(protocols())


def make(name, protocol):
    return Engine(name, NAMES, protocol, options(protocols()[protocol], len(NAMES)))


def to_whom(protocol, dice, me):
    everybody = range(len(NAMES))
    return sorted(destinations(protocols()[protocol], Dice(dice.random()), me, everybody, everybody))


def multicast(protocol, dice, engine, payload):
    """Send something, or ask for the token first where sends are serialized; it is soon passed on."""
    if engine.has_turn:
        engine.multicast(to_whom(protocol, dice, engine.me), payload)
        if engine.serialization is not None and dice.random() < 0.6:
            engine.serialization.release(away=dice.random() < 0.2)
    else:
        engine.serialization.want()


def run(protocol, dice, steps):
    """Engines that exchange frames over their outboxes; yields each batch, and whose it is."""
    engines = [make(name, protocol) for name in NAMES]
    for _ in range(steps):
        engine = dice.choice(engines)
        for _ in range(dice.randint(1, 5)):
            step(protocol, dice, engines, engine)
        if engine.is_dirty:
            batch = engine.cut()
            engine.release(batch)
            yield engine, batch


def step(protocol, dice, engines, engine):
    act = dice.random()
    if act < 0.05:
        engine.unordered.multicast(dice.sample(range(len(NAMES)), 2), b"unordered")
    elif act < 0.4:
        multicast(protocol, dice, engine, dice.randbytes(dice.randrange(20)))
    elif act < 0.8:
        link = dice.choice(list(engine.inboxes))
        outbox, inbox = engines[link].outboxes[engine.me], engine.inboxes[link]
        for _, frame in outbox.after(max(inbox.received_through, outbox.acknowledged), 200):
            engine.receive(link, frame)
    elif act < 0.9 and engine.unacknowledged:
        engine.acknowledge(dice.choice(list(engine.unacknowledged)))
    else:
        link = dice.choice(list(engine.outboxes))
        engine.free(link, engines[link].inboxes[engine.me].durable)


@pytest.mark.parametrize("protocol", EVERY)
def test_replaying_the_batches_gives_the_same_state_after_each(protocol, dice: Random):
    copies = {name: make(name, protocol) for name in NAMES}
    deliveries = 0
    # Three messages for each, and nothing before everybody has answered: few deliveries for so many steps.
    steps = 350 if protocol == "causal-total" else 150
    for engine, batch in run(protocol, dice, steps):
        copy = copies[engine.name]
        copy.replay(batch.entries, batch.time)
        assert copy.snapshot() == engine.snapshot()
        deliveries += len(batch.deliveries)
        if dice.random() < 0.2:  # killed, and restored from a snapshot: the rest is replayed from there
            copies[engine.name] = restored = make(engine.name, protocol)
            restored.restore(engine.snapshot())
    assert deliveries > 20


def test_a_refused_frame_leaves_no_mark(dice: Random):
    engines = [make(name, "ks") for name in NAMES]
    engines[1].multicast([0, 2], b"hello")
    engines[1].release(engines[1].cut())
    ((_, good),) = engines[1].outboxes[0].after(0, 1000)
    ((_, other),) = engines[1].outboxes[2].after(0, 1000)
    engine = engines[0]
    for bad, why in (
        (good + b"!", "follow the end"),
        (good[:-3], "announced"),
        (b"", "ends early"),
        (other, "copy made for"),
        (b"\xff\x01[1]", "change of members"),
        (b'\xff\x01[1, 0, "zoe", ""]', "we disagree"),
        (b'\xff\x01[2, 99, "", ""]', "we disagree"),
        (b'\xff\x01[1, 4, "b", ""]', "we disagree"),
        (b'\xff\x01[1, 4, "", ""]', "no name"),
    ):
        before = engine.snapshot()
        with pytest.raises(RemoteProtocolError, match=why):
            engine.receive(1, bad)
        assert not engine.is_dirty and engine.snapshot() == before
    with pytest.raises(RemoteProtocolError, match="message of process 1 comes from process 2"):
        engine.receive(2, good)
    engine.receive(1, good)
    assert engine.delivered == 1


def test_entries_come_back_as_they_went_and_a_torn_one_is_an_error():
    engine = make("a", "ks")
    engine.multicast([1, 3], b"payload")
    engine.meet(2, b"12345678")
    entries = engine.cut().entries
    assert [kind for kind, _, _ in read_entries(entries)] == [Input.MULTICAST, Input.PEER_MET]
    with pytest.raises(ValueError, match="cut off"):
        list(read_entries(entries[:-1]))
    with pytest.raises(ValueError, match="cut off within its head"):
        list(read_entries(entries + entries[:5]))


def deliver_all(engines):
    """Carry every frame until nothing moves."""
    moved = True
    while moved:
        moved = False
        for engine in engines.values():
            if engine.is_dirty:
                engine.release(engine.cut())
        for engine in engines.values():
            for link, outbox in engine.outboxes.items():
                receiver = engines.get(engine.roster.name(link))
                if receiver is None:
                    continue
                for number, frame in outbox.after(outbox.acknowledged, 1 << 20):
                    if number > receiver.inboxes[engine.me].received_through:
                        receiver.receive(engine.me, frame)
                    engine.free(link, number)
                    moved = True


def test_members_join_and_leave_and_are_numbered_alike():
    engines = {name: Engine(name, ["a", "b", "c"], "ks") for name in ("a", "b", "c")}
    with pytest.raises(LocalProtocolError, match="'a' admits"):
        engines["b"].join("d", "there:1")
    engines["a"].join("d", "there:1")
    engines["d"] = Engine("d", ["a", "b", "c", "d"], "ks")
    engines["a"].multicast([3], b"welcome")
    deliver_all(engines)
    engines["b"].multicast([0, 2, 3], b"hello")
    engines["a"].leave("a")
    deliver_all(engines)
    assert engines["a"].members.farewells == {1, 2, 3}
    assert all(list(engines[name].roster) == ["b", "c", "d"] for name in "bcd")
    del engines["a"]
    with pytest.raises(LocalProtocolError, match="has left"):
        engines["b"].multicast([0], b"too late")
    assert engines["b"].join("e", "there:2") == 0  # by the next registrar, who stays that; a is forgotten
    engines["e"] = Engine("e", ["e", "b", "c", "d"], "ks")
    assert engines["b"].members.registrar == 1
    engines["d"].multicast([1, 2], b"still here")
    deliver_all(engines)
    engines["c"].multicast([1, 3, 0], b"all")
    deliver_all(engines)
    assert {engine.members.registrar for engine in engines.values()} == {1}
    with pytest.raises(LocalProtocolError, match="'a' is or was a member"):
        engines["b"].join("a", "there:3")
    assert [each.payload for each in engines["e"].unacknowledged.values()] == [b"all"]
    copy = Engine("e", ["e", "b", "c", "d"], "ks")
    copy.restore(engines["e"].snapshot())
    assert copy.snapshot() == engines["e"].snapshot()


def test_a_fixed_group_admits_nobody_and_says_so():
    engine = Engine("a", ["a", "b"], "bss")
    with pytest.raises(LocalProtocolError):
        engine.join("c", "there:1")
    assert not engine.is_dirty and len(engine.roster) == 2


def test_the_first_message_of_a_process_waits_for_no_import():
    """An engine has its protocol's codec at hand before anything is sent, and no others."""
    program = """
import sys
from happened.net.engine import Engine
a, b = (Engine(name, ["a", "b"], "ks") for name in "ab")
before = set(sys.modules)
a.multicast((1,), bytes(300))
a.release(a.cut())
for _, frame in a.outboxes[1].after(0, 1 << 20):
    b.receive(0, frame)
assert b.delivered == 1
print(sorted(set(sys.modules) - before), "happened.wire.causal" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
