"""A node from its start to its end: who closes it, how often, and what a start that fails leaves behind."""

import asyncio

import pytest
from in_hand import InHand, carry, make_node

from happened.core.errors import LocalProtocolError
from happened.net import Limits, NodeClosed, NodeError


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 30))


def state(node):
    return node.stats()["state"]


def test_a_node_is_started_once_and_closed_as_often_as_one_likes():
    async def scenario():
        node = make_node("a", ["a", "b"])
        await node.start()
        assert state(node) == "running"
        with pytest.raises(LocalProtocolError, match="started once"):
            await node.start()
        await node.close()
        await node.close()
        assert state(node) == "closed" and node.failure is None
        with pytest.raises(LocalProtocolError, match="started once"):
            await node.start()
        with pytest.raises(NodeClosed, match="'a' is closed"):
            await node.multicast(["b"], b"too late")

    run(scenario())


def test_a_node_that_was_never_started_is_closed_and_stays_so():
    async def scenario():
        node = make_node("a", ["a", "b"])
        with pytest.raises(NodeClosed, match="'a' is not started"):
            await node.multicast(["b"], b"too early")
        await node.close()
        await node.close()
        with pytest.raises(LocalProtocolError, match="started once"):
            await node.start()

    run(scenario())


def test_who_closes_a_closing_node_waits_until_it_has_ended(tmp_path):
    async def scenario():
        limits = Limits(linger=20)
        a = make_node("a", ["a", "b"], limits=limits)
        b = make_node("b", ["a", "b"], limits=limits)
        await a.start()
        await b.start()
        await a.multicast(["b"], b"wait for it")
        await asyncio.sleep(0)
        closing = [asyncio.create_task(a.close()) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert state(a) == "closing" and not any(task.done() for task in closing)
        carry(a, b)
        await asyncio.sleep(0)
        carry(a, b)  # which brings the acknowledgement back
        await asyncio.gather(*closing)
        assert state(a) == "closed" and b.delivered == 1
        await b.close()

    run(scenario())


def test_closing_that_is_cancelled_ends_the_node_all_the_same(tmp_path):
    async def scenario():
        node = make_node("a", ["a", "b"], limits=Limits(linger=20))
        await node.start()
        await node.multicast(["b"], b"nobody is there")
        closing = asyncio.create_task(node.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await node.close()
        assert state(node) == "closed"

    run(scenario())


class Unreachable(InHand):
    async def start(self, host):
        raise NodeError("nobody can reach us")


def test_a_start_that_fails_leaves_a_closed_node_and_a_free_journal(tmp_path):
    async def scenario():
        node = make_node("a", ["a", "b"], journal=tmp_path / "a.journal", transport=Unreachable())
        with pytest.raises(NodeError, match="nobody can reach us"):
            await node.start()
        assert state(node) == "closed"
        await node.close()
        async with make_node("a", ["a", "b"], journal=tmp_path / "a.journal") as again:
            await again.multicast(["b"], b"x")

    run(scenario())


def test_options_that_no_protocol_has_leave_no_journal_behind(tmp_path):
    """Otherwise the journal would be that of a node with those options, and refuse the right ones."""

    async def scenario():
        journal = tmp_path / "a.journal"
        wrong = make_node("a", ["a", "b"], journal=journal, options={"speed": 11})
        with pytest.raises(LocalProtocolError, match="has no option 'speed'"):
            await wrong.start()
        assert not journal.exists()
        async with make_node("a", ["a", "b"], journal=journal):
            pass

    run(scenario())
