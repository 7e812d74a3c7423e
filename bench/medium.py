"""What does a broadcast medium save? Bytes and transmissions of a multicast to k of n, ratios within one run.

    python bench/medium.py [--sizes 5 10 20] [--rounds 20] [--nats] [--json]

Nodes run in one event loop on loopback, without journals, with payloads of PAYLOAD bytes. In a round each
node sends a multicast to k others drawn at random; the next round begins when all are delivered. The same
multicasts are sent each way:

tcp         `ks`, a copy with its own control information for each destination
udp         `ks` in its form for hardware multicast (Kshemkalyani & Singhal 1998, §4.5), UDP beside TCP
nats        `ks` over JetStream, a publication for each destination
broadcast   the form for hardware multicast, one publication for all

sends       transmissions by the senders: writes to a connection, datagrams, publications
bytes       tcp, udp: all bytes written to sockets, with acknowledgements, without beacons and IP headers;
            nats, broadcast: bytes into and out of the broker by its own count, which includes payloads and
            headers but not subjects
frame       bytes of one frame, which has the payload and the control information
by the medium    the share of copies that the medium carried; the links carried or repaired the others
"""

import argparse
import asyncio
import json
import sys
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "net"))

from brokers import broker
from nats.js.client import JetStreamContext
from netcluster import free_ports

from happened.net import Limits, Node, Plaintext, UdpMulticast, link, tcp_connections
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast
from happened.net.udp_multicast import FRAMES, MulticastTransport

PAYLOAD = 200
REPAIR = 2.0
"""Seconds before the links send what the medium has not delivered. All nodes share one interpreter, so that
at n = 20 a round takes longer than the usual 0.1 s: the links would send frames although none is lost."""
WARM_UP = 3  # rounds, in which nodes meet
PAIRS = {"tcp": "udp", "nats": "broadcast"}

counted: Counter[str] = Counter()


def count_everything():
    """Wrap the functions that send, so that transmissions and bytes are counted."""

    def counting(owner, name, note):
        plain = getattr(owner, name)

        def counted_call(self, *arguments, **more):
            note(self, *arguments)
            return plain(self, *arguments, **more)

        setattr(owner, name, counted_call)

    def written(connection, frames):
        counted["bytes"] += len(frames) + 4
        counted["sends"] += connection.outgoing

    def transmitted(_, datagram):
        if datagram[:1] == FRAMES:
            counted["bytes"] += len(datagram)
            counted["sends"] += 1

    def published(*_):
        counted["sends"] += 1

    def put(_, frame):
        counted["frames"] += 1
        counted["frame bytes"] += len(frame)

    counting(tcp_connections.Connection, "write", written)
    counting(MulticastTransport, "_transmit", transmitted)
    counting(JetStreamContext, "publish_async", published)
    counting(link.Outbox, "put", put)


def make(way, names, server, stream):
    limits = Limits(heartbeat=600.0, linger=0.1)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    peers = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    group = f"239.255.78.1:{free_ports(1)[0]}"
    nodes = []
    for name in names:
        more = {"limits": limits, "peers": peers}
        if way in ("tcp", "udp"):
            more |= {"listen": peers[name], "guard": Plaintext()}
            more["medium"] = UdpMulticast(group, repair=REPAIR) if way == "udp" else None
        else:
            kind = NatsBroadcast if way == "broadcast" else NatsTransport
            more["transport"] = kind(server.urls, stream=stream)
        nodes.append(Node(name, **more))
    return nodes


async def take_all(node, deliveries):
    for _ in range(deliveries):
        await anext(node)


async def do_round(nodes, k, dice):
    expected = Counter()
    for node in nodes:
        to = dice.sample([each.name for each in nodes if each is not node], k)
        expected.update(to)
        node.multicast_nowait(to, bytes(PAYLOAD))
    await asyncio.wait_for(asyncio.gather(*(take_all(node, expected[node.name]) for node in nodes)), 120)


async def ready(way, nodes):
    """Wait until all nodes are connected and, if there is a medium, hear each other on it."""

    def is_ready(node, other):
        if way == "udp":
            return node.transport._claims_of(other, 1, asyncio.get_running_loop().time()) is not None
        if way == "broadcast":
            return node.transport._links[other].is_ready
        return way == "nats" or node.stats()["peers"][other]["calling"]

    names = [node.name for node in nodes]
    async with asyncio.timeout(120):
        while not all(is_ready(node, other) for node in nodes for other in names if other != node.name):
            await asyncio.sleep(0.05)


def broker_bytes(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_ports[0]}/varz", timeout=5) as answer:
        told = json.load(answer)
    return told["in_bytes"], told["out_bytes"]


async def measure(way, n, k, rounds, server):
    nodes = make(way, [f"p{index:02}" for index in range(n)], server, f"s-{way}-{n}-{k}")
    dice = Random(f"{n}/{k}")
    try:
        await asyncio.gather(*(node.start() for node in nodes))
        if way != "broadcast":
            await ready(way, nodes)
        for _ in range(WARM_UP):
            await do_round(nodes, n - 1, dice)
        await ready(way, nodes)
        before, broker_before = counted.copy(), broker_bytes(server) if server else (0, 0)
        shared_before = [node.stats()["medium"] for node in nodes]
        for _ in range(rounds):
            await do_round(nodes, k, dice)
        multicasts = rounds * n
        spent = {key: (counted[key] - before[key]) / multicasts for key in ("sends", "bytes")}
        spent["frame"] = (counted["frame bytes"] - before["frame bytes"]) / (
            counted["frames"] - before["frames"]
        )
        if server:
            spent["in"], spent["out"] = (
                (now - then) / multicasts
                for now, then in zip(broker_bytes(server), broker_before, strict=True)
            )
            del spent["bytes"]
        shared = [node.stats()["medium"] for node in nodes]
        for key in ("copies", "repaired") if shared[0] else ():
            grown = sum(now[key] - then[key] for now, then in zip(shared, shared_before, strict=True))
            spent[key] = grown / multicasts
        return spent
    finally:
        await asyncio.gather(*(node.close() for node in nodes))


def bench(sizes, rounds, over_nats):
    count_everything()
    rows = []
    for n in sizes:
        for k in sorted({2, n // 2, n - 1}):
            for plain in ("tcp", "nats") if over_nats else ("tcp",):
                row = {"n": n, "k": k, "rounds": rounds}
                for way in (plain, PAIRS[plain]):
                    row[way] = run(way, n, k, rounds)
                    print(f"{way}, {k} of {n}: {row[way]}", file=sys.stderr)
                rows.append(row)
    return rows


def run(way, n, k, rounds):
    if way in ("tcp", "udp"):
        return asyncio.run(measure(way, n, k, rounds, None))
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as server:
        return asyncio.run(measure(way, n, k, rounds, server))


def print_table(rows):
    heads = "| n | k | ways | sends | | bytes | | ratio | frame | | by the medium |"
    print(heads, "|---" * 11 + "|", sep="\n")
    for row in rows:
        plain = "tcp" if "tcp" in row else "nats"
        before, after = row[plain], row[PAIRS[plain]]
        for key, title in (("bytes", ""), ("in", ", in"), ("out", ", out")):
            if key in before:
                cells = [row["n"], row["k"], f"{plain}, {PAIRS[plain]}{title}"]
                cells += [f"{each['sends']:.2f}" for each in (before, after)]
                cells += [f"{each[key]:,.0f}" for each in (before, after)]
                cells += [
                    f"{after[key] / before[key]:.2f}",
                    f"{before['frame']:.0f}",
                    f"{after['frame']:.0f}",
                ]
                cells.append(f"{(after['copies'] - after['repaired']) / row['k']:.0%}")
                print("|", " | ".join(map(str, cells)), "|")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nats", action="store_true", help="over JetStream too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = bench(arguments.sizes, arguments.rounds, arguments.nats)
    print(json.dumps(rows, indent=2)) if arguments.json else print_table(rows)


if __name__ == "__main__":
    main()
