"""Five processes under load, upgraded one after the other: nothing is refused, nothing lost."""

import sys
import time
from pathlib import Path

import pytest
from netcluster import NAMES, Cluster

SCRIPT = str(Path(__file__).with_name("other_versions.py"))


def command(version):
    return [sys.executable, SCRIPT, version]


def run_as(cluster, name, version):
    """The next start of this process is of that version; None: this one."""
    commands = cluster.plan["commands"]
    if version is None:
        commands.pop(name, None)
    else:
        commands[name] = command(version)


@pytest.mark.slow
@pytest.mark.parametrize("before, after", [("earlier", None), (None, "later"), ("earlier", "later")])
def test_nodes_are_upgraded_one_after_the_other_under_load(tmp_path, seed, before, after):
    first = {name: command(before) for name in NAMES} if before else {}
    with Cluster(tmp_path, seed, messages=250, pace=0.012, commands=first) as cluster:
        for name in NAMES:
            reached = cluster.children[name].last.get("delivered", 0) + 20
            deadline = time.monotonic() + 30
            while cluster.children[name].last.get("delivered", 0) < reached:
                assert time.monotonic() < deadline, cluster.errors([name])
                time.sleep(0.02)
            assert cluster.stop(name) == 0
            run_as(cluster, name, after)
            cluster.start(name)
        cluster.wait(120)
        told = "".join(cluster.errors(cluster.names).values())
        assert "refused us" not in told and "checksum" not in told and "version" not in told, told
    cluster.judge()
