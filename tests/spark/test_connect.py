"""The same answers on Spark Connect: a real server on loopback, and a client that has no Java.

The server's Python workers find the dependencies but not the package, which travels by itself. The client
runs in processes of its own: PySpark decides once for a process which of its two kinds of session it has.
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
from happened import ask
from happened.causality.analysis import TABLES, analyse
from spark.interpreters import without_the_package
from spark.span_tables import of_files, otlp_file, random_spans
from spark.test_analyze import wild_rows, write
from spark.test_random_frames import ELSEWHERE

pytest.importorskip("grpc")
pytest.importorskip("grpc_status")

pytestmark = pytest.mark.slow  # a second JVM

SPARK_HOME = Path(pyspark.__file__).parent
TESTS = Path(__file__).parents[1]
CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

CLIENT = """
import pickle, shutil, sys
from pathlib import Path

url, given, left = sys.argv[1:]
assert shutil.which("java") is None
from pyspark.sql import functions as F
import happened.spark as hs
from happened.causality.questions import TABLES
from happened.spark.session import session
from happened.spark.tasks import on_tasks
from spark.test_library import arrow_of, frame_of

rows, cut = pickle.loads(Path(given).read_bytes())
spark = session(url)
progress = []


def where(number):
    import happened

    return happened.__file__


def answers(frame, **options):
    tell = lambda what: progress.append((what, {*spark.getTags()}))
    with hs.analyze(frame, progress=tell, **options) as found:
        tables = {name: arrow_of(found.table(name), name) for name in found.tables}
        return tables, found.summary(), found.report() if len(tables) == len(TABLES) else None


told = {"places": on_tasks(spark, 2, where)}
events = frame_of(spark, rows)
some = events.where(F.col("computation").isin("c1", "c2"))
told["whole"] = answers(events)
told["filtered"] = answers(some, questions=["stamp"])
told["derived"] = answers(some.withColumn("time", F.col("time") * 2), questions=["messages"])
if cut:
    told["cut"] = answers(frame_of(spark, cut), whole_events=1, epoch_events=60)
told["progress"] = progress
try:
    hs.stamp(events.drop("kind"))
except Exception as error:
    told["error"] = (type(error).__name__, str(error))
Path(left).write_bytes(pickle.dumps(told))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    return without_the_package(tmp_path_factory.mktemp("venv"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, python):
    with serving(tmp_path_factory.mktemp("connect"), python) as url:
        yield url


@contextmanager
def serving(folder, python):
    """The URL of a server whose workers are run by this interpreter."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": str(python)}
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 4,
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]", "--class", CLASS, *options]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"], stdout=log, stderr=log, env=environment, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            said = (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline and process.poll() is None, said
            time.sleep(0.2)
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def without_java(*arguments):
    """A process that could not start a JVM."""
    away = ("JAVA_HOME", "SPARK_REMOTE", "MASTER")
    environment = {name: value for name, value in os.environ.items() if name not in away}
    environment |= {"PATH": str(Path(sys.executable).parent), "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=500, env=environment
    )


def client(server, tmp_path, rows, cut=()):
    (tmp_path / "given").write_bytes(pickle.dumps((rows, cut)))
    done = without_java("-c", CLIENT, server, tmp_path / "given", tmp_path / "left")
    assert done.returncode == 0, done.stderr[-4000:]
    return pickle.loads((tmp_path / "left").read_bytes())


def same(answers, rows, leave_out=()):
    tables, summary, report = answers
    expected = analyse(traces.table(rows))
    for name in tables.keys() - {*leave_out}:
        assert traces.rows_of(tables[name], name) == traces.rows_of(expected.table(name), name), name
    assert summary["events"] == len(rows)
    assert report is None or report.startswith("<!doctype html>")


def test_the_library_says_what_the_kernels_say_from_a_client_without_java(server, tmp_path, seed):
    rows = wild_rows(seed, 30, computation="c", skew=30)
    told = client(server, tmp_path, rows)
    assert all(".zip/happened/" in place for place in told["places"]), told["places"]
    same(told["whole"], rows)
    some = [row for row in rows if row["computation"] in ("c1", "c2")]
    same(told["filtered"], some)
    same(told["derived"], [row | {"time": row["time"] * 2} for row in some])
    assert told["error"][0] == "TraceFormatError" and "kind" in told["error"][1]
    for what, tags in told["progress"]:
        assert "happened" in tags and any(tag.endswith(f": {what}".replace(",", "")) for tag in tags)
    assert "laying down the frame" in [what for what, _ in told["progress"]]


def test_cut_computations_too(server, tmp_path, seed):
    rows, cut = wild_rows(seed, 3, computation="c", skew=30), wild_rows(seed, 12, prefix="w", skew=40)
    told = client(server, tmp_path, rows, cut)
    same(told["cut"], cut, leave_out=("stamps", "epochs"))
    assert any(what.startswith("stamping") for what, _ in told["progress"])
    tables = told["cut"][0]
    expected = analyse(traces.table(cut)).table("stamps")
    kept = ["computation", "process", "seq", "clock"]
    assert len(set(tables["stamps"]["epoch"].to_pylist())) > 1
    in_order = [(name, "ascending") for name in kept[:3]]
    assert tables["stamps"].sort_by(in_order).select(kept).equals(expected.sort_by(in_order).select(kept))


TABLES_OF_PEOPLE = """
import pickle, sys
from pathlib import Path

url, given, left = sys.argv[1:]
import happened.spark as hs
from happened.spark.session import session
from spark.span_tables import of_frame, opentelemetry

spark = session(url)
events = hs.spans(opentelemetry(spark, pickle.loads(Path(given).read_bytes())))
sound = events.where("_unreadable is null")
paths = [tuple(row)[:3] for row in hs.critical_path(sound).collect()]
requests = {row.request: row.took for row in hs.requests(sound).collect()}
name = sound.selectExpr("computation || ':' || process || '#' || seq as name").first().name
told = (of_frame(events), events.quarantine.count(), paths, requests, name, hs.why(sound, name))
Path(left).write_bytes(pickle.dumps(told))
"""


def test_random_frames_are_judged_or_refused_by_name(server, tmp_path, seed):
    done = without_java("-c", ELSEWHERE, server, seed, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


def test_frames_of_spans_and_questions_about_requests(server, tmp_path, dice):
    spans = random_spans(dice, 10)
    (tmp_path / "given").write_bytes(pickle.dumps(spans))
    done = without_java("-c", TABLES_OF_PEOPLE, server, tmp_path / "given", tmp_path / "left")
    assert done.returncode == 0, done.stderr[-4000:]
    rows, quarantined, paths, requests, name, why = pickle.loads((tmp_path / "left").read_bytes())
    expected, left_out, _ = of_files([otlp_file(tmp_path / "spans.json", spans)], tmp_path / "trace")
    assert rows == expected and quarantined == len(left_out)
    answer = ask.critical_path(tmp_path / "trace")
    assert paths == [tuple(share)[:3] for share in answer.shares]
    assert {request: took for request, took in requests.items() if took is not None} == dict(
        zip(answer.requests, answer.took, strict=True)
    )
    assert why == ask.why(tmp_path / "trace", name)


def test_happened_analyze_on_a_spark_connect_master(server, tmp_path, seed):
    table = write(wild_rows(seed, 40, computation="c", skew=30), tmp_path / "trace")
    options = ["--out", tmp_path / "out", "--master", server, "--json"]
    done = without_java("-m", "happened", "analyze", tmp_path / "trace", *options)
    assert done.returncode in (1, 2), done.stderr[-4000:]
    assert json.loads(done.stdout)["events"] == table.num_rows
    expected = analyse(table)
    for name in TABLES:
        found = pq.read_table(tmp_path / "out" / name)
        assert traces.rows_of(found, name) == traces.rows_of(expected.table(name), name), name
