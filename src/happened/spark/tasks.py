"""Runs Python functions as Spark tasks that read and write files themselves, and may shuffle bytes.

    on_tasks         runs work(0) … work(n - 1) and returns the results; on_each: work(*job) for each job
    exchange         runs tasks that send bytes to buckets, then tasks that each settle a bucket
    HERE             runs both in this process instead, one piece of work after another; for use inside a task
    frame_by_tasks   a DataFrame of rows that tasks read
    preflight        checks that executors reach the same directories as the driver, before the work begins

This module uses only the DataFrame API, which Spark Connect has too. Results are pickled and must be small.

Spark may run a task several times, even at once on different machines, so a task must do the same each time.
A task that fails for lack of storage or memory is retried as Spark allows, and then reported in a sentence.
"""

import gc
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..core.errors import CausalityError, TraceFormatError
from ..trace.atomic import whole_file
from ..trace.store import AnyPath, size_of
from .versions import context_of

SECONDS_BETWEEN_LOOKS = 1.0

RESULTS = pa.schema([("key", pa.int64()), ("result", pa.binary())])
EMITTED = pa.schema([("bucket", pa.int64()), ("source", pa.int64()), ("blob", pa.binary())])


class TraceFault(NamedTuple):
    """A task found something wrong with the trace; running it again would not help."""

    reason: str


class Trouble(NamedTuple):
    """A task could not be done, though the trace may be sound: the whole job fails."""

    reason: str


class InProcess:
    """Runs work in this process; see HERE."""


HERE = InProcess()
Runner = SparkSession | InProcess
"""Where `on_tasks` and `exchange` run their work."""


class Emitted(NamedTuple):
    """The result of an emitting task, and the bytes that it sends to buckets."""

    result: Any
    blobs: Iterable[tuple[int, bytes]]


def on_tasks(
    spark: Runner, count: int, work: Callable[[int], Any], tell: Callable[[int], object] | None = None
) -> list[Any]:
    """Run work(0), …, work(count - 1) as Spark tasks and return their results, which must be small.

    If a task finds an error in the trace, this function raises it. `tell` is called now and then with the
    number of finished tasks.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            yield _result(number, pickle.dumps(_attempt(attempts, work, number)))

    if isinstance(spark, InProcess):
        return raise_faults(_without_trouble([_attempt(1, work, number) for number in range(count)]))
    if not count:
        return []
    attempts = _attempts(spark)
    with _watched(spark, count, tell), _told_of_dead_workers():
        rows = spark.range(0, count, 1, count).mapInArrow(run, "key long, result binary").collect()
    results = [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: row["key"])]
    return raise_faults(_without_trouble(results))


def on_each(spark: Runner, jobs: Sequence[tuple[Any, ...]], work: Callable[..., Any]) -> list[Any]:
    """Run work(*job) for each job, as `on_tasks` does."""
    return on_tasks(spark, len(jobs), lambda number: work(*jobs[number]))


def frame_by_tasks(
    spark: SparkSession, count: int, read: Callable[[int], Iterable[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """The rows of read(0), …, read(count - 1) as a DataFrame; tasks read them when the frame is used."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            yield from read(number)

    return spark.range(0, count, 1, max(count, 1)).mapInArrow(run, schema)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers of the rows of spark.range that this task was given."""
    return chain.from_iterable(batch["id"].to_pylist() for batch in batches)


def raise_faults(results: Sequence[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, TraceFault):
            raise TraceFormatError(result.reason)
    return [*results]


def _without_trouble(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, Trouble):
            raise CausalityError(result.reason)
    return results


def exchange(
    spark: Runner,
    count: int,
    emit: Callable[[int], Emitted],
    partitions: int,
    settle: Callable[[int, list[bytes]], Any],
) -> tuple[list[Any], dict[int, Any]]:
    """Run emit(0) … emit(count - 1), then settle(bucket, blobs) for each bucket, with the bytes objects sent
    to the bucket in the order of the emitting tasks.

    Returns the results of the emitting tasks, and the result of each bucket that received anything; a
    TraceFault as the result of a task that found the trace wrong. Costs a shuffle with a row for each blob.
    """

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers(batches):
            result, blobs = _emitted(attempts, emit, number)
            buckets, contents = zip((-1 - number, pickle.dumps(result)), *blobs, strict=True)
            columns = [pa.array(buckets), pa.repeat(number, len(buckets)), pa.array(contents, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, schema=EMITTED)

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            row for batch in batches for row in zip(batch["bucket"].to_pylist(), batch["blob"], strict=True)
        )
        for bucket, group in groupby(rows, key=lambda row: row[0]):
            blobs = [blob.as_buffer().to_pybytes() for _, blob in group]
            given = blobs[0] if bucket < 0 else pickle.dumps(_attempt(attempts, settle, bucket, blobs))
            yield _result(bucket, given)

    if not count:
        return [], {}
    if isinstance(spark, InProcess):
        return _exchange_here(count, emit, settle)
    attempts = _attempts(spark)
    given = spark.range(0, count, 1, count).mapInArrow(give, "bucket long, source long, blob binary")
    sorted_ = given.repartition(max(partitions, 1), "bucket").sortWithinPartitions("bucket", "source")
    with _told_of_dead_workers():
        rows = sorted_.mapInArrow(take, "key long, result binary").collect()
    found = {row["key"]: pickle.loads(row["result"]) for row in rows}
    _without_trouble([*found.values()])
    return [found[-1 - number] for number in range(count)], {k: v for k, v in found.items() if k >= 0}


def _exchange_here(
    count: int, emit: Callable[[int], Emitted], settle: Callable[[int, list[bytes]], Any]
) -> tuple[list[Any], dict[int, Any]]:
    """Do what `exchange` does in this process; blobs are kept on disk, in one file for each bucket."""
    results: list[Any] = []
    buckets: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="happened-") as folder:
        for number in range(count):
            result, blobs = _emitted(1, emit, number)
            results.append(result)
            for bucket, blob in blobs:
                buckets.add(bucket)
                with open(f"{folder}/{bucket}", "ab") as file:
                    pickle.dump(blob, file)
        settled = {
            bucket: _attempt(1, settle, bucket, _blobs_in(f"{folder}/{bucket}")) for bucket in sorted(buckets)
        }
    _without_trouble([*results, *settled.values()])
    return results, settled


def _blobs_in(path: str) -> list[bytes]:
    blobs = []
    with open(path, "rb") as file:
        while file.peek(1):
            blobs.append(pickle.load(file))
    return blobs


def together(
    batches: Iterable[pa.RecordBatch], most: int, size: Callable[[pa.RecordBatch], int] = len
) -> Iterator[pa.Table]:
    """Concatenate batches to tables of at least `most` rows, or `most` of another measure, `size`."""
    held: list[pa.RecordBatch] = []
    total = 0
    for batch in batches:
        held.append(batch)
        total += size(batch)
        if total >= most:
            yield pa.Table.from_batches(held)
            held, total = [], 0
    if held:
        yield pa.Table.from_batches(held)


def pack_table(table: pa.Table) -> bytes:
    """Serialise a table as bytes, for a shuffle."""
    return bytes(packed_buffer(table))


def packed_buffer(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue()


def as_binary(blob: pa.Buffer) -> pa.Array:
    """An array with the blob as its only value; the bytes are not copied."""
    offsets = pa.array([0, blob.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, blob])


def packed_by_bucket(table: pa.Table, bucket: "np.ndarray[Any, Any]") -> Iterator[tuple[int, bytes]]:
    """Each bucket that has rows, and its rows as bytes."""
    if not table.num_rows:
        return
    first, last = int(bucket.min()), int(bucket.max())
    if first == last:
        yield first, pack_table(table)
        return
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(first, last + 2)).tolist()
    table = table.take(pa.array(order))
    for number, (begin, end) in enumerate(pairwise(ends), first):
        if end > begin:
            yield number, pack_table(table.slice(begin, end - begin))


def unpack_table(data: bytes | pa.Buffer) -> pa.Table:
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run on the driver's machine."""
    return str(spark.conf.get("spark.master", "")).startswith("local")


def _attempts(spark: SparkSession) -> int:
    """How many times Spark tries a task before it fails the job."""
    return 1 if is_local(spark) else int(spark.conf.get("spark.task.maxFailures", "4") or 4)


_modules_spared = 0


def spare_modules() -> None:
    """Exclude everything that this process has imported from garbage collection.

    Spark collects garbage in the worker after every task (pyspark/daemon.py). With numpy, pyarrow and numba
    imported, a collection would take longer than most tasks, and imported modules are never garbage.
    """
    global _modules_spared
    if len(sys.modules) > _modules_spared:
        _modules_spared = len(sys.modules)
        gc.collect()  # so that existing garbage is not excluded
        gc.freeze()


def _emitted(attempts: int, emit: Callable[[int], Emitted], number: int) -> Emitted:
    emitted = _attempt(attempts, emit, number)
    return emitted if isinstance(emitted, Emitted) else Emitted(emitted, ())


def _attempt(attempts: int, work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except TraceFormatError as error:
        return TraceFault(str(error))
    except (CausalityError, MemoryError, OSError) as error:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() + 1 < attempts:
            raise
        return Trouble(_reason(error))
    except pa.ArrowException as error:
        return TraceFault(f"a part of the trace cannot be read: {error}")
    finally:
        spare_modules()


MORE_MEMORY = (
    "give tasks more (fewer at a time: --master 'local[1]', spark.executor.cores; or a larger "
    "spark.executor.memoryOverhead), or less to hold: a smaller --split-rows or --epoch-events"
)


def _reason(error: CausalityError | MemoryError | OSError) -> str:
    if isinstance(error, MemoryError):
        return f"a task lacks memory ({str(error) or 'no more to be had'}); {MORE_MEMORY}"
    if isinstance(error, CausalityError):
        return f"a task failed: {error}"
    return cannot_reach(error.filename or "a file", error.strerror or str(error))


def cannot_reach(path: object, why: str) -> str:
    return (
        f"the executors cannot reach {path}: {why}; give a URL that all of them reach, or a directory that "
        "they share (--work for intermediates)"
    )


@contextmanager
def _told_of_dead_workers() -> Iterator[None]:
    """Translates Spark's error for a Python worker that the system killed."""
    try:
        yield
    except Exception as error:
        if "Python worker exited unexpectedly" not in str(error):
            raise
        raise CausalityError(
            f"a Python worker died, which a system short of memory does to it; {MORE_MEMORY}"
        ) from error


def _result(key: int, pickled: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([key]), pa.array([pickled])], schema=RESULTS)


@contextmanager
def _watched(spark: SparkSession, count: int, tell: Callable[[int], object] | None) -> Iterator[None]:
    """While the `with` body runs `count` tasks, report how many of them are done."""
    if tell is None:
        yield
        return
    context = context_of(spark)
    end = _hear(spark, count, tell) if context is None else _poll(context.statusTracker(), count, tell)
    try:
        yield
    finally:
        end()


def _hear(spark: Any, count: int, tell: Callable[[int], object]) -> Callable[[], object]:
    """Report progress as a Spark Connect server tells it; returns a function that stops this."""

    def hear(stages: Sequence[Any] | None, **_: Any) -> None:
        for stage in stages or ():
            if stage.num_tasks == count:
                tell(stage.num_completed_tasks)

    spark.registerProgressHandler(hear)
    return lambda: spark.removeProgressHandler(hear)


def _poll(tracker: Any, count: int, tell: Callable[[int], object]) -> Callable[[], object]:
    over = threading.Event()

    def look() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks == count:
                    tell(info.numCompletedTasks)

    def end() -> None:
        over.set()
        watcher.join()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    return end


PROBES = 16
"""How many tasks check that files are visible; Spark spreads them over its executors."""

WORD = ".driver"


@dataclass(frozen=True)
class Preflight:
    """The files that tasks look for to check shared directories; none on a local master."""

    word: str = ""
    directories: tuple[AnyPath, ...] = ()
    file: AnyPath | None = None

    def look(self, number: int = 0) -> Trouble | None:
        """Check, in a task, that the directories are reached; returns the Trouble, or None."""
        for directory in self.directories:
            try:
                said = (directory / WORD).read_text()
                probe = directory / f".probe-{number:03d}"
                with whole_file(probe) as path:
                    path.write_text(self.word)
                probe.unlink(missing_ok=True)  # another attempt of this task may have removed it
            except (OSError, CausalityError) as error:
                return Trouble(cannot_reach(directory, _why(error)))
            if said != self.word:
                return Trouble(cannot_reach(directory, "what they have there is another directory"))
        if self.file is not None:
            try:
                size_of(self.file)
                with self.file.open("rb") as file:
                    file.read(4)
            except (OSError, CausalityError) as error:
                return Trouble(cannot_reach(self.file, _why(error)))
        return None

    def look_everywhere(self, spark: SparkSession) -> None:
        """Run the check on executors; CausalityError if one does not reach a directory of the driver."""
        if self.directories:
            on_tasks(spark, PROBES, self.look)

    def end(self) -> None:
        for directory in self.directories:
            (directory / WORD).unlink(missing_ok=True)


def preflight(spark: SparkSession, directories: Sequence[AnyPath], file: AnyPath | None) -> Preflight:
    """If tasks run on other machines, write a small file into each directory for them to find."""
    if is_local(spark):
        return Preflight()
    word = os.urandom(8).hex()
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / WORD).write_text(word)
    return Preflight(word, tuple(directories), file)


def _why(error: OSError | CausalityError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
