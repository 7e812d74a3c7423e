"""The same answers on a real standalone cluster of two workers, one of which is killed on the way.

The executors get the package from the driver: it is asked where it was imported from. The session of a
cluster cannot live beside a local one in the same process, so the analysis runs in a process of its own.
"""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from causality import traces
from causality.traces import rows_of
from happened.causality.analysis import TABLES, analyse
from happened.trace import read
from spark.test_analyze import wild_rows, write
from spark.test_random_frames import ELSEWHERE

pytestmark = pytest.mark.slow

SPARK_HOME = Path(pyspark.__file__).parent

DRIVER = """
import json, os, signal, sys
from pathlib import Path
from happened.spark.pipeline import analyze_path
from happened.spark.tasks import on_tasks
from happened.spark.session import session

master, trace, out, victim = sys.argv[1:]
spark = session(master)


def where(number):
    import happened

    return happened.__file__


def progress(what):
    if what.startswith("stamping"):
        os.kill(int(victim), signal.SIGKILL)


places = on_tasks(spark, 4, where)
summary = analyze_path(spark, Path(trace), Path(out), whole_events=1, epoch_events=60, progress=progress)
print(json.dumps({"places": places, "summary": summary}))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(tmp_path, name, *command, environment=None):
    log = (tmp_path / f"{name}.log").open("w")
    own = {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own, **(environment or {})})


@contextmanager
def cluster_of(tmp_path, prefix=(), environment=None, work=None):
    """A master and two workers, which run behind the command `prefix` and have addresses of their own: Spark
    speculates on a task only on another host. Its URL, and the processes."""
    spark_class, port = str(SPARK_HOME / "bin" / "spark-class"), free_port()
    url = f"spark://127.0.0.1:{port}"
    master = [
        spark_class,
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    processes = [start(tmp_path, "master", *master, "--webui-port", "0")]
    try:
        for number in (1, 2):
            worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number + 1}"]
            worker += ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
            worker += ["--work-dir", work or str(tmp_path / f"work{number}"), url]
            processes.append(start(tmp_path, f"worker{number}", *prefix, *worker, environment=environment))
        deadline = time.monotonic() + 120
        while (tmp_path / "master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (tmp_path / "master.log").read_text()[-2000:]
            time.sleep(0.2)
        yield url, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    with cluster_of(tmp_path) as running:
        yield running


def test_two_workers_one_killed(cluster, tmp_path, seed):
    url, processes = cluster
    table = write(wild_rows(seed, 12, prefix="w", skew=40), tmp_path / "trace")
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, url, tmp_path / "trace", tmp_path / "out", str(processes[1].pid)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert driver.returncode == 0, driver.stderr[-4000:]
    told = json.loads(driver.stdout.strip().splitlines()[-1])
    assert all("happened.zip" in place for place in told["places"]), told["places"]
    assert processes[1].wait(timeout=10) == -signal.SIGKILL
    expected = analyse(read(tmp_path / "trace"))
    assert read(tmp_path / "trace").num_rows == table.num_rows
    for name in TABLES:
        assert rows_of(pq.read_table(tmp_path / "out" / name), name) == rows_of(expected.table(name), name)
    assert told["summary"]["events"] == table.num_rows


FRAMES = """
import pickle, sys
from pathlib import Path
from pyspark.sql import functions as F
import happened.spark as hs
from happened.core.errors import CausalityError
from happened.spark.session import session
from spark.test_library import arrow_of, frame_of

master, given, work, left = sys.argv[1:]
spark = session(master)
events = frame_of(spark, pickle.loads(Path(given).read_bytes()))
some = events.where(F.col("computation").isin("c1", "c2"))
try:
    hs.stamp(events, io="direct")
except CausalityError as error:
    refused = str(error)


def tables(**options):
    with hs.analyze(events, **options) as analysis:
        return {name: arrow_of(analysis.table(name), name) for name in analysis.tables}


whole, direct = tables(), tables(io="direct", work=work)
told = whole, direct, arrow_of(hs.stamp(some, io="direct", work=work), "stamps"), refused
Path(left).write_bytes(pickle.dumps(told))
"""


def run_frames(script, url, *arguments):
    """Run a driver that imports from the tests."""
    driver = subprocess.run(
        [sys.executable, "-c", script, url, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert driver.returncode == 0, driver.stderr[-4000:]


def test_frames_on_two_workers(cluster, tmp_path, seed):
    url, _ = cluster
    rows = wild_rows(seed, 40, computation="c", skew=40)
    (tmp_path / "given").write_bytes(pickle.dumps(rows))
    (tmp_path / "work-of-frames").mkdir()
    run_frames(FRAMES, url, tmp_path / "given", tmp_path / "work-of-frames", tmp_path / "left")
    whole, direct, stamps, refused = pickle.loads((tmp_path / "left").read_bytes())
    expected = analyse(traces.table(rows))
    for name in TABLES:
        for told in (whole, direct):
            assert rows_of(told[name], name) == rows_of(expected.table(name), name), name
    some = [row for row in rows if row["computation"] in ("c1", "c2")]
    of_some = analyse(traces.table(some)).table("stamps")
    assert rows_of(stamps, "stamps") == rows_of(of_some, "stamps")
    assert "give work=" in refused
    assert not any((tmp_path / "work-of-frames").iterdir())  # the interpreter ended


def test_random_frames_on_two_workers(cluster, tmp_path, seed):
    (tmp_path / "work-of-frames").mkdir()
    run_frames(ELSEWHERE, cluster[0], seed, tmp_path / "work-of-frames")
