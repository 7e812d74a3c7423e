"""The network for users' own tests: nothing is lost, doubled or misordered, whatever breaks on it."""

import asyncio
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from happened import check
from happened.core.errors import LocalProtocolError
from happened.testing import MemoryNetwork

pytest_plugins = ["happened.testing.fixtures"]


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 60))


async def take(node, count):
    return [(await asyncio.wait_for(anext(node), 30)).name for _ in range(count)]


@pytest.mark.parametrize("protocol", ["ks", "sequencer", "agreed", "cbcast"])
def test_every_message_arrives_once_and_in_order_although_connections_break(seed, tmp_path, protocol):
    names = ("a", "b", "c")
    network = MemoryNetwork(seed, delay=0.004, cuts=0.1, repair=0.005)
    dice = random.Random(seed)

    async def talk(node, count):
        for number in range(count):
            others = [name for name in names if name != node.name]
            await node.multicast(dice.sample(others, dice.randint(1, 2)), b"%d" % number)
            await asyncio.sleep(dice.uniform(0, 0.003))

    async def listen(node, got):
        async for message in node:
            got.append(message.name)
            await message.ack()

    async def scenario():
        got = {name: [] for name in names}
        async with network.nodes(*names, protocol=protocol, trace=tmp_path / "trace") as nodes:
            listening = [asyncio.create_task(listen(node, got[node.name])) for node in nodes]
            await asyncio.gather(*(talk(node, 30) for node in nodes))
            async with asyncio.timeout(30):
                while any(node.stats()["held"] for node in nodes) or any(
                    peer["outbox_frames"] for node in nodes for peer in node.stats()["peers"].values()
                ):
                    await asyncio.sleep(0.01)
        await asyncio.gather(*listening)
        return got

    got = run(scenario())
    assert network.breaks > 10
    assert all(len(of) == len(set(of)) for of in got.values()) and sum(map(len, got.values())) > 90
    judged = check(tmp_path / "trace", "causal" if protocol != "agreed" else "total")
    assert judged.holds and judged.exit_code == 0, judged.sentence


def test_a_cut_holds_until_it_heals(tmp_path):
    async def scenario():
        network = MemoryNetwork(delay=0.001)
        async with network.nodes("a", "b", "c") as (a, b, c):
            network.cut("a", "c")
            await a.multicast(["b", "c"], b"question")
            await take(b, 1)
            await b.multicast(["c"], b"answer")
            async with asyncio.timeout(10):
                while not c.pending():
                    await asyncio.sleep(0.005)
            assert c.pending()[0].waits_for == ("a:1",) and c.receive_nowait() is None
            assert not c.health().problems or "no link to a" in c.health().problems[0]
            network.heal()
            assert await take(c, 2) == ["a:1", "b:1"]

    run(scenario())


def test_a_node_goes_on_with_its_journal_and_two_of_a_name_are_refused(tmp_path):
    async def scenario():
        network = MemoryNetwork(seed=3)
        async with network.nodes("a", "b", journal=None) as (a, b):
            with pytest.raises(LocalProtocolError, match="'a' is on this network already"):
                await network.node("a", ("a", "b")).start()
            assert not b.failure and not a.failure
        network = MemoryNetwork(seed=4)
        names = ("a", "b")
        async with network.node("a", names, journal=tmp_path / "a") as a:
            first = await a.multicast(["b"], b"kept")
        async with (
            network.node("a", names, journal=tmp_path / "a") as a,
            network.node("b", names, journal=tmp_path / "b") as b,
        ):
            assert await take(b, 1) == [first]

    run(scenario())


@pytest.mark.parametrize("memory_network", [{"cuts": 0.2, "seed": 5}], indirect=True)
def test_the_fixture_takes_the_networks_options(memory_network):
    assert (memory_network.cuts, memory_network.dice.random()) == (0.2, random.Random(5).random())
    with pytest.raises(LocalProtocolError, match="a probability below 1"):
        MemoryNetwork(cuts=1.0)


def test_the_example_of_the_guide_runs():
    page = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    example = r"```python\n(import asyncio\nfrom happened.testing.*?)```\n```\n(.*?)```"
    code, told = re.search(example, page, re.S).groups()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, told), done.stderr
