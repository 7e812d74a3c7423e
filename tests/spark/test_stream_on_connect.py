"""Delivery in causal order on Spark Connect: a real server, and a client without Java.

The operator, its tables, what is held, and a listener work as on classic Spark, if the server has the
package: Spark does not give a client's files to the process that prepares a streaming operator. So do
`hs.stream` and `happened stream`.
"""

import json
import pickle
import sys
from textwrap import indent

import pyarrow.parquet as pq
import pytest

from happened.spark.live.live_job import committed

pytest.importorskip("grpc")
pytest.importorskip("grpc_status")

from spark.test_connect import python, server, serving, without_java  # noqa: F401  # two are fixtures

pytestmark = pytest.mark.slow  # a second JVM

CLIENT = """
import pickle, sys, threading
from pathlib import Path
import happened.spark as hs
from happened.cli import main
from happened.spark.live.trace_source import TraceSource
from happened.spark.session import session
from happened.streaming import ByIds, Watch, deliver, held, to_tables

url, folder, left = sys.argv[1:]
spark = session(url)
spark.conf.set("spark.sql.shuffle.partitions", "1")
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
columns = "destination string, id string, after array<string>, number long"
stream = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(f"{folder}/in")
ordered = deliver(stream, ByIds(), patience=3600, arrived="number")
checkpoint = f"{folder}/checkpoint"
lines, seen = [], threading.Event()


def tell(line):
    lines.append(line)
    seen.set()


watch = Watch(spark, checkpoint, tell=tell, seconds=0)
spark.streams.addListener(watch)
tables = {"deliveries": f"{folder}/deliveries", "dead_letters": f"{folder}/dead"}
query = to_tables(ordered, **tables, checkpoint=checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
assert seen.wait(60)
told = {name: [row.asDict() for row in spark.read.parquet(path).collect()] for name, path in tables.items()}
told["held"] = [row.asDict() for row in held(spark, checkpoint, ByIds()).collect()]
told["watched"] = lines
spark.dataSource.register(TraceSource)
answers = hs.stream(spark.readStream.format("happened").load(f"{folder}/trace"), buckets=2)
writer = answers.to_tables(f"{folder}/tables", checkpoint=f"{folder}/other")
writer.trigger(availableNow=True).start().awaitTermination()
found = spark.read.parquet(f"{folder}/tables/violations").where("order_name = 'causal'").collect()
told["early"] = [row["early_event"] for row in found]
told["code"] = main(["stream", f"{folder}/trace", "--out", f"{folder}/live", "--batch-bytes", "100"])
Path(left).write_bytes(pickle.dumps(told))
"""
# PySpark 4.3 may lock up when a listener is removed while an event comes, and when its process ends.
CLIENT = f"""
def client():
{indent(CLIENT, "    ")}
try:
    client()
    code = 0
except BaseException:
    import traceback
    traceback.print_exc()
    code = 1
import os, sys
sys.stderr.flush()
os._exit(code)
"""


TRACE = [
    {"process": "p", "seq": 1, "kind": "send", "message": "m1", "to": ["q"]},
    {"process": "p", "seq": 2, "kind": "send", "message": "m2", "to": ["q"]},
    {"process": "q", "seq": 1, "kind": "deliver", "message": "m2"},
    {"process": "q", "seq": 2, "kind": "deliver", "message": "m1"},
]


def run(url, folder):
    (folder / "in").mkdir()
    (folder / "trace").mkdir()
    (folder / "trace" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TRACE))
    batches = [[("c", ["b"]), ("b", ["a"])], [("a", []), (None, []), ("z", ["y"]), ("b", ["a"])]]
    number = 0
    for batch, rows in enumerate(batches):
        lines = []
        for name, after in rows:
            lines.append(json.dumps({"destination": "d", "id": name, "after": after, "number": number}))
            number += 1
        (folder / "in" / f"{batch}.json").write_text("\n".join(lines))
    return without_java("-c", CLIENT, url, folder, folder / "left")


def test_delivery_and_streams_work_where_the_server_has_the_package(tmp_path):
    (tmp_path / "server").mkdir()
    with serving(tmp_path / "server", sys.executable) as url:
        done = run(url, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    told = pickle.loads((tmp_path / "left").read_bytes())
    delivered = {row["id"]: row["delivery"] for row in told["deliveries"]}
    assert delivered == {"a": 1, "b": 2, "c": 3}
    assert [(row["status"], row["reason"]) for row in told["dead_letters"]] == [
        ("corrupt", "column id: a message without an id")
    ]
    assert [(row["message"], row["waits_for"]) for row in told["held"]] == [("z", ["y"])]
    assert told["watched"] and "held" in told["watched"][-1]
    assert told["early"] == ["q#1"] and told["code"] == 1
    stamped = [row["event"] for part in committed(tmp_path / "live", "stamps") for row in rows_of(part)]
    assert sorted(stamped) == ["p#1", "p#2", "q#1", "q#2"]


def rows_of(part):
    return pq.read_table(part).to_pylist()


def test_without_the_package_on_the_server_the_query_ends_and_says_what_is_missing(server, tmp_path):  # noqa: F811
    done = run(server, tmp_path)
    assert done.returncode == 1
    # Spark may have lost the reason on its way: then the log of the server has it.
    assert "No module named 'happened'" in done.stderr or "StreamingQueryException" in done.stderr
