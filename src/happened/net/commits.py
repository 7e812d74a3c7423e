"""Group commit: an engine's inputs become durable in batches; only then may anybody see their effects.

Assumes    all methods run on the event loop's thread, and `recover` has returned before any other is called.
Promises   at most one batch is being written to the journal; inputs that come meanwhile are the next batch.
           `committed` is called for each batch once it is durable, in order; after `stop` it is never called.
           Without a journal a batch counts as durable when it is cut. Rows of the trace are kept before
           anybody sees their batch, and written before the journal forgets the inputs they are made from.
Bounds     the journal holds `compaction` bytes of inputs beyond twice its last snapshot, and one batch more.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from .batch import Batch
from .engine import Engine
from .errors import JournalError, NodeError
from .journal import MAX_SNAPSHOT, Journal

if TYPE_CHECKING:
    from .trace_recorder import TraceRecorder

log = logging.getLogger("happened.node")


class Commits:
    """The batches of one engine.

    committed   is called with each batch that is durable
    failed      is called with the reason why no batch can become durable any more; it calls `stop`
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal | None,
        recorder: "TraceRecorder | None",
        *,
        compaction: int,
        committed: Callable[[Batch], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._engine, self._journal, self._recorder = engine, journal, recorder
        self._compaction, self._committed, self._failed = compaction, committed, failed
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"journal-{engine.name}")
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._is_stopped = False
        self.is_under_way = False  # a batch is being written to the journal
        self._cut = 0  # batches cut so far
        self.count = 0  # batches durable since the start
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._snapshot_bytes = 0

    async def recover(self) -> None:
        """Replay the journal, so that the engine and the trace are where the last batch left them. The replay
        runs in the journal's thread: the event loop goes on, and nobody else may use the engine meanwhile.

        Raises JournalError if the journal cannot be replayed, NodeError if the trace is another journal's.
        """
        await self._loop.run_in_executor(self._pool, self._recover)

    def _recover(self) -> None:
        journal, recorder = self._journal, self._recorder
        if journal is None:
            if recorder is not None and recorder.written:
                raise NodeError(
                    f"{recorder.directory} has a trace of {self._engine.name!r}; "
                    "without a journal it cannot go on"
                )
            return
        try:
            self._replay(journal)
        except (ValueError, KeyError, RemoteProtocolError, LocalProtocolError) as error:
            raise JournalError(
                f"{journal.path}: cannot be replayed ({error}); was it written by another version?"
            ) from error
        if recorder is not None and recorder.written > self._engine.events:
            raise NodeError(
                f"{recorder.directory} has {recorder.written} events of {self._engine.name!r} and "
                f"{journal.path} knows of {self._engine.events}: it is an old copy or a new journal. "
                "Restore the newest, or give another directory"
            )

    def _replay(self, journal: Journal) -> None:
        engine, recorder = self._engine, self._recorder
        state = journal.snapshot()
        if state is not None:
            engine.restore(state)
            self._snapshot_bytes = len(state)
        if recorder is not None:
            recorder.continues(engine.events)
        with journal.parking_again(engine.links.on_disk()) as park:
            for when, entries in journal.batches():
                batch = engine.replay(entries, when)
                if batch.parking is not None:
                    park(batch.parking)
                if recorder is not None:
                    recorder.keep(recorder.cut())

    # What a node calls.

    def stamp(self) -> None:
        """Set the time of the inputs that follow. The journal keeps one time per batch, that of its last
        input: rows of a trace that `recover` makes again have that time, the others their own."""
        if self._recorder is not None or not self._engine.is_dirty:
            self._engine.time = time.time_ns()

    def schedule(self) -> None:
        """Commit soon: when this turn of the event loop ends, or when the batch being written is durable."""
        if not self._is_scheduled and not self.is_under_way:
            self._is_scheduled = True
            self._loop.call_soon(self._commit)

    async def settled(self) -> None:
        """Wait until every input so far is durable; raises the error of `stop` if that will never be."""
        if self.count == self._cut and not self._engine.is_dirty:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self._cut + self._engine.is_dirty, waiter))
        await waiter

    def read_parked(self, link: int, after: int, most_bytes: int) -> "asyncio.Future[list[bytes]]":
        """Read frames that are only on disk (`Journal.parked`), in the journal's thread."""
        assert self._journal is not None
        return self._loop.run_in_executor(self._pool, self._journal.parked, link, after, most_bytes)

    async def save(self) -> None:
        """Write a last snapshot, so that the next start has nothing to replay. Call when `settled`."""
        if self._journal is None:
            return
        parts = self._engine.snapshot_parts()
        if sum(map(len, parts)) > MAX_SNAPSHOT:
            return
        run = self._loop.run_in_executor
        after = await run(self._pool, self._journal.append, time.time_ns(), b"", parts)
        if self._recorder is not None:
            self._recorder.flush()
        await run(self._pool, self._journal.forget, after)

    def stop(self, error: Callable[[], BaseException]) -> None:
        """Commit nothing more; each waiter gets an error of its own, made by `error`."""
        self._is_stopped = True
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error())
                waiter.exception()  # perhaps nobody awaits this future

    def close(self) -> None:
        """Write the rows of the trace that are kept, and close the files; problems are only logged."""
        self._pool.shutdown(wait=True)
        try:
            if self._recorder is not None:
                self._recorder.flush()
        except NodeError as error:
            log.error("trace not written", extra={"node": self._engine.name, "error": str(error)})
        try:
            if self._journal is not None:
                self._journal.close()
        except JournalError as error:
            log.error("journal not closed", extra={"node": self._engine.name, "error": str(error)})

    # Steps of one batch.

    def _commit(self) -> None:
        self._is_scheduled = False
        if self.is_under_way or self._is_stopped or not self._engine.is_dirty:
            return
        batch = self._engine.cut()
        rows = self._recorder.cut() if self._recorder is not None else []
        self._cut += 1
        journal = self._journal
        if journal is None:
            self._show(batch, rows)
            return
        parts = None
        if journal.bytes > self._compaction + 2 * self._snapshot_bytes:
            parts = self._engine.snapshot_parts()
            self._snapshot_bytes = sum(map(len, parts))
            if self._snapshot_bytes > MAX_SNAPSHOT:
                parts = None  # too large for one row of the journal: later
        self.is_under_way = True
        future = self._loop.run_in_executor(
            self._pool, journal.append, batch.time, batch.entries, parts, batch.parking
        )
        future.add_done_callback(partial(self._appended, batch, rows, journal, parts is not None))

    def _appended(
        self,
        batch: Batch,
        rows: list[dict[str, Any]],
        journal: Journal,
        is_snapshot: bool,
        done: "asyncio.Future[int]",
    ) -> None:
        self.is_under_way = False
        error = done.exception()
        if self._is_stopped:
            return
        if error is not None:
            self._failed(error)
            return
        self._show(batch, rows)
        if self._is_stopped:
            return
        if is_snapshot:
            # Drop the journal's batches up to this snapshot, once the trace has the rows of all before it.
            try:
                if self._recorder is not None:
                    self._recorder.flush()
            except NodeError as unwritten:
                self._failed(unwritten)
                return
            self.is_under_way = True
            future = self._loop.run_in_executor(self._pool, journal.forget, done.result())
            future.add_done_callback(self._compacted)
        elif self._engine.is_dirty:
            self._commit()

    def _compacted(self, done: "asyncio.Future[None]") -> None:
        self.is_under_way = False
        error = done.exception()
        if error is not None and not self._is_stopped:
            self._failed(error)
        elif self._engine.is_dirty:
            self._commit()

    def _show(self, batch: Batch, rows: list[dict[str, Any]]) -> None:
        """Report that a batch is durable, and keep its rows of the trace."""
        self.count += 1
        self._engine.release(batch)
        try:
            if self._recorder is not None:
                self._recorder.keep(rows)
        except NodeError as error:  # the journal has the inputs: the next start makes the rows again
            self._failed(error)
            return
        self._committed(batch)
        while self._waiters and self._waiters[0][0] <= self.count:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
