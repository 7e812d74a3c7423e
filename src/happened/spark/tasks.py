"""Run work(0) … work(n - 1) as Spark tasks that read and write files themselves, and return their results."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ..core.errors import TraceFormatError

SECONDS_BETWEEN_LOOKS = 1.0


def on_tasks(
    spark: SparkSession, count: int, work: Callable[[int], Any], tell: Callable[[int], object] | None = None
) -> list[Any]:
    """work(0), …, work(count - 1) as Spark tasks; what they return must be small and JSON.

    What a task finds wrong with the trace is raised here. `tell` is told now and then how many are done.
    """

    def attempt(number: int) -> str:
        try:
            return json.dumps({"result": work(number)})
        except TraceFormatError as error:  # running the task again would not mend the trace
            return json.dumps({"fault": str(error)})
        except pa.ArrowException as error:
            return json.dumps({"fault": f"a part of the trace cannot be read: {error}"})

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = pa.array([attempt(number) for number in batch["id"].to_pylist()], pa.string())
            yield pa.RecordBatch.from_arrays([batch["id"], results], ["id", "result"])

    if not count:
        return []
    with _watched(spark, count, tell):
        rows = spark.range(0, count, 1, count).mapInArrow(run, "id long, result string").collect()
    results = [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["id"])]
    for result in results:
        if "fault" in result:
            raise TraceFormatError(result["fault"])
    return [result["result"] for result in results]


@contextmanager
def _watched(spark: SparkSession, count: int, tell: Callable[[int], object] | None) -> Iterator[None]:
    """Tell how many of `count` tasks are done while the body runs them."""
    if tell is None:
        yield
        return
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

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
