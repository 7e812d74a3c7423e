"""A driver that dies leaves what is finished: a run that goes on does the rest, with the same answers."""

import json
import logging
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from causality.traces import rows_of
from happened.causality.analysis import TABLES, analyse
from happened.spark.phases import Phases
from happened.spark.pipeline import analyze_path as analyze
from happened.trace import read
from spark.test_analyze import wild_rows, write

CUT = {"whole_events": 1, "epoch_events": 60}
PHASES = [
    "survey", "pass", "layout", "stamps", "walks",
    "epochs", "stamp", "verify-clocks", "verify-trackers", "order", "messages", "dependencies", "measures",
]  # fmt: skip


def same_answers(out, trace):
    expected = analyse(read(trace))
    assert expected.table("stamps").num_rows > 30
    for name in TABLES:
        assert rows_of(pq.read_table(out / name), name) == rows_of(expected.table(name), name), name


class DriverDies(BaseException):
    pass


@pytest.fixture
def done(monkeypatch):
    """The names of the phases that are done, not taken from records; each is the last one of its run, for as
    long as `done.dying`."""

    class Done(list):
        dying = True

    done = Done()
    run = Phases.run

    def watched(self, name, work):
        ran = []

        def noted():
            ran.append(name)
            return work()

        result = run(self, name, noted)
        done.extend(ran)
        if ran and done.dying:
            raise DriverDies(name)
        return result

    monkeypatch.setattr(Phases, "run", watched)
    return done


def test_each_phase_runs_once_though_the_driver_dies_after_each(spark, tmp_path, seed, done):
    write(wild_rows(seed, 6, prefix="w", skew=40), tmp_path / "trace")
    out = tmp_path / "out"
    for _ in PHASES:
        with pytest.raises(DriverDies):
            analyze(spark, tmp_path / "trace", out, **CUT, resume=True)
        assert not out.exists()
    assert sorted(done) == sorted(PHASES)
    done.dying = False
    summary = analyze(spark, tmp_path / "trace", out, **CUT, resume=True)
    assert sorted(done) == sorted(PHASES)
    same_answers(out, tmp_path / "trace")
    assert summary == json.loads((out / "summary.json").read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "trace"]
    assert not [path.name for path in out.iterdir() if path.name.startswith((".", "_"))]


def test_what_was_left_of_another_trace_is_not_used(spark, tmp_path, seed, done, caplog):
    write(wild_rows(seed, 9, prefix="w"), tmp_path / "trace")
    options = CUT | {"questions": ["stamp"], "work": tmp_path / "work", "resume": True}
    for _ in range(3):
        with pytest.raises(DriverDies):
            analyze(spark, tmp_path / "trace", tmp_path / "out", **options)
    (tmp_path / "trace" / "part-0.parquet").rename(tmp_path / "trace" / "part-9.parquet")
    write(wild_rows(seed, 2, prefix="v"), tmp_path / "other")
    for part in (tmp_path / "trace").iterdir():
        part.unlink()
    for part in (tmp_path / "other").iterdir():
        part.rename(tmp_path / "trace" / part.name)
    done.clear()
    done.dying = False
    with caplog.at_level(logging.WARNING):
        analyze(spark, tmp_path / "trace", tmp_path / "out", **options)
    assert "beginning anew" in caplog.text
    assert done[:3] == PHASES[:3]
    stamps = rows_of(pq.read_table(tmp_path / "out" / "stamps"), "stamps")
    assert stamps == rows_of(analyse(read(tmp_path / "trace")).table("stamps"), "stamps")
    assert [*(tmp_path / "work").iterdir()] == []


STAGES = ["survey", "pass", "layout", "stamps", "walks", "order", None]

DRIVER = """
import os, signal, sys
from pathlib import Path
from happened.spark import phases
from happened.spark.pipeline import analyze_path as analyze
from happened.spark.session import session

trace, out, stage = sys.argv[1:]
run = phases.Phases.run


def watched(self, name, work):
    def noted():
        result = work()
        if name == stage:
            os.kill(os.getpid(), signal.SIGKILL)
        print(name, flush=True)
        return result

    return run(self, name, noted)


phases.Phases.run = watched
analyze(session("local[2]"), Path(trace), Path(out), whole_events=1, epoch_events=60, resume=True)
"""


@pytest.mark.slow
def test_the_driver_is_killed_at_each_stage_in_turn(tmp_path, seed):
    """When the tasks of a stage are done, and nobody has written that down: it alone is done again."""
    write(wild_rows(seed, 6, prefix="w", skew=40), tmp_path / "trace")
    out = tmp_path / "out"
    done = []
    for stage in STAGES:
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, tmp_path / "trace", out, str(stage)],
            capture_output=True,
            text=True,
            timeout=500,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        assert driver.returncode == (-signal.SIGKILL if stage else 0), driver.stderr[-4000:]
        assert out.exists() == (stage is None)
        done += driver.stdout.split()
    assert sorted(done) == sorted(PHASES)
    same_answers(out, tmp_path / "trace")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "trace"]
