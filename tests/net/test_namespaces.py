"""The same processes, each in a network namespace of its own: links that swallow packets without a word.

Loopback tells a caller at once that nobody is there. Here a link that is down is silence: only the signs of
life of tcp.py can tell. With `tc netem` the network also delays, loses, duplicates and reorders packets.
"""

import subprocess
import sys
import time

import pytest
from netcluster import NAMES, QUICK, SCRIPT, Cluster

HUB = "happened-hub"
NETEM = "delay 10ms 5ms loss 2% duplicate 1% reorder 10% 50%"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)


def run(*words):
    done = ip(*words)
    assert not done.returncode, f"ip {' '.join(words)}: {done.stderr}"


def inside(name):
    return f"happened-{name}"


@pytest.fixture
def namespaces():
    """A namespace for each process, on one bridge; the address of each."""
    made = []
    try:
        for space in (HUB, *map(inside, NAMES)):
            done = ip("netns", "add", space)
            if done.returncode:
                pytest.skip(f"did not run: no network namespaces here: {done.stderr.strip()}")
            made.append(space)
        done = ip("-n", HUB, "link", "add", "bridge", "type", "bridge")
        if done.returncode:
            pytest.skip(f"did not run: no bridges here: {done.stderr.strip()}")
        run("-n", HUB, "link", "set", "bridge", "up")
        for number, name in enumerate(NAMES, start=1):
            end = ("type", "veth", "peer", "name", "eth", "netns", inside(name))
            run("-n", HUB, "link", "add", name, *end)
            run("-n", HUB, "link", "set", name, "master", "bridge", "up")
            run("-n", inside(name), "address", "add", f"10.77.0.{number}/24", "dev", "eth")
            run("-n", inside(name), "link", "set", "lo", "up")
            run("-n", inside(name), "link", "set", "eth", "up")
        yield {name: f"10.77.0.{number}:7000" for number, name in enumerate(NAMES, start=1)}
    finally:
        for space in made:
            ip("netns", "del", space)


class SeparateCluster(Cluster):
    """A cut takes one process off the network; the other is not told either."""

    def cut(self, a, b):
        self.cuts += 1
        run("-n", HUB, "link", "set", a, "down")

    def heal(self, a, b):
        run("-n", HUB, "link", "set", a, "up")


def separate(tmp_path, seed, addresses, messages, **more):
    commands = {name: ["ip", "netns", "exec", inside(name), sys.executable, str(SCRIPT)] for name in NAMES}
    limits = QUICK | {"heartbeat": 0.3, "handshake": 1.0}
    return SeparateCluster(
        tmp_path,
        seed,
        messages=messages,
        pace=0.005,
        addresses=addresses,
        anywhere=True,
        commands=commands,
        limits=limits,
        **more,
    )


@pytest.mark.slow
def test_a_link_that_swallows_packets_is_given_up_and_nothing_is_lost(tmp_path, seed, namespaces):
    with separate(tmp_path, seed, namespaces, 600) as cluster:
        deadline = time.monotonic() + 30
        while not all(child.last.get("delivered", 0) > 20 for child in cluster.children.values()):
            assert time.monotonic() < deadline, cluster.errors(NAMES)
            time.sleep(0.02)
        cluster.cut("bob", "")
        time.sleep(2.0)
        cluster.kill("carol")
        cluster.heal("bob", "")
        cluster.start("carol")
        cluster.wait(60)
    cluster.judge()
    assert "no sign of life" in str(cluster.errors(NAMES))


@pytest.mark.slow
def test_delay_loss_duplication_and_reordering_change_nothing(tmp_path, seed, namespaces):
    for name in NAMES:
        words = ["netns", "exec", inside(name), "tc", "qdisc", "add", "dev", "eth", "root", "netem"]
        done = ip(*words, *NETEM.split())
        if done.returncode:
            pytest.skip(f"did not run: this kernel has no netem: {done.stderr.strip()}")
    with separate(tmp_path, seed, namespaces, 1000) as cluster:
        for victim in ("bob", "dave"):
            time.sleep(1.0)
            cluster.kill(victim)
            cluster.start(victim)
        cluster.wait(300)
    cluster.judge()
