"""Streams whose driver, or one of whose executors, is killed give what an undisturbed one gives.

Nothing is lost and nothing repeated, row for row. Where batches end may change with a crash: Spark's source
of files may have noted a file before its batch was planned, and the next batch then has two.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from causality import traces
from causality.test_live import random_rows
from happened.causality.analysis import analyse
from happened.spark.live.live_job import committed
from happened.trace.jsonl import write_jsonl
from spark.test_cluster import cluster  # noqa: F401  # a fixture

pytestmark = pytest.mark.slow

KILLS = 10
FILES = 24

DELIVER = """
import sys
from happened.spark.session import session
from happened.streaming import ByIds, deliver

given, out, checkpoint, master = sys.argv[1:]
spark = session(master)
spark.conf.set("spark.sql.shuffle.partitions", "2")
columns = "destination string, id string, after array<string>, payload string, number long"
stream = spark.readStream.schema(columns)
stream = stream.option("maxFilesPerTrigger", 1).json(given)
ordered = deliver(stream, ByIds(), patience=None, arrived="number")
writer = ordered.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


def write_messages(folder, dice):
    """Each names two earlier ones; nearly in order, some twice."""
    folder.mkdir()
    rows = [
        {
            "destination": f"d{k % 3}",
            "id": f"m{k}",
            "after": sorted({f"m{dice.randrange(k % 3, k, 3)}" for _ in range(2)}) if k > 2 else [],
            "payload": f"message {k}",
        }
        for k in range(FILES * 20)
    ]
    arriving = sorted(rows + dice.sample(rows, 40), key=lambda row: int(row["id"][1:]) + dice.uniform(0, 120))
    size = -(-len(arriving) // FILES)
    for number in range(FILES):
        part = list(enumerate(arriving))[number * size : (number + 1) * size]
        path = folder / f"{number:03d}.json"
        path.write_text("".join(json.dumps(row | {"number": place}) + "\n" for place, row in part))
        os.utime(path, (number, number))
    return rows


def kill_again_and_again(command, folder, dice, kills=KILLS):
    """Start it, kill it at a random moment, and start it again; the last one may finish. Says how often it
    was killed after some batches and before the last."""
    batches, midway = [], 0
    for _ in range(kills):
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        before = len(list((folder / "commits").glob("*")))
        deadline = time.monotonic() + 120
        # Half of the moments are within a batch or between two; the others are any, from the start on.
        goes_on = dice.random() < 0.5
        while goes_on and len(list((folder / "commits").glob("*"))) == before:
            if process.poll() is not None or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        try:
            process.wait(dice.uniform(0, 1.5 if goes_on else 15))
        except subprocess.TimeoutExpired:
            midway += goes_on
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        batches.append(len(list((folder / "commits").glob("*"))))
    subprocess.run(command, check=True, timeout=600, stderr=subprocess.DEVNULL)
    print(f"batches after each kill: {batches}")
    return midway


def sink_rows(out):
    """The rows that the sink has committed: files of a batch that was cut off lie beside the others."""
    rows = []
    for entry in sorted((out / "_spark_metadata").iterdir()):
        if entry.name.isdecimal() or entry.name.endswith(".compact"):
            for text in entry.read_text().splitlines()[1:]:
                name = json.loads(text)["path"].rsplit("/", 1)[1]
                if name not in rows:
                    rows.append(name)
    found = [row for name in rows for row in pq.ParquetFile(out / name).read().to_pylist()]
    return sorted(found, key=lambda row: (row["destination"], row["delivery"]))


def check_order(rows, messages):
    assert sorted(row["id"] for row in rows) == sorted(message["id"] for message in messages)
    place = {row["id"]: row["delivery"] for row in rows}
    for message in messages:
        assert all(place[cause] < place[message["id"]] for cause in message["after"])


def test_delivery_goes_on_after_kill_9_of_the_driver(tmp_path, seed):
    dice = random.Random(seed)
    messages = write_messages(tmp_path / "in", dice)

    def command(name):
        places = [tmp_path / "in", tmp_path / name, tmp_path / f"{name}-checkpoint"]
        return [sys.executable, "-c", DELIVER, *map(str, places), "local[2]"]

    subprocess.run(command("whole"), check=True, timeout=600, stderr=subprocess.DEVNULL)
    midway = kill_again_and_again(command("killed"), tmp_path / "killed-checkpoint", dice)
    rows = sink_rows(tmp_path / "killed")
    assert rows == sink_rows(tmp_path / "whole")
    check_order(rows, messages)
    assert midway


def test_stamping_goes_on_after_kill_9_of_the_driver(tmp_path, seed):
    dice = random.Random(seed)
    rows = random_rows(dice, processes=5, steps=600)
    for k in range(40):
        rows += [row | {"computation": f"c{k}"} for row in random_rows(dice, steps=20)]
    dice.shuffle(rows)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        write_jsonl(traces.table(rows[number::FILES]), tmp_path / "in" / f"{number:03d}.jsonl")
    size = max(path.stat().st_size for path in (tmp_path / "in").iterdir())

    def command(name):
        options = ["--out", str(tmp_path / name), "--batch-bytes", str(size), "--master", "local[2]"]
        # It is found to be violated; if it is started once more after it has finished, it is refused.
        run = "import sys; from happened.cli import main; sys.exit(main(sys.argv[1:]) not in (1, 2))"
        return [sys.executable, "-c", run, "stream", str(tmp_path / "in"), *options]

    subprocess.run(command("whole"), check=True, timeout=600, stderr=subprocess.DEVNULL)
    midway = kill_again_and_again(command("killed"), tmp_path / "killed", dice)
    for table in ("stamps", "predecessors", "violations", "lost_causes", "quarantine", "processes"):
        whole, killed = (sorted(map(repr, rows_in(tmp_path / name, table))) for name in ("whole", "killed"))
        assert killed == whole, table
    assert midway


def rows_in(out, table):
    return [row for part in committed(out, table) for row in pq.read_table(part).to_pylist()]


def test_stamping_goes_on_without_an_executor(cluster, tmp_path, seed):  # noqa: F811
    """Each row is there once, and those are the rows of the batch."""
    url, processes = cluster
    dice = random.Random(seed)
    rows = [
        row | {"computation": f"c{k}", "relevant": False}
        for k in range(60)
        for row in random_rows(dice, processes=3, steps=40)
    ]
    dice.shuffle(rows)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        write_jsonl(traces.table(rows[number::FILES]), tmp_path / "in" / f"{number:03d}.jsonl")
    out = tmp_path / "out"
    words = ["stream", str(tmp_path / "in"), "--out", str(out), "--batch-bytes", "30000", "--master", url]
    run = "import sys; from happened.cli import main; sys.exit(main(sys.argv[1:]) != 1)"
    few = {"PYSPARK_SUBMIT_ARGS": "--conf spark.sql.shuffle.partitions=2 pyspark-shell"}
    driver = subprocess.Popen([sys.executable, "-c", run, *words], env=os.environ | few)
    try:
        deadline = time.monotonic() + 300
        while len(list((out / "commits").glob("*"))) < 3:
            assert driver.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        processes[1].kill()
        assert driver.wait(600) == 0
    finally:
        driver.kill()
    whole = analyse(traces.table(rows), questions=["stamp", "predecessors", "order"])
    for table, names in (
        ("stamps", ("computation", "event")),
        ("predecessors", ("computation", "event", "cause_event")),
        ("violations", ("computation", "order_name", "early_event")),
        ("lost_causes", ("computation", "order_name", "process", "lost")),
    ):
        told, wanted = (
            sorted(tuple(row[name] for name in names) for row in found if row.get("order_name") != "total")
            for found in (rows_in(out, table), whole.table(table).to_pylist())
        )
        assert told == wanted, table


def test_delivery_goes_on_without_an_executor(cluster, tmp_path, seed):  # noqa: F811
    url, processes = cluster
    messages = write_messages(tmp_path / "in", random.Random(seed))
    places = [tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"]
    driver = subprocess.Popen([sys.executable, "-c", DELIVER, *map(str, places), url])
    try:
        deadline = time.monotonic() + 300
        while len(list((tmp_path / "checkpoint" / "commits").glob("*"))) < 5:
            assert driver.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        processes[1].kill()
        assert driver.wait(600) == 0
    finally:
        driver.kill()
    check_order(sink_rows(tmp_path / "out"), messages)
