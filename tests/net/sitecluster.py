"""A real process for every box of a topology, and routers that are killed -9 while messages pass them.

Processes are forked from one that has imported everything: a dozen interpreters take ten seconds to start.
"""

import multiprocessing
import os
import threading
import time
from random import Random

import netprocess
from netcluster import Child, Cluster, Fault

from happened.topology import load

FORKING = multiprocessing.get_context("forkserver")
# pandas, if it is there: pyarrow imports it when the first table is made.
FORKING.set_forkserver_preload(["netprocess", "happened.topology", "happened.net.trace_recorder", "pandas"])


class Forked:
    """A forked process with the part of Popen that a cluster uses."""

    def __init__(self, plan):
        theirs, self._in = FORKING.Pipe(duplex=False)
        out, theirs_out = FORKING.Pipe(duplex=False)
        self._process = FORKING.Process(
            target=netprocess.forked, args=(plan, theirs, theirs_out), daemon=True
        )
        self._process.start()
        theirs.close()
        theirs_out.close()
        self.stdin = os.fdopen(os.dup(self._in.fileno()), "w")
        self.stdout = os.fdopen(os.dup(out.fileno()))
        self._in.close()
        out.close()

    def poll(self):
        return self._process.exitcode

    def send_signal(self, number):
        if number and self._process.is_alive():
            os.kill(self._process.pid, number)

    def wait(self, timeout):
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode


class ForkedChild(Child):
    def __init__(self, plan):
        self._errors = open(os.devnull)  # noqa: SIM115
        self.process = Forked(plan)
        self.last, self.again, self.most_rss, self.closed = {}, [], 0, False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()


class SiteCluster(Cluster):
    """Applications send to one another; routers, which `kill` may be asked for too, only forward."""

    def __init__(self, directory, seed, file, **more):
        topology = load(file)
        routers = sorted(topology.routers)
        super().__init__(
            directory, seed, names=list(topology.graph), routers=routers, topology=str(file), **more
        )

    def until_under_way(self):
        """Wait until messages are delivered, and see that there is more to come."""
        deadline = time.monotonic() + 30
        while not any(child.last.get("delivered") for child in self.children.values()):
            assert time.monotonic() < deadline, self.errors(self.names)
            time.sleep(0.01)
        assert sum(child.last.get("sent", 0) for child in self.children.values()) < sum(
            map(self.quota, self.names)
        )

    def start(self, name):
        self.children[name] = ForkedChild(self.plan | {"name": name})


def router_kills(seed, routers, duration, every):
    """Kills of those who forward, about `every` so many seconds; whoever is killed is back soon after."""
    dice, when, faults = Random(f"{seed}/routers"), 0.0, []
    while when < duration or not faults:
        faults.append(Fault(when, "kill", (dice.choice(routers),), dice.uniform(0.05, 0.4)))
        when += dice.expovariate(1 / every)
    return faults
