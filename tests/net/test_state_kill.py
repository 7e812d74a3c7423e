"""Real processes that begin with the state of another are killed with -9, over TCP and NATS, and end alike.

c is gone for good: it is expelled, and d takes its place, then e joins too. Whoever is left is killed again
and again meanwhile, the process that admits and the one that begins most of all. The judge has what the
applications wrote down (`stateprocess.py`), and nothing of the package.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import pytest
from brokers import broker, free_ports
from stateprocess import read_lines

PROGRAM = Path(__file__).with_name("stateprocess.py")
FOUNDERS = ("a", "b", "c")
NEWCOMERS = ("d", "e")
LIMITS = {
    "first_retry": 0.02,
    "last_retry": 0.3,
    "heartbeat": 1.0,
    "linger": 1.0,
    "compaction": 20_000,
    "payload": 2_000,  # a state is many messages
}
PATIENCE = 240.0
TOTAL = ("sequencer", "causal-total", "agreed")


class Replicas:
    def __init__(self, directory, seed, protocol, messages, servers=None):
        self.directory, self.dice, self.protocol = directory, Random(f"{seed} kills"), protocol
        self.messages, self.servers = messages, servers
        self.addresses = {
            name: f"127.0.0.1:{port}"
            for name, port in zip((*FOUNDERS, *NEWCOMERS), free_ports(5), strict=True)
        }
        self.begun_with = dict.fromkeys(FOUNDERS, (FOUNDERS, None))
        self.processes, self.reports, self.kills = {}, {}, 0

    def __enter__(self):
        for name in FOUNDERS:
            self.start(name)
        return self

    def __exit__(self, *error):
        for name in list(self.processes):
            self.end(name)

    def start(self, name):
        members, source = self.begun_with[name]
        plan = {
            "name": name,
            "directory": str(self.directory),
            "protocol": self.protocol,
            "messages": self.messages,
            "pace": 0.02,
            "members": members,
            "state_from": source,
            "listen": self.addresses[name],
            "peers": {each: self.addresses[each] for each in members if each != name},
            "limits": LIMITS,
        }
        if self.servers is not None:
            plan |= {"nats": {"servers": self.servers}, "peers": sorted(plan["peers"])}
        with (self.directory / f"{name}.errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, PROGRAM, json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.reports[name] = {}
        reader = threading.Thread(target=self._read, args=(process, self.reports[name]), daemon=True)
        reader.start()
        self.processes[name] = process, reader

    @staticmethod
    def _read(process, reports):
        for line in process.stdout:
            with contextlib.suppress(ValueError):  # cut off by kill -9
                reports |= json.loads(line)

    def end(self, name):
        process, reader = self.processes.pop(name)
        process.kill()
        process.wait()
        reader.join(10)
        process.stdin.close()
        process.stdout.close()

    def kill(self, name):
        """kill -9, and another life after a while."""
        self.end(name)
        self.kills += 1
        time.sleep(self.dice.choice((0, 0.05, 0.3)))
        self.start(name)

    def tell(self, name, line):
        stdin = self.processes[name][0].stdin
        stdin.write(line + "\n")
        stdin.flush()

    def until(self, is_so, what):
        end = time.monotonic() + PATIENCE
        while not is_so():
            self.check_alive()
            assert time.monotonic() < end, f"{what}: not in {PATIENCE:.0f} s: {self.reports} {self.errors()}"
            time.sleep(0.02)

    def check_alive(self):
        ended = [name for name, (process, _) in self.processes.items() if process.poll() is not None]
        assert not ended, f"{ended} ended by themselves: {self.errors()}"

    def errors(self):
        return {path.name: path.read_text()[-1500:] for path in sorted(self.directory.glob("*.errors"))}

    def ask(self, name, what, whom, *more):
        """Have it done at this process, which may be killed before it has answered; returns the answer."""
        while True:
            self.tell(name, " ".join((what, whom, *more)))
            if self.dice.random() < 0.5:
                time.sleep(self.dice.uniform(0, 0.3))
                if what not in self.reports[name]:
                    self.kill(name)
                    continue
            self.until(lambda: what in self.reports[name], f"{name} is to {what} {whom}")
            asked, answer = self.reports[name].pop(what)
            assert asked == whom
            return answer

    def admit(self, newcomer):
        address = "" if self.servers is not None else self.addresses[newcomer]
        members = tuple(self.ask("a", "join", newcomer, address))
        self.begun_with[newcomer] = members, "a"
        self.start(newcomer)

    def harm(self, times, names):
        for _ in range(times):
            time.sleep(self.dice.expovariate(1 / 0.25))
            self.kill(self.dice.choice(names))

    def settle(self):
        """Until everybody has everything; what c has sent to some only is with some only."""
        staying = list(self.processes)
        due = self.messages * len(staying)

        def is_done():
            reports = [self.reports[name] for name in staying]
            if not all(report.get("sent") == self.messages for report in reports):
                return False
            return all(len(self.of_those_who_stay(name)) >= due for name in staying)

        self.until(is_done, f"everybody has {due} messages")
        time.sleep(0.3)  # for what comes twice

    def state(self, name):
        lines = read_lines(self.directory / f"{name}.state")
        assert len({number for number, _ in lines}) == len(lines)
        return [entry for _, entries in lines for entry in entries]

    def of_those_who_stay(self, name):
        return [entry for entry in self.state(name) if not entry.startswith("c/")]

    def judge(self):
        staying = list(self.processes)
        everything = {f"{name}/{number}" for name in staying for number in range(1, self.messages + 1)}
        states = {name: self.state(name) for name in staying}
        pasts = {}
        for name in staying:
            for message, length in read_lines(self.directory / f"{name}.asked"):
                pasts[message] = states[name][:length]  # the last one is the one that was sent
        pairs = 0
        for name, state in states.items():
            assert len(set(state)) == len(state), f"{name} has something twice"
            ours = [entry for entry in state if not entry.startswith("c/")]
            assert set(ours) == everything, f"{name} lacks {sorted(everything - set(ours))[:5]}"
            place = {message: at for at, message in enumerate(state)}
            if self.protocol != "agreed":
                for message in ours:
                    early = [each for each in pasts[message] if place.get(each, -1) > place[message]]
                    assert not early, f"{name} has {message} before {early[:3]}"
                    pairs += len(pasts[message])
        for newcomer in set(NEWCOMERS) & set(staying):
            assert set(states[newcomer]) == set(states["a"]), f"{newcomer} is not like a"
            begins = len(read_lines(self.directory / f"{newcomer}.state")[0][1])
            assert begins > 0, f"{newcomer} began with nothing"
        if self.protocol in TOTAL:
            assert all(state == states["a"] for name, state in states.items() if name != "b")
            assert [e for e in states["b"] if not e.startswith("c/")] == self.of_those_who_stay("a")
        return pairs


def comes_back_with_a_state(directory, seed, protocol, servers=None, *, messages, kills, newcomers=NEWCOMERS):
    with Replicas(directory, seed, protocol, messages, servers) as replicas:
        everybody = list(FOUNDERS)
        replicas.until(
            lambda: all(replicas.reports[name].get("state", 0) > 10 for name in everybody), "all have begun"
        )
        replicas.end("c")
        everybody.remove("c")
        replicas.ask("a", "expel", "c")
        for newcomer in newcomers:
            replicas.admit(newcomer)
            everybody.append(newcomer)
            replicas.harm(kills, ["a", newcomer, *everybody])
            replicas.until(lambda each=newcomer: replicas.reports[each].get("begun"), f"{newcomer} has begun")
        replicas.settle()
        pairs = replicas.judge()
        print(f"{protocol}: {replicas.kills} kills, {pairs} pairs")
        assert replicas.kills >= kills * len(newcomers)


@pytest.mark.long
def test_a_newcomer_ends_like_the_others_whoever_is_killed(tmp_path, seed):
    comes_back_with_a_state(tmp_path, seed, "ks", messages=40, kills=2, newcomers=("d",))


SOME = ("ks", "rst", "sequencer", "causal-total", "agreed", "histories")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SOME)
def test_newcomers_end_like_the_others_whoever_is_killed(tmp_path, seed, protocol):
    comes_back_with_a_state(tmp_path, seed, protocol, messages=150, kills=12)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ("ks", "sequencer"))
def test_newcomers_end_like_the_others_through_a_broker(tmp_path, seed, protocol):
    with broker(tmp_path / "broker") as running:
        comes_back_with_a_state(tmp_path, seed, protocol, running.urls, messages=150, kills=12)
