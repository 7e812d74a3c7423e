"""Trackers riding on simulated messages: judged from the trace alone, and charged in the ledger."""

from functools import partial
from random import Random

import numpy as np
import pytest

from happened import causality, trace
from happened.causality.analysis import analyse
from happened.core.errors import LocalProtocolError
from happened.ordering import create as create_machine
from happened.sim.network import Network
from happened.sim.plain import Plain, control_sizes
from happened.sim.recorder import RunRecorder
from happened.sim.riders import Riders
from happened.sim.simulation import ScheduledChange, Simulation
from happened.sim.workload import Workload
from happened.trace import TraceWriter
from happened.tracking import Timestamp, create, vectors

ON_PLAIN = {"factory": Plain, "control_sizes": control_sizes}
create_ks = partial(create_machine, "ks")
ON_KS = {"factory": create_ks}


def ride(name, seed, *, folder=None, n=8, messages=600, pattern="unicast", fifo=False, **machine):
    riders = Riders(partial(create, name), n, 0.15, Random(f"{seed}/relevant"))
    machine = machine or ON_PLAIN
    recorded = TraceWriter(folder) if folder is not None else None
    simulation = Simulation(
        machine["factory"],
        n,
        messages,
        seed=seed,
        workload=Workload(pattern),
        network=Network(fifo=fifo),
        recorder=RunRecorder(recorded) if recorded is not None else None,
        riders=riders,
        **{key: value for key, value in machine.items() if key != "factory"},
    )
    assert simulation.run() == []
    if recorded is not None:
        recorded.close()
    return riders, simulation.ledger.totals()


def told(table):
    """What the trackers told of each relevant event, and what the judge finds: vectors, predecessors."""
    (computation,) = causality.encode(table)
    stamped = causality.stamp([computation]).matrix()
    rows = table.to_pylist()
    # What trackers number: relevant events of the application, and null events.
    relevant = np.array(["relevant_seq" in dict(row["attributes"] or ()) for row in rows])[computation.row]
    assert all(
        row["relevant"] == ("null" not in dict(row["attributes"]))
        for row, is_numbered in zip(rows, relevant[np.argsort(computation.row)], strict=True)
        if is_numbered
    )
    # How many of them each process has up to each of its seqs.
    counts = [
        np.concatenate([[0], np.cumsum(relevant[computation.chain[a:b]])])
        for a, b in zip(computation.chain_offsets, computation.chain_offsets[1:], strict=False)
    ]
    attributes, judged, name_of = {}, {}, {}
    for e in np.flatnonzero(relevant):
        row = rows[computation.row[e]]
        kept = dict(row["attributes"])
        name = row["process"], int(kept["relevant_seq"])
        name_of[row["process"], row["seq"]] = name
        attributes[name] = kept
        judged[name] = {
            process: int(counts[q][stamped[e, q]])
            for q, process in enumerate(computation.process_names)
            if counts[q][stamped[e, q]]
        }
    edges = causality.predecessors([computation]).table().to_pylist()
    before = {name: set() for name in attributes}
    for edge in edges:
        before[name_of[edge["process"], edge["seq"]]].add(name_of[edge["cause_process"], edge["cause_seq"]])
    return attributes, judged, before


def parse(text):
    return {process: int(seq) for process, seq in (token.split(":") for token in text.split())}


@pytest.mark.parametrize("machine", [ON_PLAIN, ON_KS], ids=["plain messages", "ks"])
@pytest.mark.parametrize("name", ["vector", "p1", "p1-prime", "p3", "p3-reduced", "p3-reduced-prime"])
def test_the_judge_finds_every_timestamp_exact(name, machine, seed, tmp_path):
    pattern = "multicast" if machine is ON_KS else "unicast"
    ride(name, seed, folder=tmp_path, pattern=pattern, messages=300, **machine)
    attributes, judged, before = told(trace.read(tmp_path))
    assert len(attributes) > 50
    assert {event: parse(kept["vector"]) for event, kept in attributes.items()} == judged
    if name.startswith("p3"):
        assert {
            event: set(parse(kept["predecessors"]).items()) for event, kept in attributes.items()
        } == before


@pytest.mark.parametrize("name", ["p2:1", "p2:3", "incremental"])
def test_the_judge_finds_reconstructed_vectors_exact(name, seed, tmp_path):
    n = 8
    ride(name, seed, folder=tmp_path, n=n)
    attributes, judged, _ = told(trace.read(tmp_path))
    stamps = []
    for (process, seq), kept in attributes.items():
        counts = parse(kept["dependencies"])
        dependencies = tuple(counts.get(f"p{k}", 0) for k in range(n))
        stamps.append(Timestamp(int(process[1:]), seq, dependencies=dependencies))
    found = vectors(stamps)
    assert {
        (f"p{process}", seq): {f"p{k}": count for k, count in enumerate(vector) if count}
        for (process, seq), vector in found.items()
    } == judged


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p1", "p1-prime", "p3-reduced", "p3-reduced-prime"])
def test_the_judge_finds_fifty_processes_exact(name, seed, tmp_path):
    ride(name, seed, folder=tmp_path, n=50, messages=20_000)
    attributes, judged, before = told(trace.read(tmp_path))
    assert len(attributes) > 5_000
    assert {event: parse(kept["vector"]) for event, kept in attributes.items()} == judged
    if name.startswith("p3"):
        assert {
            event: set(parse(kept["predecessors"]).items()) for event, kept in attributes.items()
        } == before


def test_the_ledger_charges_what_the_piggybacks_weigh(seed):
    riders, totals = ride("p1", seed, **ON_KS)
    assert totals["tracking_entries"]["mean"] * totals["transmissions"] == pytest.approx(riders.fare.entries)
    assert totals["tracking_bytes"]["mean"] * 8 >= riders.fare.bits / riders.fare.transmissions > 9
    _, without = ride("p1", seed, n=3, messages=1)
    assert without["entries"]["max"] == 0  # plain messages carry no control information of their own


def test_protocols_are_compared_on_the_same_events(seed):
    fares = {name: ride(name, seed)[0].fare for name in ("vector", "p1", "p3", "p2:1")}
    assert len({fare.transmissions for fare in fares.values()}) == 1
    assert len({fare.relevant_events for fare in fares.values()}) == 1
    assert fares["vector"].entries == fares["p3"].entries > fares["p1"].entries > fares["p2:1"].entries
    assert fares["p2:1"].null_events > 0 == fares["p1"].null_events


def test_one_seed_replays(seed):
    assert ride("p3-reduced", seed)[0].fare == ride("p3-reduced", seed)[0].fare


@pytest.mark.parametrize("name", ["p1-prime", "p2:2", "p3-reduced", "matrix"])
def test_trackers_grow_with_the_system(name, seed, tmp_path):
    riders = Riders(partial(create, name), 3, 0.2, Random(seed))
    joins = [ScheduledChange(0.3, "join", 3), ScheduledChange(0.6, "join", 4)]
    with TraceWriter(tmp_path) as writer:
        simulation = Simulation(
            create_ks, 3, 300, seed=seed, changes=joins, recorder=RunRecorder(writer), riders=riders
        )
        assert simulation.run() == []
    table = trace.read(tmp_path)
    found = analyse(table, questions=["verify-trackers"])
    assert found.totals["tracker_stamps"] > 50 and found.totals["tracker_faults"] == 0
    assert {"p3", "p4"} <= {row["process"] for row in table.to_pylist() if row["relevant"]}


def test_a_plain_machine_delivers_once_and_restores():
    sender, receiver = Plain(0, 2), Plain(1, 2)
    ((_, message),) = sender.multicast([1], b"x").effects
    assert len(receiver.receive(message)) == 1 and receiver.receive(message) == []
    twin = Plain(1, 2)
    twin.restore(receiver.snapshot())
    assert twin.snapshot() == receiver.snapshot()
    # A duplicate is an arrival, which counts as an event, and nothing else.
    assert twin.receive(message) == receiver.receive(message) == []
    assert twin.snapshot() == receiver.snapshot()
    with pytest.raises(LocalProtocolError):
        twin.restore(b"{}")
