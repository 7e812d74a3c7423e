"""Whole runs of `ks` up to fifty processes, judged from their traces alone: nothing early, nothing lost,
nothing twice, and every message carrying exactly what was necessary."""

import math
import random
from functools import partial

import pytest

import effort
from happened import causality, trace
from happened.ordering import create
from happened.ordering.machine import Multicast
from happened.sim.network import Network, parse_delay
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import SECOND, ScheduledChange, Simulation
from happened.sim.workload import Workload
from happened.trace import TraceWriter
from happened.wire import control_sizes
from oracles.unordered import Unordered


def judge(directory, *, transmissions, departures=None):
    """`departures`: when each process left, in ns."""
    table = trace.read(directory)
    verdict = causality.check_order(table, "causal")
    assert verdict.holds, verdict.witness
    fates = causality.check_delivery(table)
    assert (fates.lost, fates.duplicated, fates.misdelivered, fates.never_sent) == (0, 0, 0, 0)
    audit = causality.audit_units(table, examples=1_000_000)
    assert audit.redundant == 0 and audit.recorded >= transmissions
    lacking = {(lacks.receive.message, lacks.unit.destination) for lacks in audit.missing_examples}
    assert len(audit.missing_examples) == audit.missing
    judge_departures(table, lacking, departures or {})
    return fates


def judge_departures(table, lacking, departures):
    """A message lacks exactly the units to processes that its sender knew to be gone; here all hear of a
    departure when it happens. `lacking` has a message and the destination of a unit each."""
    rows = table.select(["kind", "message", "time", "attributes"]).to_pylist()
    sent_at = {row["message"]: row["time"] for row in rows if row["kind"] == "send"}
    for message, destination in lacking:
        assert departures.get(destination, math.inf) <= sent_at[message], f"{message} lacks {destination}"
    for row in rows:
        for unit in dict(row["attributes"] or ()).get("units", "").split():
            gone_at = departures.get(unit.rpartition(">")[2], math.inf)
            assert row["kind"] != "receive" or sent_at[row["message"]] <= gone_at, f"{row} names {unit}"


def run(
    directory, seed, *, processes, messages, pattern, changes=(), factory=None, sizes=control_sizes, **network
):
    """Leave a trace in the directory; what was not delivered."""
    with TraceWriter(directory) as writer:
        simulation = Simulation(
            factory or partial(create, "ks"),
            processes,
            messages,
            seed=seed,
            workload=Workload(pattern=pattern),
            network=Network(delay=parse_delay("exp:0.1"), **network),
            changes=changes,
            control_sizes=sizes,
            recorder=RunRecorder(writer, units=True),
        )
        return simulation.run()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "pattern", ["unicast", "multicast", "broadcast", "client-server", "clusters", "ring"]
)
@pytest.mark.parametrize("processes", [2, 7, 50])
def test_every_pattern_up_to_fifty_processes(tmp_path, seed, processes, pattern):
    messages = (
        {"broadcast": 300, "multicast": effort.samples(1500)}.get(pattern, 1500) if processes == 50 else 1500
    )
    left = run(tmp_path, seed, processes=processes, messages=messages, pattern=pattern, duplicate=0.05)
    assert not left
    fates = judge(tmp_path, transmissions=messages)
    assert fates.messages == messages


@pytest.mark.sampled
def test_processes_that_join_and_leave(tmp_path, dice, seed):
    """Joins carry the system past 63 processes, where its vectors change their width."""
    messages = 800 if effort.THOROUGH else 400
    present, changes = list(range(60)), []
    for i in range(16):
        if i % 2:
            gone = present.pop(dice.randrange(len(present)))
            changes.append(ScheduledChange(0.02 * (i + 1), "leave", gone))
        else:
            present.append(60 + i // 2)
            changes.append(ScheduledChange(0.02 * (i + 1), "join", 60 + i // 2))
    left = run(tmp_path, seed, processes=60, messages=messages, pattern="fanout:8", changes=changes)
    assert not left
    departures = {f"p{c.process}": int(c.time * SECOND) for c in changes if c.what == "leave"}
    judge(tmp_path, transmissions=messages * 8, departures=departures)


class Restarting:
    """A machine that is now and then replaced by one made from its own snapshot."""

    def __init__(self, dice, me, n):
        self._dice = dice
        self._machine = create("ks", me, n)

    def __getattr__(self, name):
        if self._dice.random() < 0.02:
            snapshot = self._machine.snapshot()
            self._machine = create("ks", self._machine.me, self._machine.n)
            self._machine.restore(snapshot)
        return getattr(self._machine, name)


def test_machines_restored_at_random_points(tmp_path, seed):
    factory = partial(Restarting, random.Random(seed))
    left = run(
        tmp_path, seed, processes=12, messages=1500, pattern="multicast", duplicate=0.1, factory=factory
    )
    assert not left
    judge(tmp_path, transmissions=1500)


def test_one_dropped_unit_is_found_by_the_audit(tmp_path, seed):
    """The audit is not a formality: a machine that forgets one unit now and then is caught."""

    class Forgetful(Restarting):
        def multicast(self, to, payload):
            clock, effects = self._machine.multicast(to, payload)
            forgetting = [
                effect._replace(message=effect.message._replace(wait_for=0))
                if self._dice.random() < 0.01
                else effect
                for effect in effects
            ]
            return Multicast(clock, forgetting)

    factory = partial(Forgetful, random.Random(seed))
    run(tmp_path, seed, processes=8, messages=800, pattern="multicast", factory=factory)
    audit = causality.audit_units(trace.read(tmp_path))
    assert not audit.holds
    assert audit.missing > 0


def test_a_run_without_order_is_found_out(tmp_path, seed):
    run(tmp_path, seed, processes=8, messages=800, pattern="multicast", factory=Unordered, sizes=nothing)
    verdict = causality.check_order(trace.read(tmp_path))
    assert verdict.holds is False
    assert verdict.violations > 100


def nothing(messages):
    return [0] * len(messages)
