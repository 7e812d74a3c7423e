"""docs/sql.md, run as it stands."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality.analysis import TABLES, analyse, clock_maps
from happened.spark.pipeline import analyze_path

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")


def statement(heading):
    """The SQL below a heading of the page."""
    (text,) = re.findall(rf"^## {re.escape(heading)}\n.*?^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


def write(analysis, folder):
    for name in TABLES:
        (folder / name).mkdir(parents=True)
        pq.write_table(analysis.table(name), folder / name / "part.parquet")


def read(spark, folder):
    return {path.name: spark.read.parquet(str(path)) for path in folder.iterdir() if path.is_dir()}


def views(tables):
    for name, table in tables.items():
        table.createOrReplaceTempView(name)


def send(time, message, *to):
    return {"kind": "send", "message": message, "to": list(to), "time": time}


def deliver(time, message):
    return {"kind": "deliver", "message": message, "time": time}


SHOP = {
    "web": [
        send(0, "order", "stock", "bank"),
        send(10, "coupon", "bank"),
        send(12, "hint", "stock"),
        deliver(60, "reserved"),
        deliver(70, "paid"),
    ],
    "stock": [deliver(20, "order"), send(30, "reserved", "web", "bank")],
    "bank": [deliver(40, "reserved"), deliver(45, "order"), send(50, "paid", "web"), deliver(58, "coupon")],
}
OTHER = {"web": [send(0, "ping", "stock")], "stock": [deliver(5, "ping")]}
"""Names of processes and events that are in `shop` too."""

ANSWERS = {
    "Which messages were lost?": [("shop", "hint", "web", "stock", "web#3")],
    "Which message of each pair was the slowest?": [
        ("other", "web", "stock", "ping", 5),
        ("shop", "bank", "web", "paid", 20),
        ("shop", "stock", "bank", "reserved", 10),
        ("shop", "stock", "web", "reserved", 30),
        ("shop", "web", "bank", "coupon", 48),
        ("shop", "web", "stock", "order", 20),
    ],
    "Are two events concurrent?": [("web#2", "stock#2", "concurrent")],
    "What is the causal past of an event?": [("stock#1",), ("stock#2",), ("web#1",)],
    "Which message was the costliest?": [("coupon", "web", "bank", 2)],
    "Who delivered out of order, and what is the witness?": [
        ("shop", "bank", "reserved", "bank#1", "order", "bank#2", ["web#1", "stock#1", "stock#2"])
    ],
    "Which messages are in flight at a cut?": {
        "whole": [("hint", "web", "stock")],
        "cut": [("coupon", "web", "bank"), ("hint", "web", "stock"), ("order", "web", "bank")],
    },
    "Which pair is the busiest?": [("shop", "web", "bank", 2)],
    "What immediately precedes an event?": [("bank#3",), ("web#4",)],
    "What is the latest event of each process that an event knows of?": [
        ("bank", "bank#3"), ("stock", "stock#2"), ("web", "web#1"),
    ],
    "What is the causal future of an event?": [
        ("bank#1",), ("bank#2",), ("bank#3",), ("bank#4",), ("web#4",), ("web#5",),
    ],
    "Why did an event happen, and which cause did it wait for last?": [
        ("bank#3", 50, False), ("web#4", 60, True),
    ],
    "Why did it happen so late?": [
        (0, "web#5", 70), (1, "web#4", 60), (2, "stock#2", 30), (3, "stock#1", 20), (4, "web#1", 0),
    ],
    "By how many steps does one event lead to another?": [(5,)],
}  # fmt: skip


@pytest.fixture(scope="module", params=["whole", "cut"])
def shop(request, spark, tmp_path_factory):
    """The tables of both computations; `shop` in one piece, or cut into epochs by Spark."""
    folder = tmp_path_factory.mktemp("shop")
    table = traces.table(traces.number(SHOP, "shop") + traces.number(OTHER, "other"))
    if request.param == "whole":
        write(analyse(table), folder / "answers")
    else:
        (folder / "trace").mkdir()
        pq.write_table(table, folder / "trace" / "part.parquet")
        analyze_path(spark, folder / "trace", folder / "answers", whole_events=3, epoch_events=4)
    return request.param, read(spark, folder / "answers")


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_of_the_page(spark, shop, question):
    way, tables = shop
    views(tables)
    expected = ANSWERS[question]
    expected = expected[way] if isinstance(expected, dict) else expected
    assert sorted(tuple(row) for row in spark.sql(statement(question)).collect()) == expected


def test_where_the_first_epoch_ends(shop):
    """What is in flight at a cut depends on where it is."""
    way, tables = shop
    ends = tables["epochs"].where("computation = 'shop' AND epoch = 0").collect()
    cut = {row["process"]: row["last"] for row in ends}
    assert cut == {"whole": {"web": 5, "stock": 2, "bank": 4}, "cut": {"web": 3, "stock": 1, "bank": 0}}[way]


def test_every_question_of_the_page_is_asked():
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert headings == ["Clocks by name", *ANSWERS]
    assert PAGE.count("```sql") == len(headings)


@pytest.mark.parametrize("timestamps", ["full", "sparse", "predecessors"])
def test_clocks_by_name(spark, tmp_path, seed, timestamps):
    dice = random.Random(seed)
    alone = [traces.table(traces.number(traces.causal(dice), f"c{i}")) for i in range(3)]
    analysis = analyse(pa.concat_tables(alone), timestamps=timestamps)
    write(analysis, tmp_path / "answers")
    views(read(spark, tmp_path / "answers"))
    spark.sql(statement("Clocks by name"))
    found = {
        (row["computation"], row["process"], row["seq"]): row["clock"]
        for row in spark.sql("SELECT * FROM clock_map").collect()
    }
    stamps = analysis.table("stamps")
    clocks = clock_maps(stamps, analysis.table("processes")).to_pylist()
    events = stamps.select(["computation", "process", "seq"]).to_pylist()
    assert found == {tuple(event.values()): dict(clock) for event, clock in zip(events, clocks, strict=True)}
