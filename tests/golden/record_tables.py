"""Record traces, the tables that version 0.1.0 made of them, and its verdicts.

traces/simulated/      the directory of a simulated run: messages in total order, and not in causal order
traces/wild.jsonl      computations that break every rule but have no cycle, with every field of a trace
traces/whole.parquet   both, and a computation that is none: analysed whole
traces/epochs.parquet  one larger computation, on clocks that disagree: cut into epochs
"""

import io
import json
import random
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from causality import traces
from golden import access
from golden.access import HERE
from happened.causality import encode
from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.sim.network import Network, parse_delay
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.spark.session import session
from happened.trace import SCHEMA, read, write_jsonl

TRACES, TABLES = HERE / "traces", HERE / "tables"


def record_simulated():
    """A run in one total order that is not a causal one; everything sent is delivered."""
    parameters = Parameters(
        seed=1,
        protocol="agreed",
        processes=4,
        messages=25,
        workload=Workload("multicast", 0.1),
        network=Network(parse_delay("exp:0.5")),
        tracker="vector",
        relevant=0.3,
    )
    shutil.rmtree(TRACES / "simulated", ignore_errors=True)
    simulate(parameters, TRACES / "simulated", units=True)
    return read(TRACES / "simulated")


def wild(dice, count, *, steps=40, skew=0, one=False):
    """Rows of random computations; with `one`, all of one computation, on processes of their own."""
    rows, made = [], 0
    while made < count:
        candidate = traces.wild(dice, "" if one else f"wild-{made}", steps)
        try:
            encode(traces.table(candidate))
        except TraceFormatError:
            continue
        if len(candidate) < 8:
            continue
        ahead = {row["process"]: dice.randint(-skew, skew) for row in candidate}
        for row in candidate:
            row["time"] = row["seq"] * 10 + ahead[row["process"]] + dice.randint(0, 5)
            row["relevant"] = dice.random() < 0.7
            if one:
                rename(row, f"{made}.")
        rows += candidate
        made += 1
    return rows


def rename(row, prefix):
    row["process"] = prefix + row["process"]
    if "message" in row:
        row["message"] = prefix + row["message"]
    if "to" in row:
        row["to"] = [prefix + name for name in row["to"]]
    for cause in row.get("causes", ()):
        cause["process"] = prefix + cause["process"]


def decorated(rows, dice):
    """Every optional field of a trace somewhere: logged clocks that may be wrong, labels, attributes."""
    for row in rows:
        if dice.random() < 0.3:
            row["clock"] = {row["process"]: row["seq"], "absent": dice.randint(0, 1)}
        if dice.random() < 0.2:
            row["label"], row["attributes"] = "naïve", {"key": "value", "unit": "µs"}
        if row["kind"] == "receive":
            row["control_entries"], row["control_bytes"] = dice.randint(0, 9), dice.randint(0, 99)
    return rows


def record_traces():
    dice = random.Random("golden")
    simulated = record_simulated()
    some = traces.table(decorated(wild(dice, 6, steps=25, skew=50), dice))
    write_jsonl(some, TRACES / "wild.jsonl")
    gap = {"computation": "broken", "process": "p", "seq": 2, "kind": "internal"}
    whole = pa.concat_tables([simulated, some, traces.table([gap])])
    pq.write_table(whole, TRACES / "whole.parquet", compression="zstd")
    one = traces.table(decorated(wild(dice, 4, skew=100, one=True), dice))
    pq.write_table(one, TRACES / "epochs.parquet", compression="zstd")


def record_tables(spark, name):
    folder = TABLES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with TemporaryDirectory() as made:
        out = Path(made) / "out"
        access.analyze(spark, name, out)
        schemas = {}
        for table in sorted(path.name for path in out.iterdir() if path.is_dir()):
            found = pq.read_table(out / table)
            schemas[table] = access.shown_schema(found.schema)
            lines = [json.dumps(row, ensure_ascii=False) for row in access.shown_rows(found)]
            (folder / f"{table}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        access.save(folder / "schemas.json", schemas)
        shutil.copy(out / "summary.json", folder / "summary.json")


def record_verdicts():
    verdicts = {}
    for order in ("fifo", "causal", "total"):
        with redirect_stdout(io.StringIO()) as out:
            code = main(["check", str(TRACES / "simulated"), "--order", order, "--necessary", "--json"])
        verdicts[order] = {"exit": code, "document": json.loads(out.getvalue()) | {"path": None}}
    access.save(TABLES / "verdicts.json", verdicts)


def record():
    record_traces()
    TABLES.mkdir(exist_ok=True)
    (TABLES / "trace_schema.json").write_text(
        json.dumps(access.shown_schema(SCHEMA), indent=1) + "\n", encoding="utf-8"
    )
    record_verdicts()
    spark = session("local[2]")
    try:
        for name in access.ANALYSES:
            record_tables(spark, name)
    finally:
        spark.stop()
