"""The life of a unit, against the kernel that lists what each message and log must hold."""

import subprocess
import sys

import pytest

from happened import causality, trace
from happened.causality.necessary import Unit
from happened.causality.unit_life import PC1, PC2, unit_life


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("life") / "run"
    command = "simulate --processes 5 --messages 60 --units --seed 7 --out"
    subprocess.run([sys.executable, "-m", "happened", *command.split(), str(out)], check=True, timeout=120)
    return out


def test_edges_and_logs_are_those_of_the_necessary_information(run):
    table = trace.read(run)
    needed = causality.necessary(table)
    (computation,) = causality.encode(table)
    edges = {}
    for row in needed.edge_units().to_pylist():
        unit = Unit(row["unit_message"], row["unit_destination"])
        edges.setdefault(unit, set()).add((row["message"], row["destination"]))
    in_logs = {}
    for event, units in needed.logs():
        for unit in units:
            in_logs.setdefault(unit, set()).add((event.process, event.seq))
    lengths = {name: int(n) for name, n in zip(computation.process_names, _lengths(computation), strict=True)}
    rules = set()
    every = {
        Unit(computation.message_name(int(m)), computation.process_names[d])
        for m, d in zip(computation.slot_message, computation.slot_dest, strict=True)
    }
    assert len(every) > 60
    for unit in every:
        life = unit_life(computation, unit)
        assert {(edge.message, edge.destination) for edge in life.edges} == edges.get(unit, set())
        alive = set()
        for stretch in life.stretches:
            end = stretch.end.seq if stretch.end is not None else lengths[stretch.process] + 1
            alive |= {(stretch.process, seq) for seq in range(stretch.first.seq, end)}
            rules.add(stretch.rule)
        assert alive == in_logs.get(unit, set())
    assert {PC1, PC2} <= rules


def _lengths(computation):
    return computation.chain_offsets[1:] - computation.chain_offsets[:-1]


def explain(*arguments):
    command = [sys.executable, "-m", "happened", "ask", "unit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_tells_where_a_unit_was_and_what_ended_it(run):
    first = next(row for row in trace.read(run).to_pylist() if row["kind"] == "send")
    done = explain(run, f"{first['message']}>{first['to'][0]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{first['message']} was sent to {first['to'][0]} at {first['process']}#")
    assert "until" in done.stdout and "which copies had to carry it: " in done.stdout


@pytest.mark.parametrize("unit, why", [("p0:1", "is not a unit: write"), ("p0:999>p1", "did you mean: p")])
def test_what_is_no_unit_is_refused_with_what_is_near(run, unit, why):
    refused = explain(run, unit)
    assert refused.returncode == 2 and why in refused.stderr
