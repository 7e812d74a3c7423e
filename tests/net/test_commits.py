"""Group commit on a real engine and a real journal: what is durable when, and what a stop leaves behind."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from happened.net import JournalError, NodeError
from happened.net.commits import Commits
from happened.net.engine import Engine
from happened.net.journal import Identity, Journal
from happened.net.trace_recorder import TraceRecorder
from happened.trace import read

MEMBERS = ("a", "b")


class Book:
    """Commits of process a, with what they told: batches that are durable, and failures."""

    def __init__(self, path=None, trace=None, compaction=1 << 20, max_pages=None):
        self.engine = Engine("a", MEMBERS, "ks", journaled=path is not None)
        self.journal = self.recorder = None
        if path is not None:
            self.journal = Journal(path, flush=False, max_pages=max_pages)
            self.journal.open(Identity("a", "ks", "{}", MEMBERS))
        if trace is not None:
            self.recorder = TraceRecorder(trace, "a", self.engine.members, "")
            self.engine.recorder = self.recorder
        self.batches, self.failures = [], []
        self.commits = Commits(
            self.engine,
            self.journal,
            self.recorder,
            compaction=compaction,
            committed=self.batches.append,
            failed=self.fail,
        )

    def fail(self, error):
        self.failures.append(error)
        self.commits.stop(lambda: NodeError("stopped"))

    def send(self, payload=b"x"):
        self.commits.stamp()
        self.engine.multicast([0, 1], payload)
        self.commits.schedule()

    def hold_appends(self):
        """Let no batch reach the journal until the event is set."""
        opened, append = threading.Event(), self.journal.append

        def when_opened(*batch):
            assert opened.wait(30)
            return append(*batch)

        self.journal.append = when_opened
        return opened


@asynccontextmanager
async def opened(*arguments, **options):
    book = Book(*arguments, **options)
    try:
        await book.commits.recover()
        yield book
    finally:
        book.commits.close()


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_inputs_of_one_turn_are_one_batch_and_are_seen_once_it_is_durable(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal") as book:
            for _ in range(5):
                book.send()
            assert not book.batches and book.engine.outboxes[1].released == 0
            await book.commits.settled()
            (batch,) = book.batches
            assert [each.number for each in batch.deliveries] == [1, 2, 3, 4, 5]
            assert batch.released_through == {1: 5} and book.engine.outboxes[1].released == 5
            assert book.commits.count == 1 and not book.commits.is_under_way

    run(scenario())


def test_what_comes_while_a_batch_is_under_way_is_the_next_one(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal") as book:
            gate = book.hold_appends()
            book.send()
            await asyncio.sleep(0.05)
            assert book.commits.is_under_way
            for _ in range(3):
                book.send()
            first = asyncio.create_task(book.commits.settled())
            await asyncio.sleep(0.05)
            assert not first.done() and not book.batches
            gate.set()
            await first
            assert [len(batch.deliveries) for batch in book.batches] == [1, 3]

    run(scenario())


def test_nothing_to_wait_for_is_settled_at_once():
    async def scenario():
        async with opened() as book:
            await asyncio.wait_for(book.commits.settled(), 1)
            book.send()
            await book.commits.settled()  # without a journal a batch is durable when it is cut
            assert len(book.batches) == book.commits.count == 1

    run(scenario())


@pytest.mark.parametrize("saved", [False, True], ids=["killed", "saved"])
def test_recovering_gives_back_what_was_durable(tmp_path, saved):
    async def scenario():
        async with opened(tmp_path / "journal") as book:
            for number in range(7):
                book.send(b"%d" % number)
                await book.commits.settled()
            if saved:
                await book.commits.save()
            state, begun_with = book.engine.snapshot(), book.journal.bytes
        assert (begun_with == 0) is saved  # nothing is left to replay
        async with opened(tmp_path / "journal") as again:
            assert again.engine.snapshot() == state
            again.send()
            await again.commits.settled()
            assert again.engine.sent == 8

    run(scenario())


def test_the_journal_is_compacted_and_goes_on(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal", compaction=2000) as book:
            longest = 0
            for _ in range(200):
                book.send(b"x" * 100)
                book.engine.acknowledge(book.engine.delivered)
                await book.commits.settled()
                book.engine.free(1, book.engine.outboxes[1].released)
                longest = max(longest, book.journal.bytes)
            assert longest < 8000 < 200 * 100
            state = (await settled_state(book)).hex()
        async with opened(tmp_path / "journal", compaction=2000) as again:
            assert again.engine.snapshot().hex() == state

    async def settled_state(book):
        book.commits.schedule()
        await book.commits.settled()
        return book.engine.snapshot()

    run(scenario())


def test_a_full_disk_fails_once_and_everybody_who_waits_is_told(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal", max_pages=20) as book:
            book.send(b"x" * 500_000)
            waiting = [asyncio.create_task(book.commits.settled()) for _ in range(2)]
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [str(error) for error in results] == ["stopped", "stopped"]
            assert results[0] is not results[1]
            (failure,) = book.failures
            assert isinstance(failure, JournalError) and "the disk is full" in str(failure)
            assert not book.batches and book.engine.outboxes[1].released == 0

    run(scenario())


def test_after_a_stop_nothing_is_shown_not_even_what_the_journal_still_took(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal") as book:
            gate = book.hold_appends()
            book.send()
            await asyncio.sleep(0.05)
            book.commits.stop(lambda: NodeError("stopped"))
            gate.set()
            book.send()
            await asyncio.sleep(0.1)
            assert not book.batches and not book.failures and book.engine.outboxes[1].released == 0
        async with opened(tmp_path / "journal") as again:
            assert again.engine.sent == 1  # it was durable, and comes back

    run(scenario())


def test_rows_of_the_trace_follow_their_batch_and_are_made_again_from_the_journal(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal", tmp_path / "trace") as book:
            gate = book.hold_appends()
            book.send()
            await asyncio.sleep(0.05)
            book.recorder.flush()
            assert not list((tmp_path / "trace").glob("*.parquet"))  # not durable, not in the trace
            gate.set()
            await book.commits.settled()
            book.recorder.flush = lambda: None  # killed before the rows were written
        async with opened(tmp_path / "journal", tmp_path / "trace") as again:
            assert again.engine.events == 3
        rows = read(tmp_path / "trace").to_pylist()
        assert [(row["seq"], row["kind"]) for row in rows] == [(1, "send"), (2, "receive"), (3, "deliver")]

    run(scenario())


def test_a_trace_of_another_journal_is_refused(tmp_path):
    async def scenario():
        async with opened(tmp_path / "journal", tmp_path / "trace") as book:
            book.send()
            await book.commits.settled()
        for path, why in (
            (tmp_path / "new", "it is an old copy or a new journal"),
            (None, "without a journal"),
        ):
            with pytest.raises(NodeError, match=why):
                async with opened(path, tmp_path / "trace"):
                    pass

    run(scenario())


def test_entries_that_no_engine_made_are_refused_with_the_file(tmp_path):
    async def scenario():
        journal = Journal(tmp_path / "journal", flush=False)
        journal.open(Identity("a", "ks", "{}", MEMBERS))
        journal.append(0, b"\x63" + bytes(12))
        journal.close()
        with pytest.raises(JournalError, match=r"journal: cannot be replayed \(no input is of kind 99\)"):
            async with opened(tmp_path / "journal"):
                pass

    run(scenario())
