"""Record the golden set of this folder: what today's formats, each of version 1, look like in bytes.

It stands for what is in the world: frames on links, journals and snapshots on disks, tables that others read.
Later versions read it, or refuse it by name. A format that gets another version is recorded anew, beside it:

    PYTHONPATH=src:tests:tests/net .venv/bin/python tests/golden/record.py [PART …]
"""

import asyncio
import contextlib
import io
import json
import random
import shutil
import sqlite3
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from test_node import crash

from causality import traces
from contract.drive import Dice, System, may_depart, options
from golden import access
from golden.access import HERE
from happened import ordering, tracking, wire
from happened.causality import encode
from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.net import payloads, records
from happened.net.handshake import Mode
from happened.net.transport import Hello
from happened.ordering.token import TokenPassed, TokenRequest
from happened.ordering.total.sequencer_office import SequencerSeen, SequencerSettled
from happened.ordering.total.three_phase_survival import AgreedSeen
from happened.sim.network import Network, parse_delay
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.trace import read, write_jsonl
from happened.wire import membership, packets, resent, site_news, unordered_message
from oracles.worlds import WORLDS
from oracles.zones import WORLDS as ZONES
from oracles.zones import places as zone_places

# Machines.


class Recorded:
    """A machine that keeps its inputs and effects."""

    def __init__(self, machine):
        self._machine, self.steps = machine, []

    def __getattr__(self, name):
        return getattr(self._machine, name)

    def _note(self, effects, *step):
        self.steps.append([step, access.shown(effects or ())])
        return effects

    def multicast(self, to, payload, **more):
        made = self._machine.multicast(to, payload, **more)
        self._note(made.effects, "multicast", sorted(to), payload.hex(), more)
        return made

    def receive(self, message):
        return self._note(self._machine.receive(message), "receive", wire.encode(message).hex())

    def hand_over(self, to):
        return self._note(self._machine.hand_over(to), "hand_over", to)

    def follow(self, token):
        return self._note(self._machine.follow(token), "follow", token)

    def join(self, process):
        return self._note(self._machine.join(process), "join", process)

    def leave(self, process):
        return self._note(self._machine.leave(process), "leave", process)

    def expel(self, process):
        return self._note(self._machine.expel(process), "expel", process)

    def close(self, process):
        return self._note(self._machine.close(process), "close", process)

    def forget(self, process):
        return self._note(self._machine.forget(process), "forget", process)


def run(facts, told, dice, *, n=4, me=1, changes=True, steps=24):
    """A story: processes talk, and one leaves, one is expelled and one joins if the protocol has that."""
    # Only plain `ks` carries no more than necessary, which a System checks.
    system = System(
        replace(facts, promises=replace(facts.promises, optimal=False)), n, act=4 if n > 4 else None
    )
    system.machines = [Recorded(ordering.create(facts.name, p, n, **told[p])) for p in range(n)]
    recorded = system.machines[me]
    until, snapshot = 0, recorded.snapshot()
    for number in range(steps):
        if system.in_flight and dice.random() < 0.55:
            system.arrive(dice)
        else:
            system.multicast(dice)
        system.settle(dice)
        if system.hands_over and number == 6:
            system.hand_over(dice)
        if changes and facts.membership.departures and number == 9:
            if facts.waits.at_sender:
                system.drain(dice)  # nobody leaves before it has sent everything
            system.leave(3)
        if changes and number == 13:
            if facts.membership.expulsions:
                system.expel(dice, 0)
            elif may_depart(system):
                system.leave(0)
        if changes and number == 18 and facts.membership.joins:
            system.join()
        if recorded.pending_count and len(recorded.steps) < 2 * steps // 3:
            until, snapshot = len(recorded.steps), recorded.snapshot()
    system.drain(dice)
    return {
        "protocol": facts.name,
        "n": n,
        "me": me,
        "options": nested(told[me]),
        "frames": {type(message).__name__: wire.encode(message).hex() for message in system.made},
        "steps": recorded.steps,
        "until_snapshot": until,
        "snapshot": snapshot.decode(),
        "snapshot_after": recorded.snapshot().decode(),
    }


def nested(value):
    if isinstance(value, dict):
        return {key: nested(item) for key, item in value.items()}
    return [nested(item) for item in value] if isinstance(value, tuple | list | set) else value


def qualified(facts, how):
    """Three messages of an incomplete order, of which the third process gets the first one last."""
    first, second, third = (Recorded(ordering.create(facts.name, p, 3)) for p in range(3))
    made = [first.multicast([1, 2], b"one", **how[0]).effects]
    second.receive(made[0][0].message)
    made.append(second.multicast([2], b"two", **how[1]).effects)
    made.append(second.multicast([2], b"three", **how[2]).effects)
    for effects in (made[2], made[1]):
        third.receive(effects[-1].message)
    snapshot = third.snapshot()
    third.receive(made[0][1].message)
    third.multicast([0], b"four")
    return {
        "protocol": facts.name,
        "n": 3,
        "me": 2,
        "options": {},
        "frames": {type(each[0].message).__name__: wire.encode(each[-1].message).hex() for each in made},
        "steps": third.steps,
        "until_snapshot": 2,
        "snapshot": snapshot.decode(),
        "snapshot_after": third.snapshot().decode(),
    }


CHOSEN = {
    "ks-hardware-multicast": ("ks", [{"hardware_multicast": True}] * 4, {"changes": False}),
    "ks-wide": ("ks", [{}] * 70, {"n": 70, "me": 68, "changes": False, "steps": 12}),
    "histories-extended": ("histories", [{"extended": True}] * 4, {"changes": False}),
    "topological-line": (
        "topological", [{"place": place} for place in WORLDS["line"].places()], {"changes": False},
    ),
    "zoned-ks-line": (
        "zoned-ks",
        [{"place": place} for place in zone_places(ZONES["a line of three zones"])],
        {"changes": False},
    ),
}  # fmt: skip
RARE = {
    "sequencer": [SequencerSeen(1, (3, 7), 1), SequencerSettled(0, (3, 7), 2)],
    "agreed": [AgreedSeen(1, 7)],
}
"""What is said after more deliveries than a story has."""
QUALIFIED = {
    "labelled": [{"label": "a"}, {"label": "ä"}, {"label": "a"}],
    "priorities": [{"priority": 0}, {"priority": -3}, {"priority": 1 << 20}],
    "managed-histories": [{}, {}, {}],
}


def record_machines():
    stories = {name: (name, None, {}) for name in ordering.protocols()} | CHOSEN
    document, seen = {}, set()
    for name, (protocol, told, how) in stories.items():
        facts = ordering.protocols()[protocol]
        made = told or [{key: [sorted(g) for g in sets] for key, sets in options(facts, 4).items()}] * 4
        tried = [run(facts, made, Dice(f"{name} {attempt}"), **how) for attempt in range(20)]
        best = max(tried, key=lambda each: (len(each["frames"]), each["until_snapshot"] > 0, -len(str(each))))
        best["frames"] |= {type(each).__name__: wire.encode(each).hex() for each in RARE.get(name, ())}
        document[name] = best
        seen |= best["frames"].keys()
    for name, facts in ordering.incomplete().items():
        document[name] = qualified(facts, QUALIFIED[name])
        seen |= document[name]["frames"].keys()
    kinds = {kind.__name__ for codec in wire.codecs().values() for kind in codec.messages}
    assert seen == kinds, f"never sent: {kinds - seen}"
    access.save("machines.json", document)


KINDS = ("relevant", "send", "receive")


def record_trackers():
    document = {}
    for name in (*tracking.protocols(), "p2:2"):
        dice, n = random.Random(name), 3
        machines = [tracking.create(name, p, n) for p in range(n)]
        fifo = tracking.protocols()[name.partition(":")[0]].fifo_links
        inputs, in_flight = [[] for _ in range(n)], []

        def give(process, *step, inputs=inputs, machines=machines):
            before = machines[process].snapshot()
            told = access.track(machines[process], list(step))
            inputs[process].append(([step, told], before))
            return told

        for _ in range(40):
            chance, p = dice.random(), dice.randrange(n)
            if chance < 0.25 or name == "direct":  # which sends only what an event of its own has told
                give(p, "relevant")
            if 0.25 <= chance < 0.6 or (chance >= 0.6 and not in_flight):
                to = dice.choice([q for q in range(n) if q != p])
                in_flight.append((p, to, give(p, "send", to)[0]))
            elif chance >= 0.6:
                packet = dice.choice(in_flight)
                if fifo:
                    packet = next(other for other in in_flight if other[:2] == packet[:2])
                in_flight.remove(packet)
                give(packet[1], "receive", packet[0], packet[2])
        kinds = [[step[0][0] for step, _ in each] for each in inputs]
        ends = [min((len(k) - k[::-1].index(kind) - 1 if kind in k else 0) for kind in KINDS) for k in kinds]
        me = max(range(n), key=ends.__getitem__)
        at = min(ends[me], len(inputs[me]) // 2)
        document[name] = {
            "protocol": name,
            "n": n,
            "me": me,
            "snapshot": inputs[me][at][1].decode(),
            "steps": [step for step, _ in inputs[me][at:]],
            "snapshot_after": machines[me].snapshot().decode(),
        }
    access.save("trackers.json", document)


# Links.

DIGEST, NEXT = "0" * 63 + "1", "0" * 63 + "2"
CONTROL = {
    "membership": [
        membership.MemberJoined(3, "Zoë", "127.0.0.1:9"),
        membership.DepartureStage(1, 2),
        membership.StateTally(3, 17),
        membership.StateGiven(3, (4, 5)),
        *(
            kind(1)
            for kind in (
                membership.MemberDeparted,
                membership.MemberExpelled,
                membership.MemberAbsent,
                membership.MemberRanked,
                membership.StateAsked,
            )
        ),
    ],
    "site_news": [
        site_news.SiteProposed(DIGEST, "{}"),
        site_news.LinkDrained(DIGEST),
        site_news.ProcessFinished(DIGEST, NEXT, 2),
        site_news.SuccessionProposed(DIGEST, "{}"),
        site_news.LinkFlushed(DIGEST, NEXT),
        site_news.HopsTaken(DIGEST, 2, 7),
        site_news.Account(DIGEST, 2, ((0, 3), (1, 4))),
    ],
    "token_frames": [TokenRequest(1, 7), TokenPassed(((0, 1), (1, 7)), (2,), 1 << 70, ((1, 2), 3))],
    "unordered_message": [unordered_message.UnorderedMessage(70, 3, 9, 1 << 69 | 1, b"now")],
}
"""By the module of `wire` that writes and reads them."""


def record_links():
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
    for module, messages in CONTROL.items():
        write = getattr(wire, module).encode
        document[module] = {write(message).hex(): repr(message) for message in messages}
    hello = Hello(b"\xaa" * 8, b"\xbb" * 8, "ks", ("alice", "bob", "Zoë"))
    frames = [(1, b"one"), (2, b"")]
    said = records.with_check(hello=records.hello_to_json(hello), have=3)
    document["other"] = {
        "hello": records.control(**said).hex(),
        "records": (records.frames_out(frames) + records.control(refused="no") + records.control()).hex(),
        "packet": packets.encode("alice", b"\1\2", {"bob": 7, "carol": 816}, [b"x", b""]).hex(),
        "resent": resent.encode(3, b"frame").hex(),
        "payload": payloads.seal({"naïve": "é"}, b"body").hex(),
    }
    access.save("links.json", document)


# Journals.

NAMES = ("alice", "bob", "carol")


class Silent:
    """A transport that carries nothing."""

    max_payload = 1 << 20
    keeps_order = acknowledges_for_peers = True

    async def start(self, host):
        pass

    async def close(self):
        pass

    def check_address(self, peer, address):
        pass

    add_peer = durable = check_address

    def remove_peer(self, peer):
        pass

    wake = pause = resume = remove_peer


class World:
    """Nodes by name, and a hand that carries frames between them: so a journal ends where the story wants it
    to, with messages held back, deliveries not acknowledged and frames that nobody has had."""

    def __init__(self, folder, protocol):
        self.folder, self.protocol, self.nodes, self.members = Path(folder), protocol, {}, {}

    async def start(self, name, members=NAMES):
        self.members[name] = list(members)
        about = {"name": name, "protocol": self.protocol, "members": members}
        node = self.nodes[name] = access.node(about, self.folder / f"{name}.journal", transport=Silent())
        await node.start()
        for other in self.nodes.values():
            if other is not node and name in other.members and other.name in node.members:
                node.host.meet(other.name, other.host.hello(name))
                other.host.meet(name, node.host.hello(other.name))
                await asyncio.gather(node.flush(), other.flush())

    def waiting(self, sender, to):
        """The frames of a link that have not arrived, with their numbers."""
        return self.nodes[sender].host.outbox(to).after(self.nodes[to].host.received(sender), 1 << 30)

    async def carry(self, sender, to, count=9, *, acknowledged=True):
        if frames := self.waiting(sender, to)[:count]:
            self.nodes[to].host.arrived(sender, frames)
            await self.nodes[to].flush()
            if acknowledged:
                self.nodes[sender].host.freed(to, frames[-1][0])
                await self.nodes[sender].flush()

    async def keep(self, story, name):
        """Record a node's journal, what a node on it must say, what arrives there next, and what it sends."""
        node = self.nodes[name]
        document = {
            "name": name,
            "protocol": self.protocol,
            "members": self.members[name],
            "state": access.shown_node(node),
            "unacknowledged": unacknowledged(node),
            "arrivals": [
                [peer, number, frame.hex()]
                for peer in self.nodes
                if peer != name and peer in node.members
                for number, frame in self.waiting(peer, name)
            ],
        }
        compact(self.folder / f"{name}.journal", HERE / f"{story}.journal")
        for peer, number, frame in document["arrivals"]:
            node.host.arrived(peer, [(number, bytes.fromhex(frame))])
        await node.flush()
        document["sends"] = await node.multicast(list(node.members), b"next")
        document["state_after"] = access.shown_node(node)
        document["unacknowledged_after"] = unacknowledged(node)
        return document


def unacknowledged(node):
    """What a restarted node delivers again."""
    engine = node._engine
    return [
        [each.number, f"{engine.roster.name(each.sender)}:{each.clock}", each.payload.hex()]
        for each in engine.unacknowledged.values()
    ]


def compact(source, target):
    """A copy of a database in few small pages and one file."""
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for file in source.parent.glob(f"{source.name}*"):
            (Path(folder) / file.name).write_bytes(file.read_bytes())
        db = sqlite3.connect(Path(folder) / source.name)
        for setting in ("journal_mode = DELETE", "page_size = 512"):
            db.execute(f"PRAGMA {setting}")
        db.execute("VACUUM")
        db.close()
        target.write_bytes((Path(folder) / source.name).read_bytes())


async def talk(protocol, story):
    """carol is told of an answer before the question; all are closed and started again before that."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, protocol)
        for name in NAMES:
            await world.start(name)
        await world.nodes["alice"].multicast(["bob", "carol"], b"before")
        for sender, to in (("alice", "bob"), ("alice", "carol"), ("bob", "carol"), ("bob", "alice")):
            await world.carry(sender, to)
        for name in NAMES:
            await world.nodes[name].close()
            del world.nodes[name]
            await world.start(name)
        await world.nodes["carol"].multicast(list(NAMES), b"from carol")
        await world.carry("carol", "alice", acknowledged=False)
        await world.carry("carol", "bob")
        await world.nodes["alice"].multicast(list(NAMES), b"question")
        await world.carry("alice", "bob")
        await world.nodes["bob"].multicast(list(NAMES), b"answer")
        await world.carry("bob", "carol")
        document = await world.keep(story, "carol")
        for node in world.nodes.values():
            await crash(node)
        return document


async def change_members():
    """dave joins and bob is expelled; kept is the journal of alice, who decides."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, "ks")
        for name in NAMES:
            await world.start(name)
        alice, bob, carol = world.nodes.values()
        await bob.multicast(["alice", "carol"], b"before")
        await world.carry("bob", "alice")
        await world.start("dave", await alice.join("dave", access.NOWHERE))
        await alice.multicast(["bob", "carol", "dave"], b"welcome")
        await world.carry("alice", "carol")
        await world.carry("alice", "dave")
        await carol.multicast(["alice", "dave"], b"from carol")
        await alice.expel("bob")
        await world.carry("carol", "alice")
        await world.carry("alice", "carol")
        await world.carry("carol", "dave")
        await world.nodes["dave"].multicast(["alice", "carol"], b"thanks")
        document = await world.keep("members", "alice")
        for node in world.nodes.values():
            await crash(node)
        return document


async def record_all_journals():
    document = {protocol: await talk(protocol, protocol) for protocol in ("ks", "sequencer")}
    access.save("journals.json", document | {"members": await change_members()})


def record_journals():
    asyncio.run(record_all_journals())


# Traces and tables.


def wild(dice, count, *, steps, skew=0, one=False):
    """Rows of random computations; with `one`, all of one computation, on processes of their own."""
    rows, made = [], 0
    while made < count:
        candidate = traces.wild(dice, "" if one else f"wild-{made}", steps)
        try:
            encode(traces.table(candidate))
        except TraceFormatError:
            continue
        if len(candidate) < 8:
            continue
        ahead = {row["process"]: dice.randint(-skew, skew) for row in candidate}
        for row in candidate:
            row["time"] = row["seq"] * 10 + ahead[row["process"]] + dice.randint(0, 5)
            row["relevant"] = dice.random() < 0.7
            if one:
                rename(row, f"{made}.")
        rows += candidate
        made += 1
    return rows


def rename(row, prefix):
    row["process"] = prefix + row["process"]
    if "message" in row:
        row["message"] = prefix + row["message"]
    if "to" in row:
        row["to"] = [prefix + name for name in row["to"]]
    for cause in row.get("causes", ()):
        cause["process"] = prefix + cause["process"]


def decorated(rows, dice):
    """Every optional field of a trace somewhere: logged clocks that may be wrong, labels, attributes."""
    for row in rows:
        if dice.random() < 0.3:
            row["clock"] = {row["process"]: row["seq"], "absent": dice.randint(0, 1)}
        if dice.random() < 0.2:
            row["label"], row["attributes"] = "naïve", {"key": "value", "unit": "µs"}
        if row["kind"] == "receive":
            row["control_entries"], row["control_bytes"] = dice.randint(0, 9), dice.randint(0, 99)
    return rows


def record_run():
    """run/, the directory of a simulated run: in one total order that is not a causal one."""
    shutil.rmtree(HERE / "run", ignore_errors=True)
    parameters = Parameters(
        seed=1,
        protocol="agreed",
        processes=3,
        messages=7,
        workload=Workload("multicast", 0.1),
        network=Network(parse_delay("exp:0.5")),
        tracker="vector",
        relevant=0.3,
    )
    simulate(parameters, HERE / "run", units=True)
    return read(HERE / "run")


def record_tables():
    """wild.jsonl has computations that break every rule but have no cycle, with every field of a trace;
    whole.parquet has the run too, and a computation that is none; epochs.parquet is one computation."""
    dice = random.Random("golden 151")  # which has every kind of violation, and every field
    simulated = record_run()
    some = traces.table(decorated(wild(dice, 2, steps=18, skew=50), dice))
    write_jsonl(some, HERE / "wild.jsonl")
    gap = {"computation": "broken", "process": "p", "seq": 2, "kind": "internal"}
    whole = pa.concat_tables([simulated, some, traces.table([gap])])
    pq.write_table(whole, HERE / "whole.parquet", compression="zstd")
    one = traces.table(decorated(wild(dice, 2, steps=24, skew=100, one=True), dice))
    pq.write_table(one, HERE / "epochs.parquet", compression="zstd")
    document = {"trace": access.shown_schema(whole.schema), "verdicts": {}}
    for order in ("fifo", "causal", "total"):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(["check", str(HERE / "run"), "--order", order, "--necessary", "--json"])
        document["verdicts"][order] = [code, json.loads(out.getvalue()) | {"path": None}]
    record_analyses(document)
    access.save("tables.json", document)


def record_analyses(document):
    from happened.spark.session import session

    spark = session("local[2]")
    try:
        for name in access.ANALYSES:
            with tempfile.TemporaryDirectory() as made:
                out = Path(made) / "out"
                document[name] = {"summary": access.analyze(spark, name, out)}
                for table in sorted(path.name for path in out.iterdir() if path.is_dir()):
                    found = pq.read_table(out / table)
                    rows = [list(row.values()) for row in access.shown_rows(found)]
                    document[name][table] = [access.shown_schema(found.schema), rows]
    finally:
        spark.stop()


if __name__ == "__main__":
    for part in sys.argv[1:] or ("machines", "trackers", "links", "journals", "tables"):
        globals()[f"record_{part}"]()
