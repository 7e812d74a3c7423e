"""A journal has one owner: not its children, not a second node, and only while the file is there."""

import asyncio
import contextlib
import os
import shutil
import stat
import subprocess
import sys
from itertools import pairwise

import pytest
from test_node import addresses, make, run, take, until

from happened.net import JournalError, NodeClosed
from happened.net.journal import Identity, Journal

ALICE = Identity("alice", "ks", "{}", ("alice", "bob"))

SECOND = (
    "import sys; from pathlib import Path; from happened.net.journal import Journal\n"
    "try: Journal(Path(sys.argv[1]))\n"
    "except Exception as error: print(error); sys.exit(7)"
)


def opened(path):
    journal = Journal(path)
    journal.open(ALICE)
    return journal


def second_process(path):
    return subprocess.run(
        [sys.executable, "-c", SECOND, str(path)], capture_output=True, text=True, timeout=60, check=False
    )


FORKS = """
import os, signal, sys
from pathlib import Path
from happened.net.errors import JournalError
from happened.net.journal import Identity, Journal

journal = Journal(Path(sys.argv[1]))
journal.open(Identity("alice", "ks", "{}", ("alice", "bob")))
for number in range(50):
    journal.append(number, b"confirmed")
if (child := os.fork()) == 0:
    for act in (lambda: journal.append(50, b"a child's"), lambda: journal.forget(1)):
        try:
            act()
        except JournalError as error:
            print(error, flush=True)
    if sys.argv[2] == "closes":
        journal.close()
    sys.exit()
print(os.waitpid(child, 0)[1], flush=True)
journal.append(50, b"confirmed")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["closes", "just ends"])
def test_a_child_writes_nothing_and_its_end_changes_nothing(tmp_path, end):
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "j"), end], capture_output=True, text=True, timeout=60
    )
    *refused, status = done.stdout.splitlines()
    assert (done.returncode, status, done.stderr) == (-9, "0", "")
    assert len(refused) == 2
    assert all("which forked this one; a child needs a node" in each for each in refused)
    survivor = opened(tmp_path / "j")
    assert survivor.snapshot() is None
    assert [entries for _, entries in survivor.batches()] == [b"confirmed"] * 51
    survivor.close()


def test_a_child_that_outlives_its_parent_does_not_keep_the_journal(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from happened.net.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1]))\n"
        "if os.fork() == 0: print('child', flush=True); sys.stdin.read(); os._exit(0)\n"
        "os._exit(0)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "j")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout.readline() == b"child\n" and parent.wait(30) == 0
    opened(tmp_path / "j").close()
    parent.stdin.close()
    parent.stdout.close()


def test_a_copy_made_by_the_owner_lets_nobody_else_in(tmp_path):
    journal = opened(tmp_path / "j")
    shutil.copy(tmp_path / "j", tmp_path / "copy")  # closes a descriptor of j, and with it SQLite's lock
    (tmp_path / "link").symlink_to(tmp_path / "j")
    for path in (tmp_path / "j", tmp_path / "link"):
        refused = second_process(path)
        assert refused.returncode == 7
        assert f"in use by another process, {os.getpid()}: every node needs a name" in refused.stdout
        with pytest.raises(JournalError, match="in use by another process"):
            Journal(path)
    journal.close()
    opened(tmp_path / "j").close()


@pytest.mark.parametrize("file", ["a.journal", "a.journal-wal"])
@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_a_node_whose_journal_is_gone_stops_at_the_next_commit(tmp_path, file, replaced):
    async def scenario():
        where = addresses("a", "b")
        a, b = make("a", where, tmp_path), make("b", where, tmp_path)
        await asyncio.gather(a.start(), b.start())
        await a.multicast(["b"], b"kept")
        assert len(await take(b, 1)) == 1
        await until(lambda: not a.stats()["peers"]["b"]["outbox_frames"])
        await a.flush()
        (tmp_path / file).rename(tmp_path / "elsewhere")
        if replaced:
            shutil.copy(tmp_path / "elsewhere", tmp_path / file)
        with pytest.raises(NodeClosed, match=f"{file}: was removed or replaced while the node was running"):
            await a.multicast(["b"], b"not confirmed")
        assert isinstance(a.failure, JournalError)
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_journals_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        journal = opened(tmp_path / "j")
        journal.append(1, b"one")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert modes == {"j": 0o600, "j-wal": 0o600, "j.lock": 0o600}
        journal.close()
        (tmp_path / "j").chmod(0o644)
        opened(tmp_path / "j").close()
        assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_file_shrinks_after_compaction(tmp_path):
    journal = opened(tmp_path / "j")
    for _ in range(200):
        journal.append(1, b"x" * 50_000)
    full = sum(file.stat().st_size for file in tmp_path.iterdir())
    journal.forget(journal.append(1, b"", b"state"))
    left = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert full > 10_000_000 and left < 200_000
    journal.close()
    with contextlib.closing(opened(tmp_path / "j")) as again:
        assert again.snapshot() == b"state"


def test_replaying_a_long_journal_lets_the_event_loop_go_on(tmp_path):
    """Ticks of the loop keep coming while thousands of inputs are replayed."""

    async def scenario():
        where = addresses("a", "b")
        a = make("a", where, tmp_path, {"linger": 0.0, "compaction": 1 << 30})
        await a.start()
        for _ in range(6000):
            a.multicast_nowait(["b"], b"x")
        await a.flush()
        a._commits.save = lambda: asyncio.sleep(0)  # ends as kill -9 would: everything is to be replayed
        await a.close()
        ticks, gaps = [asyncio.get_running_loop().time()], []

        async def tick():
            while True:
                await asyncio.sleep(0.001)
                ticks.append(asyncio.get_running_loop().time())

        again, ticking = make("a", where, tmp_path, {"linger": 0.0}), asyncio.create_task(tick())
        await again.start()
        ticking.cancel()
        gaps = [later - earlier for earlier, later in pairwise(ticks)]
        assert again.sent == 6000 and len(ticks) > 3
        assert max(gaps) < (ticks[-1] - ticks[0]) / 2
        await again.close()

    run(scenario())


def test_closing_a_node_in_a_forked_child_leaves_the_links_of_the_parent(tmp_path):
    """The event loop's list of sockets is shared by both."""

    async def scenario():
        where = addresses("a", "b")
        limits = {"heartbeat": 15}
        async with make("a", where, tmp_path, limits) as a, make("b", where, tmp_path, limits) as b:
            name = await a.multicast("b", b"1")
            assert await take(b, 1) == [name]
            if (child := os.fork()) == 0:
                with contextlib.suppress(BaseException):
                    asyncio.run(asyncio.wait_for(a.close(), 2))
                os._exit(0)
            await asyncio.to_thread(os.waitpid, child, 0)
            name = await b.multicast("a", b"2")
            async with asyncio.timeout(5):  # a third of what a link without a sign of life is given
                assert await take(a, 1) == [name]

    run(scenario())
