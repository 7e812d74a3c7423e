"""Real processes on loopback, and what befalls them: kill -9, restarts, links that are cut and heal."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from brokers import free_ports
from netprocess import destinations

from happened.causality import check_delivery, check_order
from happened.core.orders import Order
from happened.ordering import facts_of
from happened.trace import read

NAMES = ["alice", "bob", "carol", "dave", "erin"]
SCRIPT = Path(__file__).with_name("netprocess.py")
QUICK = {"first_retry": 0.02, "last_retry": 0.3, "heartbeat": 1.0, "linger": 2.0, "compaction": 200_000}

NO_SIGNAL = 0  # it was told to end before


class Fault(NamedTuple):
    time: float  # seconds after the start
    what: str  # kill, cut
    who: tuple[str, ...]
    lasts: float


def schedule(seed, duration, every):
    """Faults about `every` so many seconds: any process killed, any pair cut, all healed in the end.

    However short, it begins with a kill, a cut, and a kill of somebody else.
    """
    dice, time_, faults = Random(f"{seed}/faults"), 0.3, []
    forced = [(name,) for name in dice.sample(NAMES, 2)]
    forced.insert(1, tuple(dice.sample(NAMES, 2)))
    while time_ < duration or forced:
        who = forced.pop(0) if forced else tuple(dice.sample(NAMES, 1 if dice.random() < 0.6 else 2))
        if len(who) == 1:
            faults.append(Fault(time_, "kill", who, dice.uniform(0.0, 0.5)))
        else:
            faults.append(Fault(time_, "cut", who, dice.uniform(0.1, 1.0)))
        time_ += dice.expovariate(1 / every)
    return faults


class Child:
    """One process; `last` is its newest report."""

    def __init__(self, plan):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
        self._errors = open(f"{plan['directory']}/{plan['name']}.errors", "a")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*plan.get("commands", {}).get(plan["name"], [sys.executable, str(SCRIPT)]), json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self.last, self.again, self.most_rss, self.closed = {}, [], 0, False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                report = json.loads(line)
            except ValueError:
                continue  # cut off by kill -9
            if "again" in report:
                self.again.append(report["again"])
            elif "closed" in report:
                self.closed = True
            else:
                self.last = report
                self.most_rss = max(self.most_rss, report["rss"])

    def tell(self, line):
        with contextlib.suppress(OSError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def end(self, with_signal):
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        code = self.process.wait(30)
        self._reader.join(10)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self._errors.close()
        return code


class Cluster:
    def __init__(
        self, directory, seed, *, protocol="ks", messages=400, pace=0.01, options=None, names=NAMES, **more
    ):
        ports = free_ports(len(names))
        self.names = names
        facts = facts_of(protocol)
        casts = "multicast" if "multicast" in facts.assumes.casts else next(iter(facts.assumes.casts))
        self.directory = Path(directory)
        self.plan = {
            "seed": seed,
            "members": names,
            "addresses": {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)},
            "protocol": protocol,
            "casts": casts,
            "options": options or {},
            "groups": (options or {}).get("groups"),
            "messages": messages,
            "pace": pace,
            "directory": str(directory),
            "limits": QUICK,
            **more,
        }
        self.order = facts.order
        self.children = {}
        self.kills = self.cuts = 0
        self.again = []
        self.last = {}  # of each process that has ended, its newest report
        self.most_rss = Counter()

    def __enter__(self):
        for name in self.names:
            if name not in self.plan.get("silent", ()):
                self.start(name)
        return self

    def __exit__(self, *error):
        for child in self.children.values():
            child.end(signal.SIGKILL)

    def start(self, name):
        self.children[name] = Child(self.plan | {"name": name})

    def kill(self, name):
        self._bury(name, signal.SIGKILL)
        self.kills += 1

    def stop(self, name):
        """Ask it to close; returns its exit code."""
        return self._bury(name, signal.SIGTERM)

    def _bury(self, name, with_signal):
        child = self.children.pop(name)
        code = child.end(with_signal)
        self.again += child.again
        self.last[name] = child.last
        self.most_rss[name] = max(self.most_rss[name], child.most_rss)
        return code

    def cut(self, a, b):
        self.cuts += 1
        self._tell(a, f"cut {b}")
        self._tell(b, f"cut {a}")

    def heal(self, a, b):
        self._tell(a, f"heal {b}")
        self._tell(b, f"heal {a}")

    def _tell(self, name, line):
        if name in self.children:
            self.children[name].tell(line)

    def suffer(self, faults):
        """Let the faults happen, each at its time and for as long as it lasts."""
        agenda = sorted(
            [(fault.time, True, fault) for fault in faults]
            + [(fault.time + fault.lasts, False, fault) for fault in faults]
        )
        start = time.monotonic()
        for when, begins, fault in agenda:
            time.sleep(max(0.0, start + when - time.monotonic()))
            if fault.what == "cut":
                (self.cut if begins else self.heal)(*fault.who)
            elif begins and fault.who[0] in self.children:
                self.kill(fault.who[0])
            elif not begins and fault.who[0] not in self.children:
                self.start(fault.who[0])

    def expected(self):
        """How many deliveries there must be at each process."""
        counts = Counter()
        for name in self.names:
            for number in range(1, self.quota(name) + 1):
                counts.update(set(destinations(self.plan, name, number)))
        return {name: counts[name] for name in self.names}

    def wait(self, timeout, reached=None):
        """Until everybody has sent, delivered and acknowledged everything; then close them all."""
        expected = self.expected()
        deadline = time.monotonic() + timeout
        while not all(self._is_done(name, expected[name]) for name in self.names):
            if reached is not None and reached():
                return
            dead = [name for name, child in self.children.items() if child.process.poll() is not None]
            assert not dead, f"{dead} ended by themselves: {self.errors(dead)}"
            assert time.monotonic() < deadline, f"not done: {self.state(expected)} {self.errors(self.names)}"
            time.sleep(0.05)
        for child in self.children.values():
            child.process.send_signal(signal.SIGTERM)
        for name in self.names:
            code = self._bury(name, NO_SIGNAL)
            assert code == 0, f"{name} ended with {code}: {self.errors([name])}"

    def _is_done(self, name, expected):
        last = self.children[name].last
        done = last.get("delivered") == expected and not last["unacknowledged"] and not last["outbox"]
        return done and last["sent"] == self.quota(name)

    def senders(self):
        return [name for name in self.names if name not in self.plan.get("routers", ())]

    def quota(self, name):
        quiet = (*self.plan.get("silent", ()), *self.plan.get("routers", ()))
        return 0 if name in quiet else self.plan["messages"]

    def last_reports(self, key):
        return [report[key] for report in self.last.values() if key in report]

    def state(self, expected):
        return {name: (child.last, expected[name]) for name, child in self.children.items()}

    def errors(self, names):
        return {name: (self.directory / f"{name}.errors").read_text()[-2000:] for name in names}

    def judge(self):
        """From the union of traces alone, and from what the applications wrote down."""
        trace = read(self.directory / "trace")
        deliveries = check_delivery(trace)
        assert deliveries.messages == self.plan["messages"] * len(self.senders())
        assert deliveries.deliveries == sum(self.expected().values())
        found = (deliveries.lost, deliveries.duplicated, deliveries.misdelivered, deliveries.never_sent)
        assert found == (0, 0, 0, 0), deliveries
        for order in self.order.split("-") if self.order != Order.NONE else ():
            verdict = check_order(trace, order)
            assert verdict.holds, verdict
        assert not self.again, f"delivered again after it was acknowledged: {self.again[:5]}"
        return trace
