"""Journals restored from a copy, or too large for one snapshot: nothing is taken for delivered."""

import asyncio
import contextlib
import logging
import shutil
import sqlite3

import pytest
from test_node import addresses, crash, make, run, take, until

from happened.net import NodeClosed
from happened.net.errors import OldJournal


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


def copy(tmp_path, name):
    for file in tmp_path.glob("a.journal*"):
        shutil.copy(file, tmp_path / f"{name}-{file.name}")


def restore(tmp_path, name):
    for file in tmp_path.glob("a.journal*"):
        file.unlink()
    for file in tmp_path.glob(f"{name}-*"):
        shutil.copy(file, tmp_path / file.name.removeprefix(f"{name}-"))


async def confirmed(sender, count, *receivers):
    """Send, and wait until everybody has it and the sender knows."""
    for _ in range(count):
        await sender.multicast([each.name for each in receivers], b"confirmed")
    for each in receivers:
        await take(each, count)
        await until(lambda each=each: not sender.stats()["peers"][each.name]["outbox_frames"])


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed"])
def test_an_old_copy_that_is_started_again_before_its_peer_is_back_stops(tmp_path, clean):
    """At its second start it knows more frames than it has forgotten: numbers show nothing any more."""

    async def scenario():
        where = addresses("a", "b")
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await confirmed(a, 3, b)
        await crash(a)
        copy(tmp_path, "copy")
        a = make("a", where, tmp_path)
        await a.start()
        await confirmed(a, 2, b)
        await asyncio.gather(a.close(), b.close())
        restore(tmp_path, "copy")
        for _ in range(2):
            a = make("a", where, tmp_path)
            await a.start()
            for _ in range(2):
                await a.multicast(["b"], b"under numbers that were used")
            await (a.close() if clean else crash(a))
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await until(lambda: a.failure is not None)
        assert isinstance(a.failure, OldJournal)
        assert "'b' has 5 frames of 'a', the last of a life that its journal does not know" in str(a.failure)
        assert b.failure is None and b.delivered == 5
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_the_newest_journal_stops_after_an_old_copy_has_sent_something_else(tmp_path):
    """c was away, so the copy's frames are the first that it gets under those numbers; the others, which were
    confirmed to the application, would be dropped as duplicates."""

    async def scenario():
        where = addresses("a", "b", "c")
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await confirmed(a, 2, b)
        await crash(a)
        copy(tmp_path, "old")
        a = make("a", where, tmp_path)
        await a.start()
        for _ in range(3):
            await a.multicast(["c"], b"waits for c")
        await asyncio.gather(a.close(), b.close())
        copy(tmp_path, "newest")
        restore(tmp_path, "old")
        a, c = make("a", where, tmp_path), make("c", where, tmp_path)
        await asyncio.gather(a.start(), c.start())
        await confirmed(a, 1, c)
        await a.close()
        restore(tmp_path, "newest")
        a = make("a", where, tmp_path)
        await a.start()
        await until(lambda: a.failure is not None)
        assert "'c' has 1 frames of 'a', the last of a life that its journal does not know" in str(a.failure)
        await asyncio.gather(a.close(), c.close())

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


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a life of its own"])
def test_an_old_copy_that_is_called_before_it_can_call_takes_nothing(tmp_path, again):
    """What it took would be missing in the newest journal, and be gone from its sender."""

    async def scenario():
        where = addresses("a", "b")
        unreachable = where | {"b": "127.0.0.1:1"}
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await confirmed(a, 2, b)
        await crash(a)
        copy(tmp_path, "old")
        a = make("a", where, tmp_path)
        await a.start()
        await confirmed(a, 2, b)
        await crash(a)
        copy(tmp_path, "newest")
        restore(tmp_path, "old")
        await b.multicast(["a"], b"for the newest one")
        if again:
            await b.close()
            a = make("a", where, tmp_path)
            await a.start()
            for _ in range(3):
                await a.multicast(["b"], b"by the old copy")
            await crash(a)
            b = make("b", where, tmp_path)
            await b.start()
        a = make("a", unreachable, tmp_path)
        await a.start()
        await until(lambda: a.failure is not None)
        assert isinstance(a.failure, OldJournal) and a.delivered == 0
        await a.close()
        restore(tmp_path, "newest")
        a = make("a", where, tmp_path)
        await a.start()
        assert await take(a, 1) == ["b:1"]
        await confirmed(a, 1, b)
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
