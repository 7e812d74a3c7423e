"""Nodes that join with the application's state: what an application and its operator see."""

import asyncio
import contextlib
import json
from random import Random

import pytest
from test_node import addresses, crash, make, run, take, until

from happened.causality import check_delivery, check_order
from happened.core.errors import LocalProtocolError
from happened.net import JSON, NodeClosed, NodeError, NodeFull
from happened.ordering import protocols
from happened.trace import read

FOUNDERS = ("a", "b", "c")


class Replica:
    """An application whose state is a log, kept in a file that is written before an acknowledgement."""

    def __init__(self, name, where, folder, members=FOUNDERS, **more):
        self.name, self.path, self.arguments = name, folder / f"{name}.log", (where, folder, members)
        self.path.touch()
        self.log = dict(map(json.loads, self.path.read_text().splitlines()))
        peers = {each: where[each] for each in {*members, name}}
        options = {"members": members, "codec": JSON, "flush": False, "state": self.state}
        self.more = more
        self.node = make(name, peers, folder, {"linger": 0.1}, **{**options, **more})

    def state(self):
        return [entry for entries in self.log.values() for entry in entries]

    async def start(self):
        await self.node.start()
        self.task = asyncio.create_task(self.work())
        return self

    async def work(self):
        with contextlib.suppress(NodeClosed):
            async for message in self.node:
                if message.number not in self.log:  # killed between the file and the acknowledgement
                    self.log[message.number] = message.value if message.is_state else [message.value]
                    with self.path.open("a") as file:
                        file.write(json.dumps([message.number, self.log[message.number]]) + "\n")
                message.ack_nowait()

    async def killed(self):
        """The same, killed and started again."""
        self.task.cancel()
        await crash(self.node)
        return await Replica(self.name, *self.arguments, **self.more).start()

    async def close(self):
        await self.node.close()
        await self.task


async def equal(replicas, count):
    async with asyncio.timeout(60):
        while not all(len(each.state()) == count for each in replicas):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("protocol", ["ks", "causal-total", "sequencer"])
def test_who_was_away_too_long_comes_back_by_state_transfer(tmp_path, dice: Random, protocol):
    """c is expelled, and comes back as d, under load; everybody is killed now and then."""

    async def scenario():
        where = addresses("a", "b", "c", "d")
        more = {"protocol": protocol, "trace": tmp_path / "trace"}
        group = {name: await Replica(name, where, tmp_path, **more).start() for name in "ab"}
        sent = 0

        async def load(name, count):
            nonlocal sent
            for _ in range(count):
                sent += 1
                await group[name].node.multicast("*", f"{name} {sent}")

        await group["a"].node.expel("c")
        await until(lambda: "c" not in group["b"].node.members)
        for name in "abab":
            await load(name, 10)
        await until(lambda: group["a"].node._engine.members.departures[2].stage >= 1)
        members = await group["a"].node.join("d", where["d"])
        await load("b", 5)
        group["d"] = await Replica("d", where, tmp_path, members, state_from="a", **more).start()
        for _ in range(4):
            name = dice.choice("abd")
            group[name] = await group[name].killed()
            await load(dice.choice("ab"), 5)
        await equal(group.values(), sent)
        await load("d", 5)
        await equal(group.values(), sent)
        logs = {name: each.state() for name, each in group.items()}
        if protocol == "ks":
            logs = {name: sorted(log) for name, log in logs.items()}
        assert logs["a"] == logs["b"] == logs["d"] and len(set(logs["a"])) == sent
        assert len(group["d"].log[1]) > 20, "the state is first"
        await asyncio.gather(*(each.close() for each in group.values()))

    run(scenario())
    trace = read(tmp_path / "trace")
    for order in protocols()[protocol].order.split("-"):
        assert check_order(trace, order).holds
    found = check_delivery(trace)
    assert (found.lost, found.duplicated, found.misdelivered, found.never_sent) == (0, 0, 0, 0)


def test_a_newcomer_sends_nothing_before_its_state_and_health_says_what_that_waits_for(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c", "d")
        a, b = [await Replica(name, where, tmp_path).start() for name in "ab"]
        members = await a.node.join("d", where["d"])
        d = await Replica("d", where, tmp_path, members, state_from="a").start()
        with pytest.raises(NodeFull, match="waits for the state that 'a' is to give; nothing was sent"):
            await d.node.multicast("a", "early", timeout=0.3)
        assert "waits for the state that a is to give" in d.node.health().problems
        assert "the state for d waits for messages of c" in a.node.health().problems
        with pytest.raises(LocalProtocolError, match="'a' is to give a state to d, and leaves when it has"):
            await a.node.leave()
        c = await Replica("c", where, tmp_path).start()
        await d.node.multicast("*", "first", timeout=10)
        await equal([a, b, c, d], 1)
        assert not d.node.health().problems and a.node.sent == 0
        await asyncio.gather(*(each.close() for each in (a, b, c, d)))

    run(scenario())


def test_who_is_killed_before_it_has_told_whom_it_admitted_is_asked_again(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c", "d", "e")
        a, b, c = [await Replica(name, where, tmp_path).start() for name in "abc"]
        members = await a.node.join("d", where["d"])
        a = await a.killed()
        with pytest.raises(LocalProtocolError, match="is or was a member"):
            await a.node.join("d", where["e"])
        assert await a.node.join("d", where["d"]) == members
        d = await Replica("d", where, tmp_path, members, state_from="a").start()
        await d.node.multicast("*", "first", timeout=30)
        await equal([a, b, c, d], 1)
        await a.node.join("e", where["e"])
        with pytest.raises(LocalProtocolError, match="is or was a member"):
            await a.node.join("d", where["d"])  # whoever is started with these knows more than d did
        await asyncio.gather(*(each.close() for each in (a, b, c, d)))

    run(scenario())


def test_a_newcomer_whose_admitting_process_is_gone_stops(tmp_path):
    async def scenario():
        where = addresses("a", "b", "c", "d")
        a, b = [await Replica(name, where, tmp_path).start() for name in "ab"]
        members = await a.node.join("d", where["d"])
        d = await Replica("d", where, tmp_path, members, state_from="a").start()
        await until(lambda: "d" in b.node.members)
        a.task.cancel()
        await crash(a.node)
        await b.node.expel("a")
        await until(lambda: d.node.failure is not None)
        assert isinstance(d.node.failure, NodeError)
        assert "'a' has gone, and has not given the state" in str(d.node.failure)
        await asyncio.gather(b.close(), d.close())

    run(scenario())


def test_a_state_that_cannot_be_taken_is_told_and_ends_nothing(tmp_path):
    async def scenario():
        where, elsewhere = addresses("a", "b"), addresses("d")

        def broken():
            raise ValueError("no state today")

        a = make("a", where, tmp_path, codec=JSON, state=broken)
        b = make("b", where, tmp_path, codec=JSON)
        await asyncio.gather(a.start(), b.start())
        await a.join("d", elsewhere["d"])
        wanted = "the state for d cannot be taken: ValueError: no state today"
        await until(lambda: wanted in a.health().problems)
        assert await a.multicast("b", "on we go") == "a:1"
        await asyncio.gather(a.close(), b.close())
        a = make("a", where, tmp_path, {"state": 5}, codec=JSON, state=lambda: "too long")
        b = make("b", where, tmp_path, codec=JSON)
        await asyncio.gather(a.start(), b.start())
        await until(lambda: any("more than limits.state" in each for each in a.health().problems))
        await asyncio.gather(a.close(), b.close())

    run(scenario())


@pytest.mark.parametrize(
    "options, why",
    [
        ({"journal": None}, "needs a journal"),
        ({"protocol": "bss"}, "needs members that join"),
        ({"protocol": "serialized-multicast"}, "and not serialized-multicast"),
    ],
)
def test_where_a_state_is_refused(tmp_path, options, why):
    where = addresses("a", "b")
    with pytest.raises(LocalProtocolError, match=why):
        make("a", where, tmp_path, state=lambda: b"", **options)


def test_a_process_that_has_begun_cannot_begin_with_a_state(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        await a.multicast("a", b"x")
        await a.close()
        with pytest.raises(LocalProtocolError, match="has begun without a state"):
            await make("a", where, tmp_path, state_from="b").start()

    run(scenario())


def test_everybody_are_those_who_are_members_when_it_is_sent(tmp_path):
    """A multicast waits for room, and somebody joins meanwhile."""

    async def scenario():
        where = addresses("a", "b", "c")
        limits = {"outbox": 1000, "linger": 0.1}
        a = make("a", {"a": where["a"], "b": where["b"]}, tmp_path, limits)
        await a.start()
        await a.multicast("b", b"x" * 2000)
        waiting = asyncio.create_task(a.multicast("*", b"to all"))
        members = await a.join("c", where["c"])
        b = make("b", {"a": where["a"], "b": where["b"]}, tmp_path)
        c = make("c", where, tmp_path, members=members)
        await asyncio.gather(b.start(), c.start())
        name = await waiting
        assert await take(c, 1) == [name] == await take(a, 1) and (await take(b, 2))[1] == name
        await a.expel("b")
        assert await a.multicast("*", b"to the others") == "a:3"
        assert await take(c, 1) == ["a:3"]
        await asyncio.gather(a.close(), b.close(), c.close())

    run(scenario())
