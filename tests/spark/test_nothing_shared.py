"""A standalone cluster whose two workers share no directory with each other or the driver, only a bucket.

Each worker has a mount namespace of its own, in which everything is read-only but for a file system in memory
over the test's directory. The trace, the intermediates and the tables are in the bucket; tasks are speculated
on, and one worker is killed on the way.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from causality.traces import rows_of, table
from happened.causality.analysis import TABLES, analyse
from happened.cli import main
from happened.spark.storage import read_parts, write_part
from happened.trace.store import any_path, files_below
from spark.test_analyze import wild_rows, write
from spark.test_cluster import cluster_of

pytestmark = pytest.mark.slow

ALONE = """
mount -t tmpfs none "$0" && mount -o remount,bind,ro / && mkdir "$0/tmp" && exec "$@"
"""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "50ms",
}

DRIVER = """
import json, os, signal, sys, time
from pathlib import Path
from pyspark import TaskContext
from happened.core.errors import CausalityError
from happened.spark.pipeline import analyze_path as analyze
from happened.spark.session import session
from happened.spark.storage import write_arrays
from happened.spark.tasks import on_tasks
from happened.trace.store import any_path

master, bucket, here, victim = sys.argv[1:]
bucket, here = any_path(bucket), Path(here)
spark = session(master)
told = {}


def look(number):
    import happened

    time.sleep(1)  # so that both workers have some
    return os.readlink("/proc/self/ns/mnt"), sorted(os.listdir(here)), happened.__file__


def straggle(number):
    attempt = TaskContext.get().attemptNumber()
    write_arrays(bucket / "straggled" / f"{number}.npz")
    if number == 0 and attempt == 0:
        time.sleep(60)
    return attempt


def refusal(*where, **options):
    try:
        analyze(spark, *where, **options)
    except CausalityError as error:
        return str(error)


told["mine"] = os.readlink("/proc/self/ns/mnt")
told["seen"] = on_tasks(spark, 6, look)
told["attempts"] = on_tasks(spark, 4, straggle)
told["no trace"] = refusal(here / "trace", bucket / "no")
told["no out"] = refusal(bucket / "trace", here / "no", whole_events=1)
told["no work"] = refusal(bucket / "trace", bucket / "kept", work=here / "no", whole_events=1)


def progress(what):
    if what.startswith("stamping"):
        os.kill(int(victim), signal.SIGKILL)


options = {"whole_events": 1, "epoch_events": 60, "progress": progress, "work": bucket / "work"}
told["summary"] = analyze(spark, bucket / "trace", bucket / "out", **options)
print(json.dumps(told))
"""


@pytest.fixture
def cluster(tmp_path, store):
    alone = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ALONE, str(tmp_path)]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("it takes the right to make mount namespaces (root)")
    (tmp_path / "trace").mkdir()
    mine = str(tmp_path / "tmp")
    environment = store.environment | {
        "TMPDIR": mine,
        "SPARK_LOCAL_DIRS": mine,
        "NUMBA_CACHE_DIR": f"{mine}/numba",
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={mine}",
    }
    with cluster_of(tmp_path, alone, environment, f"{mine}/work") as running:
        yield running


def test_workers_share_nothing_but_the_store(cluster, bucket, store, tmp_path, seed):
    url, processes = cluster
    rows = wild_rows(seed, 12, prefix="w", skew=40)
    trace = table(rows)
    third = -(-trace.num_rows // 3)
    for part in range(3):
        write_part(any_path(bucket) / "trace", f"part-{part}", trace.slice(part * third, third))
    (tmp_path / "trace").rmdir()
    write(rows, tmp_path / "trace")
    settings = " ".join(f"--conf {name}={value}" for name, value in SPECULATION.items())
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, url, bucket, tmp_path, str(processes[1].pid)],
        capture_output=True,
        text=True,
        timeout=500,
        env={**os.environ, **store.environment, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
    )
    assert driver.returncode == 0, driver.stderr[-4000:]
    told = json.loads(driver.stdout.strip().splitlines()[-1])
    assert len({told["mine"], *(namespace for namespace, _, _ in told["seen"])}) == 3
    for _, files, package in told["seen"]:
        assert files == ["tmp"]
        assert "happened.zip" in package
    assert told["attempts"] == [1, 0, 0, 0], "the straggler was not speculated on"
    for where in ("no trace", "no out", "no work"):
        assert told[where].startswith("the executors cannot reach"), told[where]
        assert "\n" not in told[where]
    assert processes[1].wait(timeout=10) == -signal.SIGKILL
    expected, out = analyse(trace), any_path(bucket) / "out"
    for name in TABLES:
        assert rows_of(read_parts(out / name), name) == rows_of(expected.table(name), name), name
    assert told["summary"]["events"] == trace.num_rows
    assert files_below(any_path(bucket) / "work") == files_below(any_path(bucket) / "no") == []
    assert [file.name for file in files_below(any_path(bucket) / "kept")] == ["_unfinished"]
    assert main(["clean", f"{bucket}/kept"]) == 0
    assert files_below(any_path(bucket) / "kept") == []
    assert not [file for file in files_below(out) if ".work" in str(file) or "/_" in str(file)]
    assert len(files_below(any_path(bucket) / "straggled")) == 4
