"""Labels, priorities and managed histories on engines and nodes that are killed. The judge knows what was
sent with which label, priority or history and in which order everybody sent and delivered, from the trace
alone; it keeps sets of messages and shares nothing with the machines."""

import json
from collections import Counter
from random import Random

import pytest
from netcluster import Cluster, schedule
from test_engine_replay import NAMES
from test_node import addresses, make, nodes, run, take

from happened.causality import check
from happened.core.destinations import unpack
from happened.core.errors import LocalProtocolError
from happened.net.engine import Engine
from happened.net.qualified import history_from_json
from happened.ordering import incomplete, protocols
from happened.trace import read

INCOMPLETE = sorted(incomplete())


class Judge:
    """What each message must not overtake, from rows in the order of each process."""

    def __init__(self, rows):
        self.sends = {row["message"]: row for row in rows if row["kind"] == "unordered"}
        self.said = {message: dict(row["attributes"]) for message, row in self.sends.items()}
        self.rows = {}
        for row in sorted(rows, key=lambda row: row["seq"]):
            self.rows.setdefault(row["process"], []).append(row)
        self.past = {}  # of each message, all that was sent before it, by happened-before
        self.label_past = {}  # the same by messages of its own label alone

    def work_out(self):
        """Walk along the processes until every send has been met; a delivery waits for its send."""
        at = dict.fromkeys(self.rows, 0)
        known = {process: set() for process in self.rows}
        by_label = {process: {} for process in self.rows}
        moved = True
        while moved:
            moved = False
            for process, rows in self.rows.items():
                while at[process] < len(rows):
                    row = rows[at[process]]
                    message, label = row["message"], self.said.get(row["message"], {}).get("label")
                    mine = by_label[process].setdefault(label, set())
                    if row["kind"] == "unordered":
                        self.past[message], self.label_past[message] = set(known[process]), set(mine)
                    elif row["kind"] == "deliver":
                        if message not in self.past:
                            break
                        known[process] |= self.past[message]
                        mine |= self.label_past[message]
                    if row["kind"] in ("unordered", "deliver"):
                        known[process].add(message)
                        mine.add(message)
                    at[process] += 1
                    moved = True
        assert all(at[process] == len(rows) for process, rows in self.rows.items())

    def before(self, message):
        said = self.said[message]
        if "label" in said:
            return self.label_past[message]
        if "priority" in said:
            mine = int(said["priority"])
            return {m for m in self.past[message] if int(self.said[m]["priority"]) >= mine}
        follows = set(said["after"].split())
        return follows.union(*map(self.before, follows))

    def overtaken(self):
        """(process, message, one that it overtook)."""
        self.work_out()
        for process, rows in self.rows.items():
            order = [row["message"] for row in rows if row["kind"] == "deliver"]
            place = {message: k for k, message in enumerate(order)}
            for message in order:
                for earlier in self.before(message):
                    if process in self.sends[earlier]["to"] and place.get(earlier, 1 << 30) > place[message]:
                        yield process, message, earlier


class World:
    """Engines with a journal each, which are killed and replayed; frames of a link come in order."""

    def __init__(self, protocol, dice):
        self.protocol, self.dice = protocol, dice
        self.engines = {name: Engine(name, NAMES, protocol) for name in NAMES}
        self.journals = {name: [] for name in NAMES}
        self.histories = {name: [] for name in NAMES}  # that its application holds
        self.rows = {name: {} for name in NAMES}
        for name, engine in self.engines.items():
            self.record(name, engine)

    def record(self, name, engine):
        """Rows of one process by seq: those that are made again when it is replayed must be the same."""

        def note(seq, **row):
            assert self.rows[name].setdefault(seq, row) == row

        class Notes:
            def sent_unordered(self, seq, time, clock, to, attributes):
                to = [NAMES[d] for d in unpack(to)]
                note(seq, kind="unordered", message=f"{name}:{clock}", to=to, attributes=attributes)

            def received(self, seq, time, message, frame):
                note(seq, kind="internal", message=None)

            def delivered(self, seq, time, sender, clock):
                note(seq, kind="deliver", message=f"{NAMES[sender]}:{clock}")

        engine.recorder = Notes()

    def commit(self, name):
        engine = self.engines[name]
        batch = engine.cut()
        self.journals[name].append(batch.entries)
        engine.release(batch)
        if self.protocol == "managed-histories":
            for delivery in batch.deliveries:
                self.histories[name].append(history_from_json(json.loads(delivery.history)))

    def how(self, name):
        dice = self.dice
        if self.protocol == "labelled":
            return {"label": dice.choice(["x", "y", ""])}
        if self.protocol == "priorities":
            return {"priority": dice.randint(-1, 2)}
        some = dice.sample(self.histories[name], min(len(self.histories[name]), dice.randint(0, 3)))
        return {"after": some[0].merge(*some[1:])} if some else {}

    def step(self):
        name, act = self.dice.choice(NAMES), self.dice.random()
        engine = self.engines[name]
        if act < 0.3:
            to = self.dice.sample(range(4), self.dice.randint(1, 3))
            engine.qualified.multicast(to, b"m", self.how(name))
            if engine.qualified.history is not None:
                self.histories[name].append(engine.qualified.history)
            self.commit(name)
        elif act < 0.36:
            self.engines[name] = again = Engine(name, NAMES, self.protocol)
            self.record(name, again)
            for entries in self.journals[name]:
                again.replay(entries, 0)
            assert again.snapshot() == engine.snapshot()
            if self.dice.random() < 0.5:
                other = Engine(name, NAMES, self.protocol)
                other.restore(again.snapshot())
                assert other.snapshot() == again.snapshot() and other.unacknowledged == again.unacknowledged
        else:
            self.carry(engine)

    def carry(self, engine, most=3):
        link = self.dice.choice(list(engine.inboxes))
        outbox, inbox = self.engines[NAMES[link]].outboxes[engine.me], engine.inboxes[link]
        moved = 0
        for number, frame in outbox.after(outbox.acknowledged, 1 << 20):
            if number > inbox.received_through and moved < most:
                engine.receive(link, frame)
                moved += 1
        if moved:
            self.commit(engine.name)
        return moved

    def settle(self):
        for _ in range(3000):
            self.carry(self.dice.choice(list(self.engines.values())), 100)
        assert not any(engine.held_count() for engine in self.engines.values())

    def table(self):
        every = self.rows.items()
        return [{"process": name, "seq": seq, **row} for name, rows in every for seq, row in rows.items()]


@pytest.mark.parametrize("protocol", INCOMPLETE)
def test_the_promised_order_survives_kills(protocol, dice: Random):
    overtook = 0
    for _ in range(4):
        world = World(protocol, dice)
        for _ in range(250):
            world.step()
        world.settle()
        rows = world.table()
        assert list(Judge(rows).overtaken()) == []
        sent = Counter(to for row in rows if row["kind"] == "unordered" for to in row["to"])
        assert sent == Counter(row["process"] for row in rows if row["kind"] == "deliver")
        whole = Judge([row | {"attributes": {"priority": "0"}} for row in rows])  # as if it were complete
        overtook += len(list(whole.overtaken()))
    assert overtook > 0  # so the order is incomplete, and the judge can say no


def rows_of(first, second):
    """a sends `first` to b and c, b answers with `second` to c; at c, it comes first."""

    def send(message, to, attributes):
        return {"kind": "unordered", "message": message, "to": to, "attributes": attributes}

    def deliver(message):
        return {"kind": "deliver", "message": message}

    chains = {
        "a": [send("first", ["b", "c"], first)],
        "b": [deliver("first"), send("second", ["c"], second)],
        "c": [deliver("second"), deliver("first")],
    }
    return [
        {"process": process, "seq": seq, **row}
        for process, rows in chains.items()
        for seq, row in enumerate(rows, start=1)
    ]


@pytest.mark.parametrize(
    ("first", "second", "is_violated"),
    [
        ({"label": "x"}, {"label": "x"}, True),
        ({"label": "x"}, {"label": "y"}, False),
        ({"priority": "1"}, {"priority": "1"}, True),
        ({"priority": "2"}, {"priority": "1"}, True),
        ({"priority": "1"}, {"priority": "2"}, False),
        ({"after": ""}, {"after": "first"}, True),
        ({"after": ""}, {"after": ""}, False),
    ],
)
def test_the_judge_finds_what_is_planted(first, second, is_violated):
    found = [("c", "second", "first")] if is_violated else []
    assert list(Judge(rows_of(first, second)).overtaken()) == found


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["labelled", "priorities"])
def test_killed_processes_keep_the_promised_order(tmp_path, seed, protocol):
    with Cluster(tmp_path, seed, protocol=protocol, messages=30, pace=0.008) as cluster:
        cluster.suffer(schedule(seed, 1.0, 0.35))
        cluster.wait(60)
    rows = cluster.judge().to_pylist()
    assert cluster.kills and list(Judge(rows).overtaken()) == []
    assert len({row["attributes"][0] for row in rows if row["kind"] == "unordered"}) == 3


def test_nodes_take_labels_priorities_and_histories(tmp_path):
    async def test():
        trace = tmp_path / "trace"
        async with nodes("a", "b", tmp_path=tmp_path, protocol="labelled", trace=trace) as (a, b):
            sent = [await a.multicast(["b", "a"], b"x", label="news"), await a.multicast(["b"], b"y")]
            assert await take(b, 2) == sent
            with pytest.raises(LocalProtocolError, match="takes no `priority`; that is for priorities"):
                await a.multicast(["b"], b"", priority=1)
            with pytest.raises(LocalProtocolError, match="a label is text"):
                await a.multicast(["b"], b"", label=7)
            with pytest.raises(LocalProtocolError, match="messages come with histories where"):
                assert not (await anext(a)).history
        rows = read(tmp_path / "trace").to_pylist()
        said = [dict(row["attributes"]) for row in rows if row["kind"] == "unordered"]
        assert said == [{"label": "news"}, {"label": ""}]
        judgement = check(tmp_path / "trace", complete=True)
        assert judgement.holds is None and "VIOLATED" not in judgement.sentence

    run(test())


def test_a_history_comes_again_with_its_message_after_a_restart(tmp_path):
    async def test():
        where, protocol = addresses("a", "b"), "managed-histories"
        async with make("a", where, tmp_path, protocol=protocol) as a:
            b = make("b", where, tmp_path, protocol=protocol)
            await b.start()
            first = await a.multicast(["a", "b"], b"first")
            second = await a.multicast(["b"], b"second", after=first.history)
            histories = [(await anext(b)).history for _ in range(2)]
            await b.close()
            async with make("b", where, tmp_path, protocol=protocol) as b:
                again = [await anext(b) for _ in range(2)]
                assert [message.name for message in again] == [first, second]
                assert [message.history for message in again] == histories
                both = histories[0].merge(histories[1])
                reply = await b.multicast(["a"], b"reply", after=both)
                assert await take(a, 2) == [first, reply]
            with pytest.raises(LocalProtocolError, match="`after` is a history"):
                await a.multicast(["b"], b"", after="second")

    run(test())


def test_incomplete_orders_are_told_apart_from_complete_ones():
    for facts in incomplete().values():
        assert (
            facts.order == "none"
            and facts.qualifier.keyword
            and facts.qualifier.promise
            and not facts.membership.expulsions
        )
    assert not incomplete().keys() & protocols().keys()
    with pytest.raises(LocalProtocolError, match="no tracker can ride"):
        make("a", {"a": "127.0.0.1:0"}, protocol="labelled", tracker="p1")
