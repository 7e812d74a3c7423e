"""`happened node` for every box of a topology. While messages pass, routers are killed -9 and started again,
a process joins, and one router takes the place of another; then `happened analyze` judges the trace on
Spark."""

import json
import random
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
import yaml
from netcluster import free_ports
from test_deployment import Running

from happened.cli import main
from happened.ordering import Relays, protocols
from happened.topology import load

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
SITES = ["departments", "leaf-spine", "federation-ring"]
ROUTING = sorted(name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS)
FAULTS = ("causal_violations", "lost", "duplicated", "misdelivered", "never_sent")


def site_file(site, folder):
    """The example; of the ring of federations one whose gateways are only routers, and one of them a pair.

    In the example gateways are applications too. Such a process sends what its standard input says; what it
    had not read of that when it was killed is lost, and the system is not at fault.
    """
    example = EXAMPLES / f"{site}.yaml"
    if site != "federation-ring":
        return example
    said = yaml.safe_load(example.read_text())
    said["zones"]["oslo"]["gateways"] = ["oslo-gw", "oslo-gw2"]
    del said["processes"]
    said["links"] += [["oslo-gw2", "lyon-gw"], ["oslo-gw2", "pisa-gw"]]
    file = folder / "ring.yaml"
    file.write_text(yaml.safe_dump(said))
    return file


class Heard(Running):
    """The same, with all that it prints in a list."""

    def __init__(self, config):
        super().__init__(config)
        self.said = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    def until(self, key, count=1, seconds=120):
        deadline = time.monotonic() + seconds
        while len(found := [said[key] for said in self.said if key in said]) < count:
            errors = [said for said in self.said if "error" in said]
            in_time = time.monotonic() < deadline and self.process.poll() is None
            assert in_time, (key, len(found), count, errors[:3], self.said[-3:])
            time.sleep(0.02)
        return found

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(60)
        self._reader.join()
        return code


class Site:
    def __init__(self, tmp_path, file, protocol):
        self.topology = load(file)
        self.folder = tmp_path / "site"
        names = [*self.topology.graph, "newcomer", "spare"]
        ports = free_ports(len(names))
        self.where = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
        given = [w for name in self.topology.graph for w in ("--address", f"{name}={self.where[name]}")]
        options = ["--protocol", protocol, "--security", "plaintext", "--out", str(self.folder)]
        assert main(["topology", "deploy", str(file), *options, *given]) == 0
        self.running = {name: self.start(name) for name in self.topology.graph}

    def start(self, name):
        return Heard(self.folder / f"{name}.toml")

    def again(self, name):
        self.running[name].kill()
        time.sleep(0.2)
        self.running[name] = self.start(name)

    def until_members(self, names, holds, seconds=120):
        """Wait until these processes have heard of a change: a process is addressed by whoever knows it."""
        deadline = time.monotonic() + seconds
        for name in names:
            running = self.running[name]
            while True:
                heard = sum("members" in said for said in running.said)
                running.say(show="members")
                if holds(running.until("members", heard + 1)[-1]):
                    break
                assert time.monotonic() < deadline, name
                time.sleep(0.1)

    def drain(self, seconds=120):
        """Wait until nobody holds a message back or has something to send that was not acknowledged."""
        deadline = time.monotonic() + seconds
        for name, each in self.running.items():
            while left := self.left(each):
                assert time.monotonic() < deadline, (name, left)
                time.sleep(0.1)

    @staticmethod
    def left(each):
        asked = sum("stats" in said for said in each.said)
        each.say(show="stats")
        stats = each.until("stats", asked + 1)[-1]
        counts = ("held", "queued", "undelivered", "unacknowledged")
        waiting = {key: stats[key] for key in counts if stats[key]}
        frames = {
            peer: told["outbox_frames"]
            for peer, told in stats["peers"].items()
            if told["outbox_frames"] and not told["gone"]
        }
        return waiting | frames

    def end(self):
        """End all processes, which must have failed at nothing."""
        for each in self.running.values():
            assert each.end() == 0, [said for said in each.said if "error" in said]

    def analyze(self):
        """What `happened analyze` says of the trace, on Spark: its exit code and the summary."""
        command = [sys.executable, "-m", "happened", "analyze", str(self.folder / "trace"), "--json"]
        command += ["--out", str(self.folder / "answers")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode in (0, 1, 3), done.stderr
        summary = json.loads(done.stdout)
        print({key: summary[key] for key in ("events", "messages", "deliveries_judged", *FAULTS)})
        return done.returncode, summary

    def following(self, old):
        """The same with `spare` instead of this router, and a newcomer beside it."""
        graph, swap = self.topology.graph, {old: "spare"}
        links = [[swap.get(a, a), swap.get(b, b)] for a, b in graph.edges] + [["spare", "newcomer"]]
        routers = [swap.get(name, name) for name in sorted(self.topology.routers)]
        processes = [name for name in graph if name not in self.topology.routers] + ["newcomer"]
        file = self.folder / "next.yaml"
        file.write_text(yaml.safe_dump({"processes": processes, "routers": routers, "links": links}))
        return file

    def configure(self, name, members):
        """As `deploy` would, for a process that is new."""
        some = tomllib.loads(next(self.folder.glob("*.toml")).read_text())
        said = {
            "name": name,
            "listen": self.where[name],
            "protocol": some["protocol"],
            "topology": "next.yaml",
            "members": list(members),
            "journal": f"{name}.journal",
            "trace": "trace",
        }
        graph = load(self.folder / "next.yaml").graph
        lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
        lines += [
            "[peers]",
            *(f"{json.dumps(peer)} = {json.dumps(self.where[peer])}" for peer in graph[name]),
        ]
        lines += ["[security]", 'plaintext = "loopback"']
        (self.folder / f"{name}.toml").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ROUTING)
@pytest.mark.parametrize("site", SITES)
def test_a_router_is_succeeded_and_a_process_joins_under_kills(tmp_path, seed, site, protocol):
    dice = random.Random(seed)
    system = Site(tmp_path, site_file(site, tmp_path), protocol)
    routers = sorted(system.topology.routers)
    applications = [name for name in system.topology.graph if name not in routers]
    watchdog = threading.Timer(400, lambda: [each.process.kill() for each in system.running.values()])
    watchdog.start()

    due = dict.fromkeys([*applications, "newcomer"], 0)  # how many messages are for whom

    def traffic(names, count):
        for _ in range(count):
            for name in names:
                to = dice.sample(names, dice.randint(1, min(4, len(names))))
                system.running[name].say(to=to, text="x")
                for each in to:
                    due[each] += 1

    try:
        traffic(applications, 40)
        for _ in range(4):
            system.again(dice.choice(routers))
        old = dice.choice(routers)
        file = system.following(old)
        at = system.running[dice.choice(applications)]
        at.say(topology=str(file), addresses=system.where)
        system.again(old)
        system.again(dice.choice(routers))
        (members,) = at.until("members")
        for name in ("newcomer", "spare"):
            system.configure(name, members)
            system.running[name] = system.start(name)
        system.until_members(applications, lambda known: "newcomer" in known)
        traffic([*applications, "newcomer"], 20)
        for _ in range(2):
            system.again(dice.choice([each for each in [*routers, "spare"] if each != old]))
        for name in applications:
            system.running[name].until("sent", 60)
        system.running["newcomer"].until("sent", 20)
        for name, count in due.items():
            system.running[name].until("number", count)
        system.drain()
        system.end()
    finally:
        watchdog.cancel()
        for each in system.running.values():
            each.process.kill()
    errors = [said for each in system.running.values() for said in each.said if "error" in said]
    assert not errors, errors[:3]
    code, summary = system.analyze()
    sent = 60 * len(applications) + 20
    assert (summary["messages"], summary["deliveries_judged"]) == (sent, sum(due.values()))
    assert (code, *(summary[fault] for fault in FAULTS)) == (0,) * (1 + len(FAULTS))
