"""Promises about a system of machines: order, progress, duplicates, joins, departures, least information,
every interleaving of small programs. A check takes Facts and a seed, and raises where a promise is broken.
"""

from dataclasses import replace
from functools import partial

import pytest

from contract.drive import Dice, System, busy, make, walk, widest_cast
from happened import causality, trace
from happened.core.effects import Send
from happened.core.errors import LocalProtocolError
from happened.core.orders import Order
from happened.ordering.facts import BROADCAST, MembershipChanges, Relays
from happened.sim.explore import explore
from happened.sim.ledger import Ledger
from happened.sim.network import Network
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import Simulation
from happened.sim.workload import Workload
from happened.trace import TraceWriter

WALKS = 60
LANE_WIDTH_CHANGES = 62  # joins from here on make vectors wider


def check_interleavings(facts, seed):
    """Sends, arrivals in any order, duplicates, restarts, joins, departures; short walks first."""
    for number in range(WALKS):
        dice = Dice(f"{seed}/{number}")
        near = facts.membership.joins and not number % 5
        n = dice.randint(1, 4)
        system = System(facts, n + LANE_WIDTH_CHANGES if near else n, act=n)
        walk(system, dice, 5 + number)
        system.drain(dice)


def check_safety(facts, seed):
    """Longer than a walk: what is wrong only after many messages shows here."""
    dice = Dice(seed)
    system = System(facts, 5)
    for _ in range(200):
        system.multicast(dice)
        while system.in_flight and dice.random() < 0.8:
            system.arrive(dice)
    system.drain(dice)
    assert sum(map(len, system.history.order.values())) >= 200


def check_liveness(facts, seed):
    """Everything is sent before anything arrives; then, where links may reorder, the newest come first."""
    dice = Dice(seed)
    for n in (1, 2, 5):
        system = System(facts, n)
        for _ in range(12):
            system.multicast(dice)
        system.check_held()
        while system.in_flight:
            channel = max(channel for channel, packets in system.channels.items() if packets)
            packet = system.channels[channel].pop(0 if facts.assumes.fifo_links else -1)
            system.receive(channel[1], packet.message)
            system.check_held()
        system.drain(dice)


def check_messages_to_oneself(facts, seed):
    """One process alone, whose messages come back in the opposite order."""
    alone = System(facts, 1)
    for _ in range(3):
        alone.send(0, {0})
    sent = alone.channels.pop((0, 0), [])
    packets = [packet.message for packet in sent]
    names = [(message.sender, message.clock) for message in packets]
    if len(packets) == 3 and not facts.assumes.fifo_links and facts.order is not Order.TOTAL:
        assert not alone.receive(0, packets[2]) and not alone.receive(0, packets[1])
        waits = [(held.message, set(held.waits_for)) for held in alone.machines[0].pending()]
        assert [message for message, _ in waits] == [packets[2], packets[1]]
        assert all(named for _, named in waits)
        assert not facts.waits.names_missing or all(named <= set(names[:2]) for _, named in waits)
        alone.receive(0, packets[0])
        again = alone.machines[0].receive(packets[0])
        assert not again
    else:
        alone.channels[0, 0] = sent
    alone.drain(Dice(seed))
    if facts.order is not Order.TOTAL:
        assert [alone.payloads[name] for name in alone.history.order[0]] == [b"0", b"1", b"2"]


def check_duplicates(facts, seed):
    """Every packet arrives again and again; a duplicate delivers nothing."""
    dice = Dice(seed)
    system = System(facts, 4)
    for _ in range(25):
        system.multicast(dice)
        while system.in_flight and dice.random() < 0.7:
            channel = dice.one(sorted(c for c, packets in system.channels.items() if packets))
            packets = system.channels[channel]
            packet = packets.pop(0 if facts.assumes.fifo_links else dice.randrange(len(packets))).message
            system.receive(channel[1], packet)
            for _ in range(2):
                effects = system.receive(channel[1], packet)
                assert all(isinstance(effect, Send) for effect in effects), "a duplicate is delivered"
    system.drain(dice)


def check_joins(facts, seed):
    dice = Dice(seed)
    if not facts.membership.joins:
        machine = make(facts, 0, 3)
        before = machine.snapshot()
        with pytest.raises(LocalProtocolError, match="cannot join"):
            machine.join(3)
        assert machine.snapshot() == before
        return
    for n in (1, 3, LANE_WIDTH_CHANGES):
        system = System(facts, n, act=4)
        with pytest.raises(LocalProtocolError, match=f"index {n}"):
            system.machines[0].join(n + 2)
        for _ in range(4):
            for _ in range(6):
                system.multicast(dice)
                while system.in_flight and dice.random() < 0.6:
                    system.arrive(dice)
            system.join()
        system.drain(dice)


def check_departures(facts, seed):
    machine = make(facts, 0, 3)
    if not facts.membership.departures:
        before = machine.snapshot()
        with pytest.raises(LocalProtocolError, match="start anew"):
            machine.leave(2)
        assert machine.snapshot() == before
        return
    for stranger in (3, -1):
        with pytest.raises(LocalProtocolError, match="not present"):
            machine.leave(stranger)
    machine.leave(2)
    for again in (lambda: machine.leave(2), lambda: machine.multicast([2], b"")):
        before = machine.snapshot()
        with pytest.raises(LocalProtocolError, match=r"not present|has left"):
            again()
        assert machine.snapshot() == before
    dice = Dice(seed)
    system = System(facts, 6)
    for _ in range(4):
        for _ in range(6):
            system.multicast(dice)
            while system.in_flight and dice.random() < 0.6:
                system.arrive(dice)
        system.leave(dice.one(system.active[1:]))
    system.drain(dice)


def check_expulsions(facts, seed):
    """Processes stop at any point and are expelled; the others go on, and wait for nothing that is lost."""
    if not facts.membership.departures or not facts.membership.expulsions:
        assert facts.membership.changes()["expel"].startswith("refused: ")
        with pytest.raises(LocalProtocolError, match="'p' cannot be expelled"):
            replace(facts, membership=MembershipChanges(expulsions=False)).check_expulsion("p")
        return
    for number in range(8):
        dice = Dice(f"{seed}/{number}")
        system = System(facts, 6)
        for _ in range(3):
            for _ in range(6):
                system.multicast(dice)
                while system.in_flight and dice.random() < 0.6:
                    system.arrive(dice)
                    system.settle(dice)
            if not system.may_expel:
                system.drain(dice)
            system.expel(dice, dice.one(system.active))
        system.drain(dice)


def check_failures(facts, seed, schedules=2):
    """A schedule of three processes again and again, with a departure of each kind at each of its steps."""
    if not facts.membership.departures:
        return
    for number in range(schedules):
        steps = fail_at(facts, f"{seed}/{number}", None, None, None)
        assert steps > 6
        for kind in ("leave", "expel") if facts.membership.expulsions else ("leave",):
            for process in range(3):
                for step in range(steps):
                    fail_at(facts, f"{seed}/{number}", kind, process, step)


def fail_at(facts, seed, kind, process, when):
    """Run a schedule until all is delivered, and judge; returns how many steps it had."""
    dice, system, sends = Dice(seed), System(facts, 3), 5
    step = 0
    while sends or system.in_flight:
        if step == when:
            if kind == "leave":
                system.leave(process)
            else:
                system.expel(dice, process)
        step += 1
        if not sends and not system.in_flight:
            break
        if sends and (not system.in_flight or dice.random() < 0.4):
            system.multicast(dice)
            sends -= 1
        else:
            system.arrive(dice)
        if dice.flip():
            system.settle(dice)
        system.check_held()
    system.drain(dice)
    return step


def check_optimality(facts, seed):
    """`System` compares every log and every edge with PC1 and PC2; here there is much to compare."""
    dice = Dice(seed)
    for n in (2, 4, 7):
        system = busy(facts, n, dice, sends=60)
        assert any(message.units() for message in system.made)
        system.drain(dice)


def check_explored(facts, seed, messages=2):
    """Every interleaving of every program of three processes, within the assumptions."""
    result = explored(facts, messages)
    assert result.states > result.programs > 0
    if not facts.assumes.serialized:
        assert result.violations == ()
        return result
    counts = result.counts()  # nobody waits for its turn: some are refused, none is out of order
    assert counts.pop("error") > 0 and not any(counts.values())
    assert all("not serialized" in violation.reason for violation in result.violations)
    return result


def explored(facts, messages, **options):
    return explore(
        partial(make, facts),
        3,
        messages,
        **{
            "order": facts.order,
            "fifo": facts.assumes.fifo_links,
            "casts": widest_cast(facts),
            "optimal": facts.promises.optimal,
            **options,
        },
    )


def check_simulated(facts, seed, directory):
    """A simulated run with duplicates, judged from its trace by code that knows no protocol."""
    pattern = BROADCAST if facts.assumes.fixed_groups else widest_cast(facts)  # everybody is a group
    simulation = Simulation(
        partial(make, facts),
        5,
        300,
        seed=seed,
        workload=Workload(pattern),
        network=Network(fifo=facts.assumes.fifo_links, duplicate=0.1),
        ledger=Ledger(),
    )
    with TraceWriter(directory) as writer:
        simulation._recorder = RunRecorder(writer)
        left = simulation.run()
    assert not left
    table = trace.read(directory)
    fates = causality.check_delivery(table)
    found = (fates.messages, fates.lost, fates.duplicated, fates.misdelivered, fates.never_sent)
    assert found == (300, 0, 0, 0, 0)
    promises = {Order.CAUSAL_TOTAL: ("causal", "total")}.get(facts.order, (str(facts.order),))
    for promise in promises:
        verdict = causality.check_order(table, promise)
        assert verdict.holds, verdict.witness


def treats_processes_alike(facts):
    return facts.copies.relays is Relays.NOBODY and not facts.order.is_total
