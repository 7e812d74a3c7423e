"""Delivery in causal order on Spark Connect: a real server, and a client without Java.

The operator, its tables, what is held, and a listener work as on classic Spark, if the server has the
package: Spark does not give a client's files to the process that prepares a streaming operator. `happened
stream` does not, because the state of its batches is in the process that asked: that is refused.
"""

import json
import pickle
import sys
from textwrap import indent

import pytest

pytest.importorskip("grpc")
pytest.importorskip("grpc_status")

from spark.test_connect import python, server, serving, without_java  # noqa: F401  # two are fixtures

pytestmark = pytest.mark.slow  # a second JVM

CLIENT = """
import pickle, sys, threading
from pathlib import Path
from happened.core.errors import CausalityError
from happened.spark.live.live_job import follow
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
try:
    follow(stream, Path(folder) / "live", checkpoint=f"{folder}/other")
except CausalityError as error:
    told["refused"] = str(error)
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


def run(url, folder):
    (folder / "in").mkdir()
    batches = [[("c", ["b"]), ("b", ["a"])], [("a", []), (None, []), ("z", ["y"]), ("b", ["a"])]]
    number = 0
    for batch, rows in enumerate(batches):
        lines = []
        for name, after in rows:
            lines.append(json.dumps({"destination": "d", "id": name, "after": after, "number": number}))
            number += 1
        (folder / "in" / f"{batch}.json").write_text("\n".join(lines))
    return without_java("-c", CLIENT, url, folder, folder / "left")


def test_delivery_works_where_the_server_has_the_package_and_happened_stream_is_refused(tmp_path):
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
    assert "Spark Connect" in told["refused"]


def test_without_the_package_on_the_server_the_query_ends_and_says_what_is_missing(server, tmp_path):  # noqa: F811
    done = run(server, tmp_path)
    assert done.returncode == 1
    # Spark may have lost the reason on its way: then the log of the server has it.
    assert "No module named 'happened'" in done.stderr or "StreamingQueryException" in done.stderr
