"""One node in a process of its own, driven by a JSON plan: what the tests kill.

It sends the messages of its plan, one after the other, going on after a restart where its journal says it
was; it acknowledges what is delivered, and then writes it to a log of its own. With a tracker, relevant
events happen in between, and what it tells of them is written down once it is certain. Commands come on stdin
(`cut NAME`, `heal NAME`), reports go to stdout, a JSON object a line.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from random import Random

from happened.net import Limits, Node, Plaintext, Signatures, UdpMulticast
from happened.net.nats import NatsTransport
from happened.net.nats_broadcast import NatsBroadcast


def destinations(plan, name, number):
    """Whom message `number` (from 1) of this process is for; the test can work it out too."""
    dice = Random(f"{plan['seed']}/{name}/{number}")
    names = [each for each in plan["members"] if each not in plan.get("routers", ())]
    others = [each for each in names if each != name]
    if plan["casts"] == "unicast":
        return [dice.choice(names)]
    if plan["casts"] == "broadcast":
        return names if dice.random() < 0.3 else others
    if plan.get("groups"):
        group = dice.choice([each for each in plan["groups"] if name in each])
        return group if dice.random() < 0.5 or len(group) == 1 else [each for each in group if each != name]
    return dice.sample(names, dice.randint(1, len(names)))


def over_nats(*, broadcast=False, **more):
    return (NatsBroadcast if broadcast else NatsTransport)(**more)


def signing(name, pki):
    own = Signatures(name, key=pki / f"{name}.key", members=pki, authority=pki / "ca.pem")
    return {"signatures": own, "cluster": "killed"}


def lose_datagrams(transport, dice, share):
    """Let that share of the datagrams get lost, as many be sent twice, and as many after the next one."""
    transmit, late = transport._transmit, []

    def badly(datagram):
        fate = dice.random()
        if fate < share:
            return
        if fate < 2 * share:
            late.append(datagram)
            return
        transmit(datagram)
        while late:
            transmit(late.pop())
        if fate < 3 * share:
            transmit(datagram)

    transport._transmit = badly


async def send(node, plan):
    """`burst` messages, one commit, and a pause; without a pace, as fast as there is room."""
    dice, burst = Random(), plan.get("burst", 1) if plan["pace"] else 16
    quiet = (*plan.get("silent", ()), *plan.get("routers", ()))
    quota = 0 if node.name in quiet else plan["messages"]
    while node.sent < quota:
        for number in range(node.sent + 1, min(node.sent + burst, quota) + 1):
            payload = f"{node.name}/{number}".encode().ljust(plan.get("size", 32), b".")
            await node.room()
            ordered = Random(f"{payload}").random() >= plan.get("unordered", 0)
            more = {"labelled": {"label": "xyz"[number % 3]}, "priorities": {"priority": number % 3}}
            node.multicast_nowait(
                destinations(plan, node.name, number),
                payload,
                ordered=ordered,
                **more.get(plan["protocol"], {}),
            )
            if plan.get("tracker") and number % 5 == 0:
                node.relevant(f"{node.name} sent {number}")
        if plan["pace"]:
            await node.flush()
            await asyncio.sleep(dice.expovariate(1 / (burst * plan["pace"])))
        else:
            await asyncio.sleep(0)


async def take(node, plan, acknowledged):
    """Acknowledge, and only then write down, so that whatever is in the log must not come again. With
    `write_first` the other way round: where nobody is killed, the log has everything, once."""
    before = set()
    if os.path.exists(acknowledged):
        with open(acknowledged) as lines:
            before = {line.split()[0] for line in lines if line.endswith("\n")}
    stamps = []
    with open(acknowledged, "a", buffering=1) as out:
        async for message in node:
            if message.name in before:
                print(json.dumps({"again": message.name}), flush=True)
            batch = [message]
            while len(batch) < 100 and (another := node.receive_nowait()) is not None:
                if another.name in before:
                    print(json.dumps({"again": another.name}), flush=True)
                batch.append(another)
            lines = "".join(f"{each.name} {each.payload.decode().rstrip('.')}\n" for each in batch)
            if plan.get("write_first"):
                out.write(lines)
            for each in batch:
                if plan.get("tracker") and each.number % 3 == 0:
                    stamps.append(node.relevant(f"{node.name} has {each.name}"))
                each.ack_nowait()
            await node.flush()
            note_stamps(plan, stamps)
            if not plan.get("write_first"):
                out.write(lines)


def note_stamps(plan, stamps):
    """Write down what the tracker told, which is certain by now."""
    if stamps:
        with open(f"{plan['directory']}/{plan['name']}.stamps", "a", buffering=1) as out:
            out.write("".join(json.dumps(stamp.to_json()) + "\n" for stamp in stamps))
        stamps.clear()


async def report(node):
    while True:
        stats = node.stats()
        print(
            json.dumps(
                {
                    "sent": node.sent,
                    "delivered": node.delivered,
                    "unacknowledged": stats["unacknowledged"],
                    "outbox": sum(peer["outbox_frames"] for peer in stats["peers"].values()),
                    "parked": sum(peer["parked_bytes"] for peer in stats["peers"].values()),
                    "held": stats["held"],
                    "medium": stats["medium"],
                    "rss": rss(),
                }
            ),
            flush=True,
        )
        await asyncio.sleep(0.1)


def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def obey(node, plan):
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command, peer = line.decode().split()
        if command == "cut":
            node.transport.remove_peer(peer)
        else:
            node.transport.add_peer(peer, plan["addresses"][peer])


async def main(plan):
    name = plan["name"]
    to_stderr = logging.StreamHandler(sys.stderr)
    shape = f"{name} %(message)s %(peer)s %(reason)s %(error)s"
    nothing = dict.fromkeys(("peer", "reason", "error"), "")
    to_stderr.setFormatter(logging.Formatter(shape, defaults=nothing))
    logging.basicConfig(level=logging.WARNING, handlers=[to_stderr])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    node = Node(
        name,
        peers=plan["addresses"],
        listen=plan["addresses"][name] if "listen" not in plan else plan["listen"],
        members=plan["members"],
        protocol=plan["protocol"],
        options=plan["options"],
        tracker=plan.get("tracker"),
        topology=plan.get("topology"),
        journal=f"{plan['directory']}/{name}.journal",
        flush=plan.get("flush", True),
        trace=f"{plan['directory']}/trace" if plan.get("trace", True) else None,
        guard=Plaintext(anywhere=plan.get("anywhere", False)),
        transport=over_nats(**plan["nats"]) if "nats" in plan else None,
        limits=Limits(**plan["limits"]),
        full=plan.get("full", "wait"),
        medium=UdpMulticast(**plan["medium"]) if "medium" in plan else None,
        **signing(name, Path(plan["pki"])) if "pki" in plan else {},
    )
    if plan.get("loss"):
        lose_datagrams(node.transport, Random(f"{plan['seed']}/{name}/loss"), plan["loss"])
    async with node:
        taking = take(node, plan, f"{plan['directory']}/{name}.acknowledged")
        jobs = [taking, report(node), obey(node, plan), send(node, plan)]
        running = asyncio.gather(*jobs)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    print(json.dumps({"closed": True}), flush=True)


def forked(plan, stdin, stdout):
    """The same in a process that was forked from one which has imported this module."""
    errors = os.open(f"{plan['directory']}/{plan['name']}.errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for ours, usual in ((stdin.fileno(), 0), (stdout.fileno(), 1), (errors, 2)):
        os.dup2(ours, usual)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    asyncio.run(main(plan))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
