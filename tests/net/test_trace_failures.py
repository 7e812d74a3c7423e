"""A trace that cannot be written, or is another journal's: the node says so, and no event is lost."""

import asyncio
import shutil

import pytest
from test_node import addresses, crash, make, run, take

from happened.causality import check_delivery, check_order
from happened.net import NodeClosed, NodeError
from happened.trace import read


def break_(folder):
    """Nothing can be written to it, not even by root."""
    folder.rename(folder.with_name("away"))
    folder.write_text("")


def repair(folder):
    folder.unlink()
    folder.with_name("away").rename(folder)


def test_a_trace_that_cannot_be_written_stops_the_node_and_is_made_again(tmp_path):
    async def scenario():
        where, trace = addresses("a", "b"), tmp_path / "trace"
        limits = {"compaction": 20_000}
        a, b = (make(name, where, tmp_path, limits, trace=trace, flush=False) for name in "ab")
        await a.start()
        for _ in range(300):
            await a.multicast(["b"], b"x" * 100)
        assert list(trace.glob("a@*"))  # a part was written
        break_(trace)
        confirmed = 300
        with pytest.raises(NodeClosed, match="trace cannot be written"):
            for _ in range(5000):
                await a.multicast(["b"], b"x" * 100)
                confirmed += 1
        assert isinstance(a.failure, NodeError) and "make room and start the node again" in str(a.failure)
        await asyncio.wait_for(a.close(), 30)
        with pytest.raises(NodeError, match="cannot hold the trace of 'a'"):
            await make("a", where, tmp_path, limits, trace=trace).start()
        repair(trace)
        a = make("a", where, tmp_path, limits, trace=trace)
        await a.start()
        assert a.sent >= confirmed
        await b.start()
        await a.multicast(["b"], b"last")
        assert await take(b, a.sent) == [f"a:{clock}" for clock in range(1, a.sent + 1)]
        await asyncio.gather(a.close(), b.close())
        rows = read(trace)
        assert [row["seq"] for row in rows.to_pylist() if row["process"] == "a"] == list(range(1, a.sent + 1))
        found = check_delivery(rows)
        assert (found.messages, found.deliveries, found.lost) == (a.sent, a.sent, 0)
        assert check_order(rows, "causal").holds

    run(scenario())


def test_a_trace_that_cannot_be_written_at_the_end_is_made_again(tmp_path):
    async def scenario():
        where, trace = addresses("a", "b"), tmp_path / "trace"
        a = make("a", where, tmp_path, trace=trace)
        await a.start()
        for _ in range(10):
            await a.multicast(["b"], b"x")
        break_(trace)
        await asyncio.wait_for(a.close(), 30)
        assert "trace cannot be written" in str(a.failure)
        repair(trace)
        async with make("a", where, tmp_path, trace=trace) as a:
            assert a.sent == 10
        assert check_delivery(read(trace)).messages == 10

    run(scenario())


@pytest.mark.parametrize("which", ["new", "old"])
@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean end"])
def test_another_journal_does_not_go_on_with_a_trace(tmp_path, which, clean):
    async def scenario():
        where, trace = addresses("a", "b"), tmp_path / "trace"

        async def send(count, ends):
            a = make("a", where, tmp_path, trace=trace)
            await a.start()
            for _ in range(count):
                await a.multicast(["b"], b"x")
            await ends(a)

        async def ends(node):
            await (node.close() if clean else crash(node))

        await send(3, ends)
        if which == "old":
            for file in tmp_path.glob("a.journal*"):
                shutil.copy(file, tmp_path / f"copy-{file.name}")
        await send(2, lambda node: node.close())
        before = read(trace).to_pylist()
        for file in tmp_path.glob("a.journal*"):
            file.unlink()
        for copy in tmp_path.glob("copy-*"):
            shutil.copy(copy, tmp_path / copy.name.removeprefix("copy-"))
        knows = 0 if which == "new" else 3
        with pytest.raises(
            NodeError, match=f"has 5 events of 'a' and .* knows of {knows}: .* old copy or a new"
        ):
            await send(8, ends)
        assert read(trace).to_pylist() == before and len(before) == 5
        async with make("a", where, tmp_path, trace=tmp_path / "elsewhere" if which == "new" else None):
            pass  # the journal is not held any more

    run(scenario())
