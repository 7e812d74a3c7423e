"""What do order and durability cost on real links? Ratios within one run; machines are noisy.

    python bench/net.py [--quick] [--signed] [--json]

Five operating-system processes run on loopback, all connected to each other; messages have 256-byte payloads
and go to the other four. The numbers of processes, connections and frames are the same in every case:

bare        asyncio streams: length, number and payload per frame (the framing of net/records.py), read with
            `readexactly`, written with `drain`. No order, no acknowledgement, nothing survives a broken link
node        `Node` with ks, plaintext links: causal order, link numbers, acknowledgements, retransmission
journal     the same with a journal, every commit flushed to disk before anything is shown to anybody
signed      (--signed) `node` with messages that are signed by their origin and checked where they arrive

throughput  all send as fast as back-pressure lets them, until all messages have arrived: deliveries a second
latency     all send RATE messages a second; time from before the send to the application, by one clock
Cases alternate, ROUNDS times; their medians are compared. CPU seconds are those of all five processes:
on a busy machine their ratio is steadier than that of wall-clock time.
"""

import argparse
import asyncio
import json
import logging
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "net"))

from happened.net import Limits, Node, NodeFull, Plaintext
from happened.net.records import FRAME

NAMES = ("alice", "bob", "carol", "dave", "erin")
CASES = ("bare", "node", "journal")
SIGNED = "signed"
PAYLOAD = 256
GOALS = {"node": 1 / 3, "journal": 1 / 5}
STAMP = 8  # bytes of nanoseconds at the head of a payload
UNDER_WAY = 256 << 10  # bytes to one peer before a sender waits: about what a bare connection's buffers hold
YIELD_EVERY = 32  # sends between two checks for arrived messages


class Bare:
    """Plain connections to the others, with the methods of Ordered below."""

    def __init__(self, name, addresses):
        self._name, self._addresses = name, addresses
        self._writers = {}
        self._number = 0
        self.on_message = None

    async def __aenter__(self):
        host, port = self._addresses[self._name].split(":")
        self._server = await asyncio.start_server(self._read, host, int(port))
        for peer, address in self._addresses.items():
            if peer != self._name:
                self._writers[peer] = await self._connect(*address.split(":"))
        return self

    async def _connect(self, host, port):
        while True:
            try:
                return (await asyncio.open_connection(host, int(port)))[1]
            except OSError:
                await asyncio.sleep(0.05)

    async def __aexit__(self, *error):
        for writer in self._writers.values():
            writer.close()
        self._server.close()

    async def _read(self, reader, writer):
        try:
            while True:
                length, _ = FRAME.unpack(await reader.readexactly(FRAME.size))
                self.on_message(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()  # at the end of the run

    async def send(self, payload):
        self._number += 1
        head = FRAME.pack(len(payload), self._number)
        for writer in self._writers.values():
            writer.write(head + payload)
        if self._number % YIELD_EVERY == 0:
            for writer in self._writers.values():
                await writer.drain()
            await asyncio.sleep(0)


class Ordered:
    def __init__(self, name, addresses, journal, **more):
        self._node = Node(
            name,
            peers=addresses,
            listen=addresses[name],
            guard=Plaintext(),
            journal=journal,
            limits=Limits(outbox=UNDER_WAY),
            **more,
        )
        self._others = [peer for peer in addresses if peer != name]
        self._sent = 0
        self.on_message = None

    async def __aenter__(self):
        await self._node.start()
        self._receiving = asyncio.create_task(self._receive())
        while not all(peer["calling"] and peer["called"] for peer in self._node.stats()["peers"].values()):
            await asyncio.sleep(0.05)
        return self

    async def __aexit__(self, *error):
        await self._node.close()
        await self._receiving

    async def _receive(self):
        node, on_message = self._node, self.on_message
        async for message in node:
            while message is not None:
                on_message(message.payload)
                message.ack_nowait()
                message = node.receive_nowait()

    async def send(self, payload):
        self._sent += 1
        while True:
            try:
                self._node.multicast_nowait(self._others, payload)
                break
            except NodeFull:
                await self._node.room()
        if self._sent % YIELD_EVERY == 0:
            await asyncio.sleep(0)


def signing(name, folder):
    from happened.net import Signatures  # which needs cryptography

    key, authority = folder / f"{name}.key", folder / "ca.pem"
    return {"cluster": "bench", "signatures": Signatures(name, key=key, members=folder, authority=authority)}


def issue_certificates(folder):
    from happened.net import identity

    identity.make_authority(folder)
    for name in NAMES:
        identity.issue(folder, name)


async def child(case, name, addresses, messages, rate, folder):
    """Send and receive; reports on stdout when it is ready and when it has everything."""
    done, expected, latencies = asyncio.Event(), messages * (len(addresses) - 1), []
    received = 0

    def on_message(payload):
        nonlocal received
        received += 1
        if rate:
            latencies.append(time.monotonic_ns() - int.from_bytes(payload[:STAMP], "big"))
        if received == expected:
            done.set()

    journal = Path(folder) / f"{name}.journal" if case == "journal" else None
    more = signing(name, Path(folder)) if case == SIGNED else {}
    end = Bare(name, addresses) if case == "bare" else Ordered(name, addresses, journal, **more)
    end.on_message = on_message
    async with end:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before = cpu_seconds()
        await send_all(end, messages, rate)
        await done.wait()
        report = {"cpu": cpu_seconds() - before, "latencies": latencies}
        print(json.dumps(report), flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # wait until all processes have all messages


async def send_all(end, messages, rate):
    start, filler = time.monotonic(), bytes(PAYLOAD - STAMP)
    for number in range(messages):
        if rate and (wait := start + number / rate - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        await end.send(time.monotonic_ns().to_bytes(STAMP, "big") + filler)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(case, messages, rate):
    """Seconds until all processes have all messages, CPU seconds, latencies in ms."""
    from netcluster import free_ports

    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(5), strict=True)}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk, where /tmp may be memory
        if case == SIGNED:
            issue_certificates(Path(folder))
        plans = [
            {"case": case, "name": name, "addresses": addresses, "messages": messages, "rate": rate}
            for name in NAMES
        ]
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", json.dumps({**plan, "folder": folder})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for plan in plans
        ]
        try:
            for each in children:
                assert each.stdout.readline() == "ready\n"
            start = time.monotonic()
            for each in children:
                print("go", file=each.stdin, flush=True)
            reports = [json.loads(each.stdout.readline()) for each in children]
            seconds = time.monotonic() - start
            for each in children:
                print("end", file=each.stdin, flush=True)
                each.wait(60)
        finally:
            for each in children:
                each.kill()
                each.wait()
    latencies = sorted(ns / 1e6 for report in reports for ns in report["latencies"])
    return seconds, sum(report["cpu"] for report in reports), latencies


def percentile(values, share):
    return values[min(len(values) - 1, int(share * len(values)))]


def bench(messages, rate, seconds, rounds, cases):
    deliveries = messages * len(NAMES) * (len(NAMES) - 1)
    fast = {case: [] for case in cases}
    slow = {case: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            took, cpu, _ = measure(case, messages, 0)
            fast[case].append((deliveries / took, deliveries / cpu))
    for _ in range(rounds):
        for case in cases:
            _, _, latencies = measure(case, int(rate * seconds), rate)
            slow[case].append((percentile(latencies, 0.5), percentile(latencies, 0.99)))
    result = {"deliveries": deliveries, "rate": rate, "rounds": rounds, "python": platform.python_version()}
    for case in cases:
        per_second, per_cpu, p50, p99 = (
            statistics.median(column)
            for column in (*zip(*fast[case], strict=True), *zip(*slow[case], strict=True))
        )
        result[case] = {"per_second": per_second, "per_cpu_second": per_cpu, "p50_ms": p50, "p99_ms": p99}
    for case in cases[1:]:
        result[case]["ratio"] = result[case]["per_second"] / result["bare"]["per_second"]
        result[case]["cpu_ratio"] = result[case]["per_cpu_second"] / result["bare"]["per_cpu_second"]
        result[case]["p99_ratio"] = result[case]["p99_ms"] / result["bare"]["p99_ms"]
        if case in GOALS:
            result[case]["goal"] = GOALS[case]
    return result


def print_table(result):
    print(f"{result['deliveries']:,} deliveries of {PAYLOAD} bytes; latency at {result['rate']}/s each")
    columns = ("deliveries/s", 13), ("of bare", 8), ("goal", 6), ("by CPU", 7), ("p50 ms", 8), ("p99 ms", 8)
    print(" " * 8, *(f"{title:>{width}}" for title, width in columns), " of bare")
    for case in (case for case in (*CASES, SIGNED) if case in result):
        row = result[case]
        ratios = [
            f"{row[key]:.2f}" if key in row else "" for key in ("ratio", "goal", "cpu_ratio", "p99_ratio")
        ]
        print(
            f"{case:8} {row['per_second']:13,.0f} {ratios[0]:>8} {ratios[1]:>6} {ratios[2]:>7} "
            f"{row['p50_ms']:8.2f} {row['p99_ms']:8.2f} {ratios[3]:>8}"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=10_000, help="of each process, for throughput")
    parser.add_argument(
        "--rate", type=int, default=100, help="messages a second of each process, for latency"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--signed", action="store_true", help="with signatures too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        plan = json.loads(arguments.child)
        logging.getLogger("happened").addHandler(logging.NullHandler())
        asyncio.run(child(**plan))
        return
    if arguments.quick:
        arguments.messages, arguments.rounds = 2_000, 1
    cases = (*CASES, SIGNED) if arguments.signed else CASES
    result = bench(arguments.messages, arguments.rate, 2 if arguments.quick else 5, arguments.rounds, cases)
    print(json.dumps(result, indent=2)) if arguments.json else print_table(result)


if __name__ == "__main__":
    main()
