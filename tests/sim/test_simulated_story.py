"""`happened simulate --story`: what is told of a simulated run is what its ledger and trace have."""

import json
from pathlib import Path

import pytest

from happened import read_trace, tracking
from happened.cli import main
from happened.cli.options import read_terrain
from happened.ordering import protocols
from happened.sim.network import Network
from happened.sim.run import MOST_TOLD, Parameters, simulate
from happened.sim.workload import Workload


def parameters(seed, name="ks", **options):
    facts = protocols()[name]
    pattern = next(p for p in ("broadcast", "multicast", "unicast") if p in facts.assumes.casts)
    network = Network(fifo=facts.assumes.fifo_links, duplicate=options.pop("duplicate", 0.0))
    return Parameters(
        seed, name, processes=4, messages=12, workload=Workload(pattern), network=network, **options
    )


@pytest.mark.parametrize("name", sorted(protocols()))
def test_every_protocol_has_a_story_of_a_run_and_the_run_is_the_same(name, seed):
    summary = simulate(parameters(seed, name), story=True)
    steps = summary.pop("story")["steps"]
    assert summary == simulate(parameters(seed, name))
    ledger = summary["ledger"]
    assert sum(step["kind"] == "send" for step in steps) == ledger["messages"] == 12
    assert sum(step["kind"] == "arrive" for step in steps) == ledger["arrivals"]
    assert sum(len(step["delivered"]) for step in steps) == ledger["deliveries"]
    if protocols()[name].order.is_causal:
        assert not any(step["wrong"] for step in steps)
    seconds = [step["seconds"] for step in steps]
    assert seconds == sorted(seconds) and seconds[-1] <= summary["virtual_seconds"]


@pytest.mark.parametrize("name", sorted(tracking.protocols()))
def test_every_tracker_has_a_story_of_a_run(name, seed, tmp_path):
    run = parameters(seed, tracker=name, relevant=1.0)  # `direct` needs an event between receipt and send
    steps = simulate(run, tmp_path / "run", story=True)["story"]["steps"]
    events = [row for row in read_trace(tmp_path / "run").to_pylist() if row["kind"] == "internal"]
    assert sum(step["kind"] == "event" for step in steps) == len(events) > 0
    assert not any(step["wrong"] for step in steps)


@pytest.mark.parametrize("name, processes", [("topological", 12), ("zoned-ks", 12), ("rst", 6)])
def test_a_run_over_a_topology_has_its_routers_where_they_take_part(name, processes, seed):
    terrain = read_terrain(Path(__file__).parents[2] / "examples" / "topologies" / "two-gateways.yaml")
    run = Parameters(seed, name, processes=terrain.applications, messages=8, terrain=terrain)
    summary = simulate(run, story=True)
    story = summary["story"]
    assert story["names"] == [f"{p} {name}" for p, name in enumerate(terrain.names[:processes])]
    assert sum(step["kind"] == "arrive" for step in story["steps"]) == summary["ledger"]["arrivals"]
    assert all(step["departed"] < step["number"] for step in story["steps"] if step["kind"] == "arrive")


def test_a_copy_that_comes_twice_is_told_as_such(seed):
    steps = simulate(parameters(seed, duplicate=0.9), story=True)["story"]["steps"]
    again = [step for step in steps if step["what"].endswith(", again")]
    assert len(again) > 5
    assert not any(step["delivered"] or step["rules"] or step["arrival"] for step in again)


def test_the_command_prints_the_story_and_leaves_a_page(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["simulate", "--processes", "3", "--messages", "4", "--seed", "1", "--story"]
    assert main([*command, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ks: 4 messages, seed 1\nwhere 0 is p0, 1 is p1, 2 is p2\n  1. ")
    assert "log at 0: 0,1:" in printed and "undelivered" in printed
    assert "4 messages, seed 1" in (out / "story.html").read_text()
    assert main([*command, "--json"]) == 0
    story = json.loads(capsys.readouterr().out)["story"]
    assert "story" not in json.loads((out / "summary.json").read_text())
    assert printed.count("\n") > len(story["steps"]) > 8
    assert main(["check", str(out)]) == 0  # the page is in nobody's way
    assert main([*command[:-1], "--out", str(out), "--force"]) == 0
    assert not (out / "story.html").exists()


def test_a_run_that_nobody_could_read_is_refused(tmp_path, capsys):
    assert (
        main(["simulate", "--story", "--messages", str(MOST_TOLD + 1), "--out", str(tmp_path / "run")]) == 2
    )
    assert "a story is told of at most 100 messages, and this run has 101: ask for" in capsys.readouterr().err
    assert main(["simulate", "--story", "--messages", "5", "--processes", "65"]) == 2
    assert "at most 64 processes" in capsys.readouterr().err
    assert main(["simulate", "--story", "--messages", "100", "--processes", "11"]) == 2
    assert "at most 1,000 messages times processes, and this run has 1,100" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
