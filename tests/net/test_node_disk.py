"""A node whose disk fills up, or whose journal was damaged: a clear error, and nothing confirmed is lost."""

import asyncio
import sqlite3
import subprocess

import pytest
from test_node import addresses, crash, make, run, take

from happened.net import JournalError, NodeClosed
from happened.net.journal import FORMAT


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(
            f"did not run: this machine does not let us mount a small tmpfs: {mounted.stderr.strip()}"
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_node_and_loses_nothing_confirmed(small_disk, tmp_path):
    async def scenario():
        where = addresses("a", "b")
        limits = {"compaction": 100 << 20}  # never
        a = make("a", where, limits=limits, journal=small_disk / "a.journal")
        b = make("b", where, tmp_path)
        await a.start()
        await b.start()
        confirmed = []
        with pytest.raises(NodeClosed, match="the disk is full"):
            while True:
                confirmed.append(await a.multicast(["b"], b"x" * 10_000))
        assert isinstance(a.failure, JournalError) and len(confirmed) > 10
        with pytest.raises(NodeClosed, match="disk is full"):
            await a.multicast(["b"], b"more")
        with pytest.raises(NodeClosed, match="disk is full"):
            await anext(a)
        await a.close()

        # Room is made: the journal goes to a larger disk, and the node goes on where it stopped. What was
        # confirmed and had not left when the disk was full leaves now.
        for file in small_disk.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        a = make("a", where, tmp_path)
        await a.start()
        assert a.sent == len(confirmed)
        await a.multicast(["b"], b"again")
        assert await take(b, len(confirmed) + 1) == [*confirmed, f"a:{len(confirmed) + 1}"]
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_damaged_journal_does_not_start(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path, {"compaction": 100 << 20})
        await a.start()
        for _ in range(200):
            await a.multicast(["b"], b"x" * 1000)
        await crash(a)
        path = tmp_path / "a.journal"
        data = bytearray(path.read_bytes())
        assert len(data) > 100_000
        middle = len(data) // 2
        data[middle : middle + 64] = bytes(64)
        path.write_bytes(data)
        with pytest.raises(JournalError, match="is damaged"):
            await make("a", where, tmp_path).start()

    run(scenario())


def test_a_journal_of_a_newer_version_does_not_start(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        await a.close()
        with sqlite3.connect(tmp_path / "a.journal") as db:
            db.execute(f"PRAGMA user_version = {FORMAT + 7}")
        db.close()
        with pytest.raises(JournalError, match="by another happened"):
            await make("a", where, tmp_path).start()

    run(scenario())


def test_a_trace_that_cannot_go_on_is_refused(tmp_path):
    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path)
        await a.start()
        await a.multicast(["b"], b"not traced")
        await a.close()
        with pytest.raises(Exception, match="its journal begins after event 1"):
            await make("a", where, tmp_path, trace=tmp_path / "trace").start()
        await (a := make("a", where, tmp_path)).start()
        await a.close()

    run(scenario())
