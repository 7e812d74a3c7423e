"""Journals restored from a copy, or too large for one snapshot: nothing is taken for delivered."""

import asyncio
import contextlib
import logging
import shutil
import sqlite3

import pytest
from test_node import addresses, crash, make, run, take, until

from happened.net import NodeClosed


@pytest.mark.parametrize("clean", [False, True], ids=["a copy after a crash", "a copy after a clean end"])
def test_an_old_copy_that_sends_before_it_connects_stops(tmp_path, caplog, clean):
    """It has numbered as many frames since its start as it has forgotten: the peer's number alone could be
    that of the new ones."""

    async def scenario():
        where = addresses("a", "b")
        b = make("b", where, tmp_path)
        await b.start()
        for round_, count in enumerate((3, 2)):
            a = make("a", where, tmp_path)
            await a.start()
            for _ in range(count):
                await a.multicast(["b"], b"%d" % round_)
            await take(b, count)
            await until(lambda a=a: not a.stats()["peers"]["b"]["outbox_frames"])
            await (a.close() if clean else crash(a))
            if round_ == 0:
                for file in tmp_path.glob("a.journal*"):
                    shutil.copy(file, tmp_path / f"copy-{file.name}")
        for file in tmp_path.glob("a.journal*"):
            file.unlink()
        for copy in tmp_path.glob("copy-*"):
            shutil.copy(copy, tmp_path / copy.name.removeprefix("copy-"))
        a = make("a", where, tmp_path)
        await a.start()
        for number in range(4):
            a.multicast_nowait(["b"], b"again %d" % number)
        with contextlib.suppress(NodeClosed):  # it may have met b by now
            await a.flush()
        await until(lambda: a.failure is not None)
        assert "'b' has 5 frames of 'a', whose journal knows 3: it is an old copy" in str(a.failure)
        assert b.receive_nowait() is None and b.delivered == 5
        await asyncio.gather(a.close(), b.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_an_old_copy_that_only_receives_stops(tmp_path):
    """It confirmed to have frames that its journal does not know: its peer says so in the hello."""

    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        for round_, count in enumerate((3, 2)):
            b = make("b", where, tmp_path)
            await b.start()
            for _ in range(count):
                await a.multicast(["b"], b"%d" % round_)
            await take(b, count)
            await until(lambda: not a.stats()["peers"]["b"]["outbox_frames"])
            await b.close()
            if round_ == 0:
                copy = (tmp_path / "b.journal").read_bytes()
        (tmp_path / "b.journal").write_bytes(copy)
        b = make("b", where, tmp_path)
        await b.start()
        await until(lambda: b.failure is not None)
        assert "'b' had 5 frames of 'a', and its journal knows 3: it is an old copy" in str(b.failure)
        assert a.failure is None
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_snapshot_that_is_too_large_waits_and_the_node_goes_on(tmp_path, monkeypatch):
    """The database takes a million bytes in a row here; what is on its way to b is three times that."""
    monkeypatch.setattr("happened.net.commits.MAX_SNAPSHOT", 900_000)

    async def scenario():
        where = addresses("a", "b")

        async def start():
            node = make("a", where, tmp_path, {"compaction": 200_000, "outbox": 5_000_000})
            await node.start()
            node._journal._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
            return node

        a = await start()
        names = [await a.multicast(["b"], b"x" * 50_000) for _ in range(60)]
        assert a.stats()["journal_bytes"] > 2_000_000  # the last snapshot was an early one
        await a.close()
        assert a.failure is None
        a, b = await start(), make("b", where, tmp_path)
        assert a.sent == 60
        await b.start()
        assert await take(b, 60) == names
        await until(lambda: not a.stats()["peers"]["b"]["outbox_frames"])
        for _ in range(100):  # what waited is gone: now a snapshot fits, and the journal is short again
            await a.multicast(["b"], b"x" * 50_000)
            await take(b, 1)
        assert a.stats()["journal_bytes"] < 2_000_000
        await asyncio.gather(a.close(), b.close())
        assert a.failure is None

    run(scenario())
