"""Do memory and disk stay within the limits while a peer is dead and everybody sends as fast as it can?

    python bench/dead_peer.py [--seconds S] [--protocols NAME …] [--json]

For each protocol, alice and bob run in processes of their own, with journals, and carol never starts. Both
send 4 KiB payloads to everybody without pause, and only to each other when carol's outbox is full; deliveries
are acknowledged at once. *State* is the data that the limits let one node keep: outboxes for two peers and as
many bytes that the protocol holds back (`outbox` each), `held_bytes`, `undelivered_bytes`, `staged`.

Goals, for the larger of both processes: resident memory grows by at most 4 × state, since snapshots and
buffers copy the state; the journal with its write-ahead log is at most `compaction` + 4 × state.
"""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from happened.net import Limits, Node, NodeFull, Plaintext
from happened.ordering import facts_of, protocols

MEBI = 1 << 20
NAMES = ("alice", "bob", "carol")
PAYLOAD = bytes(4096)
LIMITS = Limits(
    outbox=8 * MEBI,
    held_bytes=8 * MEBI,
    undelivered_bytes=8 * MEBI,
    staged=2 * MEBI,
    compaction=4 * MEBI,
    linger=0.0,
)
STATE = 3 * LIMITS.outbox + LIMITS.held_bytes + LIMITS.undelivered_bytes + LIMITS.staged
GOALS = {"grown": 4 * STATE, "journal": LIMITS.compaction + 4 * STATE}


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Sender:
    """alice or bob: sends, acknowledges, and records the largest values it measures."""

    def __init__(self, name, setting):
        self.name, self.seconds = name, setting["seconds"]
        peers = setting["peers"]
        self.journal = Path(setting["directory"]) / f"{name}.journal"
        facts = facts_of(setting["protocol"])
        options = {"groups": [list(NAMES)]} if facts.assumes.fixed_groups else {}
        self.node = Node(
            name,
            peers=peers,
            listen=peers[name],
            guard=Plaintext(),
            protocol=setting["protocol"],
            options=options,
            journal=self.journal,
            limits=LIMITS,
        )
        others = [peer for peer in NAMES if peer != name]
        alone = [[peer] for peer in sorted(others, reverse=True)]  # carol first
        # The destinations to try, in this order: the next choice is used when there is no room for one.
        self.choices = [others] if "broadcast" in facts.assumes.casts else []
        self.choices += alone if "unicast" in facts.assumes.casts else []
        self.found = {"grown": 0, "journal": 0, "confirmed": 0, "late": 0}

    async def run(self):
        async with self.node:
            self._start = resident()
            self._end = time.monotonic() + self.seconds
            work = [asyncio.create_task(each()) for each in (self.receive, self.measure)]
            while time.monotonic() < self._end:
                await self.send()
                self.found["confirmed"] = self.node.sent
            for task in work:
                task.cancel()
        print(json.dumps(self.found), flush=True)

    async def send(self):
        for to in self.choices:
            with contextlib.suppress(NodeFull):
                self.node.multicast_nowait(to, PAYLOAD)
                return await asyncio.sleep(0)
        with contextlib.suppress(NodeFull):
            await self.node.room(self.choices[-1], timeout=0.2)

    async def receive(self):
        async for message in self.node:
            message.ack_nowait()

    async def measure(self):
        """Record the largest values, also how late this task runs: a blocked event loop serves no peers."""
        while True:
            due = time.monotonic() + 0.1
            await asyncio.sleep(0.1)
            log = self.journal.with_name(self.journal.name + "-wal")
            size = sum(os.path.getsize(path) for path in (self.journal, log) if path.exists())
            found = {"grown": resident() - self._start, "journal": size, "late": time.monotonic() - due}
            self.found |= {name: max(value, self.found[name]) for name, value in found.items()}


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def measure(protocol, seconds):
    """Run alice and bob; of each value that they measure, return the larger one."""
    with tempfile.TemporaryDirectory() as directory:
        peers = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)}
        setting = {"protocol": protocol, "directory": directory, "peers": peers, "seconds": seconds}
        running = [
            subprocess.Popen(
                [sys.executable, __file__, "--role", json.dumps([name, setting])],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for name in NAMES[:2]
        ]
        try:
            told = [json.loads(each.communicate(timeout=seconds * 3 + 60)[0]) for each in running]
        finally:
            for each in running:
                each.kill()
                each.wait()
    return {name: max(each[name] for each in told) for name in told[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--protocols", nargs="*", default=list(protocols()))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        asyncio.run(Sender(*json.loads(options.role)).run())
        return 0
    found = {}
    if not options.json:
        print(f"limits: {GOALS['grown'] >> 20} MiB of memory, {GOALS['journal'] >> 20} MiB of journal")
    for protocol in options.protocols:
        found[protocol] = one = measure(protocol, options.seconds)
        if not options.json:
            sizes = f"memory +{one['grown'] >> 20} MiB, journal {one['journal'] >> 20} MiB"
            missed = "  MISSED" if any(one[goal] > most for goal, most in GOALS.items()) else ""
            print(
                f"{protocol:22} {sizes}, {one['confirmed']} confirmed, {one['late']:.2f} s late{missed}",
                flush=True,
            )
    if options.json:
        print(json.dumps({"limits": GOALS, "protocols": found}))
    return int(any(one[goal] > most for one in found.values() for goal, most in GOALS.items()))


if __name__ == "__main__":
    sys.exit(main())
