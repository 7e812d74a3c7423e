"""Causal delivery on Spark: the thin part around `streaming.destination`, which has tests of its own."""

import json
import math
import os
import threading
import time
from base64 import b64encode

import pyarrow.parquet as pq
import pytest

from happened.core.errors import CausalityError
from happened.ordering import create
from happened.streaming import ByIds, ByProtocol, Watch, deliver, held, to_tables
from happened.wire import encode

COLUMNS = "destination string, id string, after array<string>"
OTHERS = "at timestamp, day date, small int, flag boolean, price decimal(9,2), data binary"
SCHEMA = f"{COLUMNS}, big long, ratio double, nested array<struct<n: long>>, {OTHERS}"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


@pytest.fixture
def settings(setting):
    """Few tasks, and no batches without rows, of which a query with timers has no end."""
    setting("spark.sql.shuffle.partitions", "1")
    setting(NO_DATA, "false")


@pytest.fixture
def new_york(settings, setting):
    """A session in a zone with daylight saving."""
    setting("spark.sql.session.timeZone", "America/New_York")


def message(name, after=None, destination="d", **more):
    return {"destination": destination, "id": name, "after": after} | more


def lines(folder, batches):
    folder.mkdir()
    for number, rows in enumerate(batches):
        path = folder / f"{number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (number, number))  # Spark reads the oldest first


def source(spark, folder):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def run(stream, checkpoint):
    """All rows that come out, by batch."""
    out = {}

    def take(batch, number):
        out[number] = [row.asDict(recursive=True) for row in batch.collect()]

    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return [out[number] for number in sorted(out)]


def told(rows):
    return [(row["id"], row["delivery"], row["status"], row["reason"]) for row in rows]


def test_rows_come_out_in_causal_order_with_every_value_as_it_was(spark, settings, tmp_path):
    big = 2**60 + 1
    nested = [{"n": big}, None, {"n": None}]
    others = {"at": "2026-03-29T02:30:00.123456", "day": "1815-12-10", "small": -7, "flag": False}
    others |= {"price": 0.10, "data": b64encode(b"\0\xff").decode()}
    lines(
        tmp_path / "in",
        [
            [
                message("c", ["b"], big=big, ratio="NaN", nested=nested, **others),
                message("d", ["c"]),  # stored with a list of causes as long as c's
                message("x", destination="e"),
            ],
            [
                message("a", big=None, ratio=None, **others),
                message("c", ["b"]),
                message(None),
                message("n", destination=None),
            ],
            [message("b", ["a"], ratio=0.1), message("z", ["y"]), message("q", [None])],
        ],
    )
    stream = deliver(source(spark, tmp_path / "in"), ByIds(), patience=3600, report_held=True)
    assert stream.columns == [*source(spark, tmp_path / "in").columns, "delivery", "status", "reason"]
    watch = Watch(spark, str(tmp_path / "checkpoint"), metrics=tmp_path / "metrics.json", seconds=0)
    seen = threading.Event()
    watch_progress = watch.onQueryProgress

    def progressed(event):
        watch_progress(event)
        if event.progress.batchId == 2:
            seen.set()

    watch.onQueryProgress = progressed
    spark.streams.addListener(watch)
    try:
        first, second, third = run(stream, tmp_path / "checkpoint")
        assert seen.wait(60)
    finally:
        spark.streams.removeListener(watch)
    assert sorted(told(first), key=str) == [
        ("c", None, "held", "b"),
        ("d", None, "held", "c"),
        ("x", 1, "delivered", None),
    ]
    assert sorted(told(second), key=str) == [
        ("a", 1, "delivered", None),
        ("n", None, "corrupt", "a message without a destination"),
        (None, None, "corrupt", "column id: a message without an id"),
    ]
    assert told(third) == [
        ("q", None, "corrupt", "column after: a cause of q is null"),
        ("b", 2, "delivered", None),
        ("c", 3, "delivered", None),
        ("d", 4, "delivered", None),
        ("z", None, "held", "y"),
    ]
    # c went through the state, and came twice.
    c = third[2]
    assert c["big"] == big and math.isnan(c["ratio"]) and c["nested"] == nested
    names = [part.split()[0] for part in OTHERS.split(", ")]
    (sent,) = spark.read.schema(OTHERS).json(str(tmp_path / "in" / "0.json")).where("small < 0").collect()
    (a,) = [row for row in second if row["id"] == "a"]
    assert [c[name] for name in names] == [a[name] for name in names] == list(sent) and None not in sent
    assert [third[3][name] for name in names] == [None] * len(names)
    assert second[0]["big"] is None and third[1]["ratio"] == 0.1
    (row,) = held(spark, str(tmp_path / "checkpoint"), ByIds()).collect()
    assert (row.destination, row.message, row.waits_for) == ("d", "z", ["y"])
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["batch"], metrics["held"], metrics["rows"]) == (2, 1, 3)
    assert "1 held, the oldest for" in watch.last.line()


MOMENTS = ", ".join(
    [
        "timestamp'2024-07-01 12:34:56.123456' at",
        "timestamp_ntz'2024-07-01 12:34:56.123456' local",
        "timestamp'2024-11-03 05:30:00Z' first_half_past_one",
        "timestamp'2024-11-03 06:30:00Z' second_half_past_one",
        "timestamp'9999-12-31 23:00:00' never",
        "timestamp_ntz'9999-12-31' never_local",
        "timestamp'0001-01-01' ever",
        "timestamp'1850-01-01 00:00:00.000001' sundial",
        "cast(null as timestamp) nothing",
        "named_struct('n', 1L, 't', timestamp'2024-11-03 06:30:00.123456Z',"
        " 'l', timestamp_ntz'2024-03-10 02:30:00.000001') both",
        "array(timestamp'2024-11-03 06:30:00.123456Z', null, timestamp'9999-12-31 23:00:00',"
        " timestamp'1850-01-01') some",
        "map('t', timestamp'2024-11-03 06:30:00Z') named",
    ]
)


def test_moments_come_out_as_they_went_in_also_through_the_state_and_where_clocks_are_set_back(
    spark, new_york, tmp_path
):
    """held() tells when a message came in the session's time."""
    began = time.time()
    for number, after in enumerate(("array('a')", "cast(null as array<string>)")):
        name = "ba"[number]
        part = spark.sql(f"select 'd' destination, '{name}' id, {after} after, {MOMENTS}")
        part.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        stream = spark.readStream.schema(part.schema).parquet(str(tmp_path / "in"))
        ordered = deliver(stream, ByIds(), patience=None)
        assert ordered.dtypes[:-3] == stream.dtypes
        query = ordered.writeStream.option("path", str(tmp_path / "out")).format("parquet")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()
        if name == "b":
            waiting = held(spark, str(tmp_path / "checkpoint"), ByIds())
            ((since,),) = waiting.selectExpr("unix_millis(since)").collect()
            assert began - 1 < since / 1000 < time.time() + 1
    # Compared in Spark: Python has no such moments.
    digits = "yyyy-MM-dd HH:mm:ss.SSSSSS"
    formats = f"map('timestampFormat', '{digits}XXXXX', 'timestampNTZFormat', '{digits}')"
    sent, came = (
        spark.read.parquet(str(tmp_path / place))
        .drop("after", "delivery", "status", "reason")
        .selectExpr(f"to_json(struct(*), {formats}) text")
        for place in ("in", "out")
    )
    assert sorted(row.text for row in came.collect()) == sorted(row.text for row in sent.collect())


def frames(protocol):
    """alice, then bob who has read it, then alice again; all to the sink, which sends nothing."""
    alice, bob, _ = (create(protocol, me, 3) for me in range(3))
    sent = []
    _, effects = alice.multicast([1, 2], b"lunch?")
    sent += [effect.message for effect in effects if effect.to == 2]
    (question,) = [effect.message for effect in effects if effect.to == 1]
    bob.receive(question)
    _, effects = bob.multicast([0, 2], b"at noon")
    sent += [effect.message for effect in effects if effect.to == 2]
    (answer,) = [effect.message for effect in effects if effect.to == 0]
    alice.receive(answer)
    _, effects = alice.multicast([1, 2], b"fine")
    sent += [effect.message for effect in effects if effect.to == 2]
    return sent


def test_frames_wait_for_their_causes_and_go_on_without_one_that_never_comes(spark, settings, tmp_path):
    """The timer of a destination fires although nothing more arrives."""
    first, second, third = (encode(each) for each in frames("ks"))
    spark.conf.set(NO_DATA, "true")
    rows = [("sink", 1, third), ("sink", 2, b"\x01nonsense"), ("sink", 3, second), ("nobody", 4, first)]
    spark.createDataFrame(rows, "destination string, number int, frame binary").coalesce(1).write.parquet(
        str(tmp_path / "in")
    )
    stream = spark.readStream.schema("destination string, number int, frame binary").parquet(
        str(tmp_path / "in")
    )
    rule = ByProtocol("ks", ["alice", "bob", "sink"])
    out, complete = [], threading.Event()

    def take(batch, _):
        out.extend((row.number, row.delivery, row.status, row.reason) for row in batch.collect())
        if len(out) >= 4:
            complete.set()

    ordered = deliver(stream, rule, patience=0.2)
    query = ordered.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = query.trigger(processingTime="0 seconds").start()
    try:
        assert complete.wait(120), query.exception()
    finally:
        query.stop()
    (corrupt,), (astray,) = ([row for row in out if row[0] == number] for number in (2, 4))
    assert corrupt[1:3] == (None, "corrupt") and "protocol" in corrupt[3]
    assert astray[3] == "destination 'nobody' is none of the members"
    assert [row for row in out if row[1]] == [(3, 1, "violated", "alice#1"), (1, 2, "delivered", None)]


def test_dead_letters_have_a_table_of_their_own_and_a_batch_that_is_run_again_repeats_nothing(
    spark, settings, tmp_path
):
    spark.conf.set(NO_DATA, "true")
    first = [message("a"), message("c", ["b"]), message("d", ["c"]), message("e", ["a"]), message(None)]
    lines(tmp_path / "in", [first])
    places = {name: str(tmp_path / name) for name in ("deliveries", "dead_letters", "checkpoint")}

    def table(name):
        """As it is while the query runs: the parts that are there."""
        parts = (tmp_path / name).glob("batch=*/part-*.parquet")
        return sorted(told(row for part in parts for row in pq.ParquetFile(part).read().to_pylist()), key=str)

    def until_dead(count):
        ordered = deliver(
            source(spark, tmp_path / "in"),
            ByIds(),
            patience=0.2,
            after_patience="dead-letter",
            report_held=True,
        )
        query = to_tables(ordered, **places).trigger(processingTime="0 seconds").start()
        try:
            deadline = time.monotonic() + 120
            while len(table("dead_letters")) < count:
                assert query.exception() is None and time.monotonic() < deadline
                query.awaitTermination(0.2)
        finally:
            query.stop()

    until_dead(3)
    dead = [
        ("c", None, "dead", "b"),
        ("d", None, "dead", "c"),
        (None, None, "corrupt", "column id: a message without an id"),
    ]
    delivered = [("a", 1, "delivered", None), ("e", 2, "delivered", None)]
    assert (table("dead_letters"), table("deliveries")) == (sorted(dead, key=str), delivered)
    # A driver that died after it had written, and before Spark noted that.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    (tmp_path / "in" / "1.json").write_text(
        json.dumps(message("f", ["a"])) + "\n" + json.dumps(message("g", ["h"]))
    )
    until_dead(4)
    assert table("dead_letters") == sorted([*dead, ("g", None, "dead", "h")], key=str)
    assert table("deliveries") == [*delivered, ("f", 3, "delivered", None)]
    assert spark.read.parquet(places["dead_letters"]).where("status = 'dead'").count() == 3


def test_tables_are_made_of_what_deliver_gives_and_are_two(spark):
    stream = spark.readStream.format("rate").load().selectExpr("string(value) id", "'d' destination")
    places = {"deliveries": "x", "dead_letters": "y", "checkpoint": "z"}
    with pytest.raises(CausalityError, match="'delivery' is missing"):
        to_tables(stream, **places)
    ordered = deliver(stream.selectExpr("*", "array('a') after"), ByIds(), patience=1)
    with pytest.raises(CausalityError, match="two directories"):
        to_tables(ordered, **places | {"dead_letters": "x/"})


def test_what_cannot_work_is_refused_before_anything_runs(spark):
    stream = spark.readStream.format("rate").load().selectExpr("string(value) id", "'d' destination")
    with pytest.raises(CausalityError, match=r"no column 'after'; it has id, destination"):
        deliver(stream, ByIds(), patience=1)
    wrong = stream.selectExpr("*", "array(1) after")
    with pytest.raises(CausalityError, match=r"column 'after' is array<int> and must be array<string>"):
        deliver(wrong, ByIds(), patience=1)
    right = stream.selectExpr("*", "array('a') after")
    with pytest.raises(CausalityError, match="adds a column 'status', which the stream has"):
        deliver(right.selectExpr("*", "1 status"), ByIds(), patience=1)
    with pytest.raises(CausalityError, match="adds a column 'status', which the stream has as 'Status'"):
        deliver(right.selectExpr("*", "1 Status"), ByIds(), patience=1)
    for column in ("map(1L, 'x')", "array(named_struct('m', map(1, 2.0d)))"):
        with pytest.raises(CausalityError, match=r"column 'counts' is .* a map whose keys are no strings"):
            deliver(right.selectExpr("*", f"{column} counts"), ByIds(), patience=1)
    for options in (
        {"patience": 0},
        {"patience": 1, "after_patience": "drop"},
        {"patience": 1, "remember": 0},
    ):
        with pytest.raises(CausalityError):
            deliver(right, ByIds(), **options)
    with pytest.raises(CausalityError, match="no ordering protocol is called 'fifo'"):
        ByProtocol("fifo", ["a", "b"])
    with pytest.raises(CausalityError, match="sequencer needs more than the messages that arrive"):
        ByProtocol("sequencer", ["a", "b"])
