"""Five processes under load, upgraded one after the other to a wheel of the next version: nothing is refused,
nothing lost."""

import json
import subprocess
import time
from pathlib import Path

import pytest
import wheels
from netcluster import NAMES, Cluster
from netprocess import destinations


def replace(cluster, name, upgrade):
    """Stop a process once it has work in hand, and start it again as `upgrade` has it."""
    reached = cluster.children[name].last.get("delivered", 0) + 20
    deadline = time.monotonic() + 60
    while cluster.children[name].last.get("delivered", 0) < reached:
        assert time.monotonic() < deadline, cluster.errors([name])
        time.sleep(0.02)
    assert cluster.stop(name) == 0
    upgrade(name)
    cluster.start(name)


def check_nothing_refused(cluster):
    told = "".join(cluster.errors(cluster.names).values())
    assert "refused us" not in told and "checksum" not in told and "version" not in told, told


@pytest.fixture(scope="module")
def interpreters(tmp_path_factory):
    """Of this version and of the next, each with a wheel of its own."""
    made = {}
    for version, change in (("this", lambda source: source), ("next", wheels.become_next)):
        source = change(wheels.copied(tmp_path_factory.mktemp("source")))
        wheel = wheels.built(source, tmp_path_factory.mktemp("dist"))
        made[version] = wheels.interpreter_with(wheel, tmp_path_factory.mktemp("venv") / version)
    return made


ASKED = (
    "import happened, json; from happened.net import terms;"
    "print(json.dumps([happened.__file__, happened.__version__, terms.HIGHEST, sorted(terms.FEATURES)]))"
)


def judge_by_logs(cluster):
    """What the applications wrote down, against what was to be sent: all of it, once, in each sender's order.
    Nothing of the package is asked."""
    for name in cluster.names:
        log = (cluster.directory / f"{name}.acknowledged").read_text().splitlines()
        got = [line.split()[1] for line in log]
        for sender in cluster.names:
            due = [
                f"{sender}/{number}"
                for number in range(1, cluster.plan["messages"] + 1)
                if name in destinations(cluster.plan, sender, number)
            ]
            assert [payload for payload in got if payload.startswith(f"{sender}/")] == due
            assert len(due) > 10


@pytest.mark.slow
def test_a_wheel_of_the_next_version_takes_the_place_of_this_one(interpreters, tmp_path, seed):
    asked = {
        version: json.loads(subprocess.check_output([python, "-E", "-c", ASKED], cwd=tmp_path))
        for version, python in interpreters.items()
    }
    for version, (file, _, _, _) in asked.items():
        assert Path(file).is_relative_to(interpreters[version].parents[1])
    assert asked["next"][1:3] == [f"99.{asked['this'][1]}", asked["this"][2] + 1]
    assert set(asked["next"][3]) - set(asked["this"][3]) == {wheels.NEXT_FEATURE}

    def command(version):
        # -E: whatever PYTHONPATH says, it is the wheel that runs.
        return [str(interpreters[version]), "-E", str(Path(__file__).with_name("netprocess.py"))]

    first = {name: command("this") for name in NAMES}
    with Cluster(tmp_path, seed, messages=1000, pace=0.012, commands=first, write_first=True) as cluster:
        for name in NAMES:
            replace(cluster, name, lambda name: cluster.plan["commands"].update({name: command("next")}))
        cluster.wait(180)
        check_nothing_refused(cluster)
        told = cluster.errors(cluster.names)
    # The last one to be upgraded uses the new format with everybody, and so does everybody with it.
    last = NAMES[-1]
    assert all(f"wide records with {other}" in told[last] for other in NAMES[:-1])
    assert all(f"wide records with {last}" in told[other] for other in NAMES[:-1])
    judge_by_logs(cluster)
    cluster.judge()
