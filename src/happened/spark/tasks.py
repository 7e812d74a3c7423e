"""Work on Spark tasks that read and write files themselves: without a shuffle, or with one of bytes.

    on_tasks   work(0) … work(n - 1), and what they return
    exchange   tasks that give bytes to buckets, then tasks that each settle a bucket

Only the DataFrame API is used, so that both run on Spark Connect too. Results come back pickled: small ones.
"""

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from ..core.errors import TraceFormatError
from .classic import context_of

SECONDS_BETWEEN_LOOKS = 1.0

RESULTS = pa.schema([("key", pa.int64()), ("result", pa.binary())])
EMITTED = pa.schema([("bucket", pa.int64()), ("source", pa.int64()), ("blob", pa.binary())])


class Fault(NamedTuple):
    """What a task found wrong with the trace: running it again would not mend that."""

    reason: str


class Emitted(NamedTuple):
    """What a task of an exchange returns, and the bytes it gives to buckets."""

    result: Any
    blobs: Iterable[tuple[int, bytes]]


def on_tasks(
    spark: SparkSession, count: int, work: Callable[[int], Any], tell: Callable[[int], object] | None = None
) -> list[Any]:
    """work(0), …, work(count - 1) as Spark tasks; what they return must be small.

    What a task finds wrong with the trace is raised here. `tell` is told now and then how many are done.
    """
    return raise_faults(attempts_on_tasks(spark, count, work, tell))


def attempts_on_tasks(
    spark: SparkSession, count: int, work: Callable[[int], Any], tell: Callable[[int], object] | None = None
) -> list[Any]:
    """The same; where a task finds the trace wrong, its result is a Fault."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _results([(number, _attempt(work, number))])

    if not count:
        return []
    with _watched(spark, count, tell):
        rows = spark.range(0, count, 1, count).mapInArrow(run, "key long, result binary").collect()
    return [pickle.loads(row["result"]) for row in sorted(rows, key=lambda row: row["key"])]


def raise_faults(results: Sequence[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, Fault):
            raise TraceFormatError(result.reason)
    return [*results]


def exchange(
    spark: SparkSession,
    count: int,
    emit: Callable[[int], Emitted],
    partitions: int,
    settle: Callable[[int, list[bytes]], Any],
) -> tuple[list[Any], dict[int, Any]]:
    """Run emit(0) … emit(count - 1), and settle each bucket with the bytes given to it, by who gave them.

    Returns what the emitting tasks returned, and what was returned for each bucket that was given anything;
    a Fault where a task found the trace wrong. One shuffle, of as many rows as there are bytes objects.
    """

    def give(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                emitted = _attempt(emit, number)
                result, blobs = emitted if isinstance(emitted, Emitted) else (emitted, ())
                rows = [(-1 - number, pickle.dumps(result)), *blobs]
                buckets, contents = zip(*rows, strict=True)
                columns = [pa.array(buckets), pa.repeat(number, len(rows)), pa.array(contents, pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, schema=EMITTED)

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            row for batch in batches for row in zip(batch["bucket"].to_pylist(), batch["blob"], strict=True)
        )
        for bucket, group in groupby(rows, key=lambda row: row[0]):
            blobs = [blob.as_buffer().to_pybytes() for _, blob in group]
            if bucket < 0:
                yield pa.RecordBatch.from_arrays([pa.array([bucket]), pa.array(blobs)], schema=RESULTS)
            else:
                yield _results([(bucket, _attempt(partial(_settled, settle, blobs), bucket))])

    if not count:
        return [], {}
    given = spark.range(0, count, 1, count).mapInArrow(give, "bucket long, source long, blob binary")
    sorted_ = given.repartition(max(partitions, 1), "bucket").sortWithinPartitions("bucket", "source")
    rows = sorted_.mapInArrow(take, "key long, result binary").collect()
    found = {row["key"]: pickle.loads(row["result"]) for row in rows}
    return [found[-1 - number] for number in range(count)], {k: v for k, v in found.items() if k >= 0}


def _settled(settle: Callable[[int, list[bytes]], Any], blobs: list[bytes], bucket: int) -> Any:
    return settle(bucket, blobs)


def _attempt(work: Callable[[int], Any], number: int) -> Any:
    try:
        return work(number)
    except TraceFormatError as error:
        return Fault(str(error))
    except pa.ArrowException as error:
        return Fault(f"a part of the trace cannot be read: {error}")


def _results(results: Sequence[tuple[int, Any]]) -> pa.RecordBatch:
    keys, values = zip(*results, strict=True)
    columns = [pa.array(keys), pa.array([pickle.dumps(value) for value in values])]
    return pa.RecordBatch.from_arrays(columns, schema=RESULTS)


@contextmanager
def _watched(spark: SparkSession, count: int, tell: Callable[[int], object] | None) -> Iterator[None]:
    """Tell how many of `count` tasks are done while the body runs them."""
    if tell is None:
        yield
    elif (context := context_of(spark)) is None:
        with _heard(spark, count, tell):
            yield
    else:
        with _polled(context.statusTracker(), count, tell):
            yield


@contextmanager
def _heard(spark: Any, count: int, tell: Callable[[int], object]) -> Iterator[None]:
    """By what a Spark Connect server reports of itself."""

    def hear(stages: Sequence[Any] | None, **_: Any) -> None:
        for stage in stages or ():
            if stage.num_tasks == count:
                tell(stage.num_completed_tasks)

    spark.registerProgressHandler(hear)
    try:
        yield
    finally:
        spark.removeProgressHandler(hear)


@contextmanager
def _polled(tracker: Any, count: int, tell: Callable[[int], object]) -> Iterator[None]:
    over = threading.Event()

    def look() -> None:
        while not over.wait(SECONDS_BETWEEN_LOOKS):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None and info.numTasks == count:
                    tell(info.numCompletedTasks)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
