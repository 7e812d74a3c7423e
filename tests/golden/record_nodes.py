"""Record journals of nodes of version 0.1.0, and the bytes with which their links begin.

Nodes run without sockets: frames are carried by hand from outbox to inbox, so that a journal ends where the
story wants it to, with messages held back, deliveries not acknowledged and frames that nobody has had.
"""

import asyncio
import contextlib
import random
import sqlite3
import tempfile
from pathlib import Path

from golden import access
from golden.access import HERE
from happened.net.handshake import Mode
from happened.net.node import Node
from happened.net.records import control, frames_out, hello_to_json
from happened.net.transport import Hello

NAMES = ("alice", "bob", "carol")
GROUPS = {"groups": [["alice", "bob"], ["bob", "carol"], ["alice", "bob", "carol"]]}


class Silent:
    """A transport that carries nothing."""

    max_payload = 1 << 20
    keeps_order = True
    acknowledges_for_peers = True

    async def start(self, host):
        pass

    async def close(self):
        pass

    def check_address(self, peer, address):
        pass

    add_peer = check_address

    def remove_peer(self, peer):
        pass

    wake = pause = resume = remove_peer

    def durable(self, peer, number):
        pass


class World:
    """Nodes by name, and a hand that carries frames between them."""

    def __init__(self, folder, protocol, options, dice):
        self.folder, self.protocol, self.options, self.dice = Path(folder), protocol, options, dice
        self.nodes, self.members = {}, {}

    async def start(self, name, members=NAMES):
        self.members[name] = members
        node = self.nodes[name] = Node(
            name,
            peers=dict.fromkeys(members, access.NOWHERE),
            protocol=self.protocol,
            options=self.options,
            members=members,
            journal=self.folder / f"{name}.journal",
            flush=False,
            transport=Silent(),
        )
        await node.start()
        return node

    async def meet(self, one, other):
        a, b = self.nodes[one], self.nodes[other]
        a.meet(other, b.hello(one))
        b.meet(one, a.hello(other))
        await asyncio.gather(a.flush(), b.flush())

    def waiting(self, sender, to):
        """The frames of a link that have not arrived, with their numbers."""
        return self.nodes[sender].outbox(to).after(self.nodes[to].received(sender), 1 << 30)

    async def carry(self, sender, to, count=1, *, acknowledged=True):
        frames = self.waiting(sender, to)[:count]
        if frames:
            self.nodes[to].arrived(sender, frames)
            await self.nodes[to].flush()
            if acknowledged:
                self.nodes[sender].freed(to, frames[-1][0])
                await self.nodes[sender].flush()

    async def acknowledge(self, name):
        """The application takes the next delivery and is done with it."""
        message = self.nodes[name].receive_nowait()
        if message is not None:
            await message.ack()

    async def wander(self, steps):
        """Random multicasts, frames carried (of alice to carol none), and deliveries acknowledged."""
        for _ in range(steps):
            chance, name = self.dice.random(), self.dice.choice(NAMES)
            if chance < 0.35:
                await self.nodes[name].multicast(self.destinations(name), self.dice.randbytes(3))
            elif chance < 0.85:
                other = self.dice.choice([each for each in NAMES if each != name])
                if (name, other) != ("alice", "carol"):
                    await self.carry(name, other, acknowledged=self.dice.random() < 0.7)
            else:
                await self.acknowledge(name)

    def destinations(self, name):
        if "groups" in self.options:
            return self.dice.choice([group for group in self.options["groups"] if name in group])
        return self.dice.sample(NAMES, self.dice.randint(1, 3))

    async def crash(self):
        """Leave every journal as kill -9 would."""
        for node in self.nodes.values():
            node._state = "failed"
            node._pool.shutdown(wait=True)
            node._journal._db.close()

    async def keep(self, story, name):
        """Record a node's journal, what a node on it must say, what arrives there next, and what it sends."""
        node = self.nodes[name]
        document = {
            "name": name,
            "protocol": self.protocol,
            "options": self.options,
            "first_members": list(self.members[name]),
            "state": access.shown_node(node),
            "unacknowledged": self.unacknowledged(name),
            "arrivals": [
                {"peer": peer, "number": number, "frame": frame.hex()}
                for peer in self.nodes
                if peer != name and peer in node.members
                for number, frame in self.waiting(peer, name)
            ],
        }
        compact(self.folder / f"{name}.journal", HERE / "journals" / f"{story}.journal")
        for arrival in document["arrivals"]:
            node.arrived(arrival["peer"], [(arrival["number"], bytes.fromhex(arrival["frame"]))])
        await node.flush()
        document["sends"] = None
        if not node._engine.has_left:
            to = list(self.options["groups"][-1] if "groups" in self.options else node.members)
            document["sends"] = {"to": to, "name": await node.multicast(to, b"next")}
        document["state_after"] = access.shown_node(node)
        document["unacknowledged_after"] = self.unacknowledged(name)
        access.save(HERE / "journals" / f"{story}.json", document)
        state = document["state"]
        print(
            f"{story:24}{len(state['pending']):4} held {len(document['unacknowledged']):4} unacknowledged "
            f"{sum(len(link['frames']) for link in state['links'].values()):4} in outboxes "
            f"{len(document['arrivals']):4} arrivals"
        )

    def unacknowledged(self, name):
        """What a restarted node delivers again."""
        node = self.nodes[name]
        return [
            [each.number, f"{node._names[each.sender]}:{each.clock}", each.payload.hex()]
            for each in node._engine.unacknowledged.values()
        ]

    def is_telling(self, name):
        node = self.nodes[name]
        links = access.shown_node(node)["links"].values()
        waits = node.pending() or self.protocol == "sequencer"
        return bool(
            waits
            and self.unacknowledged(name)
            and node.delivered > len(self.unacknowledged(name))
            and any(link["frames"] for link in links)
            and any(link["acknowledged"] for link in links)
        )


def compact(source, target):
    """A copy of a database in few small pages and one file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for file in source.parent.glob(f"{source.name}*"):
            (Path(folder) / file.name).write_bytes(file.read_bytes())
        db = sqlite3.connect(Path(folder) / source.name)
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA page_size = 512")
        db.execute("VACUUM")
        db.close()
        target.write_bytes((Path(folder) / source.name).read_bytes())


async def wandering(story, protocol, options, *, closes):
    """A random run whose nodes are killed; with `closes`, they have been closed and started before that, so
    that their journals begin with a snapshot."""
    for attempt in range(100):
        dice = random.Random(f"{story}/{attempt}")
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, protocol, options, dice)
            for name in NAMES:
                await world.start(name)
            for one, other in (("alice", "bob"), ("alice", "carol"), ("bob", "carol")):
                await world.meet(one, other)
            await world.wander(20)
            if closes:
                for name in NAMES:
                    await world.nodes[name].close()
                    await world.start(name)
                await world.wander(16)
            found = next((name for name in NAMES if world.is_telling(name)), None)
            if found is not None:
                await world.keep(story, found)
            await world.crash()
            if found is not None:
                return
    raise AssertionError(f"no run of {story} is worth keeping")


async def members_change():
    """dave joins, bob is expelled, carol leaves; kept are the journals of alice, who decides, and carol."""
    for story in ("ks-members", "histories-members"):
        with tempfile.TemporaryDirectory() as folder:
            world = World(folder, story.partition("-")[0], {}, random.Random(story))
            for name in NAMES:
                await world.start(name)
            alice, bob, carol = world.nodes.values()
            for one, other in (("alice", "bob"), ("alice", "carol"), ("bob", "carol")):
                await world.meet(one, other)
            await bob.multicast(["alice", "carol"], b"before")
            await world.carry("bob", "alice")
            members = await alice.join("dave", access.NOWHERE)
            await world.start("dave", members)
            await world.meet("alice", "dave")
            await alice.multicast(["bob", "carol", "dave"], b"welcome")
            await world.carry("alice", "carol")  # the join, and not yet the welcome
            await carol.multicast(["alice", "dave"], b"from carol")
            await world.meet("carol", "dave")
            await world.carry("carol", "dave", 9)
            await world.carry("alice", "dave", 9)
            await world.nodes["dave"].multicast(["alice", "carol"], b"thanks")
            await world.carry("dave", "carol", 9)  # held: it waits for the welcome
            await world.keep(f"{story}-hears", "carol")
            await alice.expel("bob")
            await world.acknowledge("alice")
            await world.carry("dave", "alice", 9)
            await world.keep(f"{story}-decides", "alice")
            leaving = asyncio.create_task(carol.leave())
            await asyncio.sleep(0.05)
            await world.carry("carol", "alice", 9, acknowledged=False)
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaving
            await world.keep(f"{story}-leaves", "carol")
            await carol.close()
            await world.start("carol")
            await world.keep(f"{story}-left", "carol")
            await world.crash()


def handshakes():
    """Who says what in each mode; between alice, who calls, and bob."""
    document = {}
    for mode in Mode:
        alice, bob = access.handshakes(mode.name)
        said = [alice.begin()]
        said.append(bob.receive(said[0]))
        said.append(alice.receive(said[1]))
        bob.receive(said[2])
        sealed = [alice.channel.seal(b"one"), alice.channel.seal(b"two")]
        document[mode.name] = {
            "said": [data.hex() for data in said],
            "sealed": [data.hex() for data in sealed],
        }
    hello = Hello(b"\xaa" * 8, b"\xbb" * 8, "ks", ("alice", "bob", "Zoë"))
    document["hello"] = control(hello=hello_to_json(hello)).hex()
    document["records"] = (
        frames_out([(1, b"one"), (2, b"")]) + control(have=7) + control(refused="no") + control()
    ).hex()
    access.save(HERE / "links.json", document)


async def record_all():
    for protocol in ("ks", "sequencer", "histories", "agreed"):
        await wandering(protocol, protocol, {}, closes=False)
        await wandering(f"{protocol}-closed", protocol, {}, closes=True)
    await wandering("bss-groups", "bss-groups", GROUPS, closes=True)
    await members_change()


def record():
    handshakes()
    asyncio.run(record_all())
