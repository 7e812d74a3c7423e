"""What keeps tasks from their work though the trace is sound is told in a sentence, as no damaged trace."""

import os
import signal

import pyarrow as pa
import pytest

from causality import traces
from happened import trace
from happened.core.errors import CausalityError, TraceFormatError
from happened.spark import tasks
from happened.spark.pipeline import analyze_path as analyze
from happened.spark.tasks import WORD, Emitted, Preflight, exchange, on_tasks, preflight
from spark.test_analyze import write


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError("1 TB"), r"a task lacks memory \(1 TB\); .* --split-rows or --epoch-events"),
        (pa.ArrowMemoryError("malloc failed"), r"a task lacks memory \(malloc failed\); give tasks more"),
        (
            FileNotFoundError(2, "No such file", "/no/part"),
            "executors cannot reach /no/part: No such file; give a",
        ),
        (CausalityError("s3://b: the store refuses"), "a task failed: s3://b: the store refuses"),
    ],
    ids=["memory", "memory of Arrow", "no file", "a store that refuses"],
)
def test_trouble_is_no_fault_of_the_trace(spark, error, reason):
    def work(number):
        raise error

    def emit(number):
        return Emitted(None, [(0, b"")])

    for attempt in (
        lambda: on_tasks(spark, 1, work),
        lambda: exchange(spark, 1, work, 1, lambda bucket, blobs: None),
        lambda: exchange(spark, 1, emit, 1, lambda bucket, blobs: work(bucket)),
    ):
        with pytest.raises(CausalityError, match=reason) as caught:
            attempt()
        assert not isinstance(caught.value, TraceFormatError)


def test_a_worker_that_the_system_kills(spark):
    with pytest.raises(CausalityError, match=r"a Python worker died, .* memory"):
        on_tasks(spark, 1, lambda number: os.kill(os.getpid(), signal.SIGKILL))


def test_a_part_that_cannot_be_read_for_lack_of_memory_is_not_damaged(tmp_path, monkeypatch):
    write(traces.number({"p": [{"kind": "internal"}]}), tmp_path / "trace")

    def read_row_groups(*_, **__):
        raise pa.ArrowMemoryError("realloc of size 1 failed")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_groups", read_row_groups)
    with pytest.raises(MemoryError, match="realloc"):
        trace.read(tmp_path / "trace")


def test_spark_tries_again_what_may_have_been_chance(spark, monkeypatch):
    """Only the last of the attempts that a cluster allows says what is wrong; the others raise."""

    def lack_memory(number):
        raise MemoryError

    class Attempt:
        def __init__(self, number):
            self.attemptNumber = lambda: number

    for number in range(4):
        monkeypatch.setattr(tasks.TaskContext, "get", lambda number=number: Attempt(number))
        if number < 3:
            with pytest.raises(MemoryError):
                tasks._attempt(4, lack_memory, 1)
        else:
            assert isinstance(tasks._attempt(4, lack_memory, 1), tasks.Trouble)


def test_executors_that_do_not_reach_what_the_driver_does(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / WORD).write_text("word")
    (tmp_path / "part").write_bytes(b"PAR1")

    def look(word="word", directory=tmp_path / "out", file=tmp_path / "part"):
        found = Preflight(word, (directory,), file).look()
        return found and found.reason

    assert look() is None
    assert [path.name for path in (tmp_path / "out").iterdir()] == [WORD]
    assert look(directory=tmp_path / "no").startswith(f"the executors cannot reach {tmp_path}/no: No such")
    assert "another directory" in look(word="of another driver")
    assert look(file=tmp_path / "gone").startswith(f"the executors cannot reach {tmp_path}/gone: No such")


def test_a_local_master_needs_no_preflight(spark, tmp_path):
    assert preflight(spark, [tmp_path], tmp_path / "part") == Preflight()
    assert not any(tmp_path.iterdir())


def test_a_trace_that_fits_a_task_is_one_job_and_looks_in_it(spark, tmp_path, monkeypatch):
    write(traces.number({"p": [{"kind": "internal"}]}), tmp_path / "trace")
    (tmp_path / "elsewhere").mkdir()
    on_cluster = Preflight("word", (tmp_path / "elsewhere",), None)
    monkeypatch.setattr("happened.spark.pipeline.preflight", lambda *_: on_cluster)
    tracker = spark.sparkContext.statusTracker()
    before = {*tracker.getJobIdsForGroup(None)}
    with pytest.raises(CausalityError, match=f"the executors cannot reach {tmp_path}/elsewhere"):
        analyze(spark, tmp_path / "trace", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    (tmp_path / "elsewhere" / WORD).write_text("word")
    assert analyze(spark, tmp_path / "trace", tmp_path / "out")["events"] == 1
    assert len({*tracker.getJobIdsForGroup(None)} - before) == 2
