"""Work that is told apart by a number, spread over Spark: tasks that read and write files themselves."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ..core.errors import TraceFormatError


def on_tasks(spark: SparkSession, count: int, work: Callable[[int], Any]) -> list[Any]:
    """work(0), …, work(count - 1) as Spark tasks; what they return must be small and JSON.

    What a task finds wrong with the trace is raised here.
    """

    def attempt(number: int) -> str:
        try:
            return json.dumps({"result": work(number)})
        except TraceFormatError as error:  # running the task again would not mend the trace
            return json.dumps({"fault": str(error)})

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = pa.array([attempt(number) for number in batch["id"].to_pylist()], pa.string())
            yield pa.RecordBatch.from_arrays([batch["id"], results], ["id", "result"])

    if not count:
        return []
    rows = spark.range(0, count, 1, count).mapInArrow(run, "id long, result string").collect()
    results = [json.loads(row["result"]) for row in sorted(rows, key=lambda row: row["id"])]
    for result in results:
        if "fault" in result:
            raise TraceFormatError(result["fault"])
    return [result["result"] for result in results]
