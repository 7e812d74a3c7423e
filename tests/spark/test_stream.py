"""`happened stream` on Spark: batches of files, of growing lines, and of any streaming DataFrame."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import happened.spark as hs
from causality import traces
from causality.test_live import early, pairs, random_rows, stamps
from happened.causality.analysis import analyse
from happened.causality.judgement import judge_totals
from happened.causality.live import Rules
from happened.core.errors import CausalityError, TraceFormatError
from happened.spark.live.bucket import Bucket
from happened.spark.live.live_job import FORMAT, committed, follow, last_manifest
from happened.spark.live.trace_source import FileRange, TraceReader, TraceSource, TraceTail
from happened.spark.versions import has

QUESTIONS = ["stamp", "predecessors", "order"]


def rows_in(out, table):
    return [row for part in committed(out, table) for row in pq.read_table(part).to_pylist()]


def line(row):
    return json.dumps({name: value for name, value in row.items() if value is not None}) + "\n"


def assert_told_as_the_whole(out, rows):
    whole = analyse(traces.table(rows), questions=QUESTIONS)
    numbers = {row["p"]: row["process"] for row in whole.table("processes").to_pylist()}
    names = {row["p"]: row["process"] for row in rows_in(out, "processes")}
    found = rows_in(out, "stamps")
    assert len(found) == len(rows)
    assert stamps(found, names) == stamps(whole.table("stamps").to_pylist(), numbers)
    assert pairs(rows_in(out, "predecessors")) == pairs(whole.table("predecessors").to_pylist())
    violations = whole.table("violations").to_pylist()
    assert early(rows_in(out, "violations"), "early_event") == early(violations, "early_event")


def one_computation(dice):
    return [row | {"relevant": False} for row in random_rows(dice, steps=80)]


def test_the_command_tells_of_a_growing_directory_what_the_batch_tells(
    command, spark, tmp_path, seed, capsys
):
    dice = random.Random(seed)
    rows = one_computation(dice)
    lines = [line(row) for row in rows]
    dice.shuffle(lines)
    trace, out = tmp_path / "in", tmp_path / "out"
    trace.mkdir()
    (trace / "a.jsonl").write_text("".join(lines[:31]))
    (trace / "b.jsonl").write_text("".join(lines[31:]) + "no event\n" + lines[3])
    limit = ["--batch-bytes", "5000"]
    if not has("a limit of a batch"):
        assert command(["stream", str(trace), "--out", str(out), *limit]) == 2
        assert "a limit of a batch needs PySpark 4.2 or newer" in capsys.readouterr().err
        limit = []
    code = command(["stream", str(trace), "--out", str(out), *limit, "--json"])
    totals = json.loads(capsys.readouterr().out)
    assert_told_as_the_whole(out, rows)
    whole = analyse(traces.table(rows), questions=["order"]).totals
    judged = {name: totals[name] for name in totals if name in whole}
    assert judged == {name: whole[name] for name in judged} and totals["quarantined"] == 1
    assert code == judge_totals(whole | {"quarantined": 1}).exit_code
    assert totals["events"] == len(rows) and totals["duplicates"] == 1
    assert any("no event" in row["reason"] for row in rows_in(out, "quarantine"))
    assert last_manifest(out)["batch"] >= (1 if limit else 0)
    assert json.loads((out / "progress.json").read_text())["told"] == len(rows)
    assert command(["stream", str(trace), "--out", str(out)]) == 2
    assert "has the final tables of a trace that has ended" in capsys.readouterr().err


def write_lines(folder, rows, parts):
    folder.mkdir()
    size = -(-len(rows) // parts)
    for k in range(parts):
        (folder / f"{k:03d}.jsonl").write_text("".join(map(line, rows[k * size : (k + 1) * size])))


def refused(spark, trace, out, **more):
    with pytest.raises(CausalityError) as error:
        follow(spark, trace, out, checkpoint=str(out / "c"), **more)
    return str(error.value)


def test_what_was_begun_otherwise_is_not_gone_on_with(command, spark, tmp_path, capsys):
    rows = one_computation(random.Random(2))
    write_lines(tmp_path / "in", rows, 1)
    (tmp_path / "other").mkdir()
    out = tmp_path / "out"
    begun = {"format": FORMAT, "version": "1", "batch": 0, "finished": False, "parts": [], "totals": {}}
    rules = Rules(retire=600_000)
    about = {"trace": TraceTail(str(tmp_path / "in")).name, "rules": [*vars(rules).values()], "buckets": 16}
    about["questions"] = ["order", "predecessors", "stamp"]
    (out / "commits").mkdir(parents=True)
    manifest = out / "commits" / "000000000.json"
    manifest.write_text(json.dumps(begun | {"about": about}))
    assert "other rules" in refused(spark, tmp_path / "in", out, rules=Rules(retire=7))
    assert "begun with another trace" in refused(spark, tmp_path / "other", out, rules=rules)
    manifest.write_text(json.dumps(begun | {"about": about, "format": FORMAT + 1}))
    assert "cannot resume" in refused(spark, tmp_path / "in", out, rules=rules)


@pytest.fixture
def streaming(spark, setting):
    """Queries on what is there now end only without batches for timers."""
    setting("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    return spark


def run(writer):
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_frames_in_and_out_and_rows_that_are_no_events_are_quarantined(streaming, tmp_path, seed):
    """All tables by one query, one table by a query of its own; then silence, after which nothing is kept."""
    dice = random.Random(seed)
    rows = [row | {"computation": name} for name in "xyz" for row in one_computation(dice)]
    dice.shuffle(rows)
    write_lines(tmp_path / "in", rows, 3)
    with (tmp_path / "in" / "002.jsonl").open("a") as file:
        file.write('no event\n{"process": "p", "seq": 1, "kind": "guess"}\n')
    streaming.dataSource.register(TraceSource)
    events = streaming.readStream.format("happened").load(str(tmp_path / "in"))
    answers = hs.stream(events, retire=1.0, buckets=3)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    writer = answers.to_tables(str(out), checkpoint=str(checkpoint))
    streaming.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    query = writer.trigger(processingTime="200 milliseconds").start()
    deadline, kept = time.monotonic() + 240, [0]
    while (max(kept) == 0 or kept[-1] > 0) and time.monotonic() < deadline:
        time.sleep(0.2)  # Spark makes batches without rows, so that timers fire
        states = [each["stateOperators"] for each in query.recentProgress if each["stateOperators"]]
        kept = [0, *(state["numRowsTotal"] for (state,) in states)]
    query.stop()
    assert kept[-1] == 0 < max(kept)
    streaming.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    found = answers.violations.where("order_name = 'causal'").select("computation", "early_event")
    early_ones = found.writeStream.format("memory").queryName("early_ones").outputMode("append")
    run(early_ones.option("checkpointLocation", str(tmp_path / "other")))

    def read(name):
        return streaming.read.parquet(str(out / name)).drop("batch").toPandas().to_dict("records")

    quarantined = {row["reason"] for row in read("quarantine")}
    assert any("no event" in each for each in quarantined) and any("guess" in each for each in quarantined)
    totals = Counter()
    for row in read("totals"):
        totals[row["name"]] += row["count"]
    assert totals["live"] == totals["held"] == totals["state_bytes"] == 0
    whole = analyse(traces.table(rows), questions=QUESTIONS)
    for name in ("events", "messages", "lost", "causal_violations", "lost_causes", "ordered_pairs"):
        assert totals[name] == whole.totals[name], name
    assert sorted((row["computation"], row["event"]) for row in read("stamps")) == sorted(
        (row["computation"], row["event"]) for row in whole.table("stamps").to_pylist()
    )
    causal = [row for row in whole.table("violations").to_pylist() if row["order_name"] == "causal"]
    memory = streaming.sql("select * from early_ones").collect()
    # What is early only by events that waited for others until the end is told at the end.
    assert {tuple(row) for row in memory} <= {(row["computation"], row["early_event"]) for row in causal}
    assert len(memory) == len({tuple(row) for row in memory})


def test_with_a_watermark_computations_end_by_event_time_and_late_rows_are_named(streaming, tmp_path):
    def at(second, name, process="p", seq=1):
        row = {"computation": name, "process": process, "seq": seq, "kind": "internal"}
        return row | {"at": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}"}

    batches = [
        [at(0, "a"), at(1, "b")],
        [at(100, "c")],
        [at(101, "c", seq=2)],  # the watermark is at 90 now: a and b are finished
        [at(5, "a", seq=2), at(2, "c", "q"), at(110, "d")],
    ]
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(batches):
        path = tmp_path / "in" / f"{number}.json"
        path.write_text("".join(map(line, rows)))
        os.utime(path, (number, number))
    reader = streaming.readStream.option("maxFilesPerTrigger", 1)
    columns = "computation string, process string, seq long, kind string, at timestamp"
    events = reader.schema(columns).json(str(tmp_path / "in")).withWatermark("at", "10 seconds")
    answers = hs.stream(events, retire=20.0, event_time="at", buckets=1)
    out = tmp_path / "out"
    run(answers.to_tables(str(out), checkpoint=str(tmp_path / "checkpoint")))

    def read(name):
        return [row.asDict() for row in streaming.read.parquet(str(out / name)).collect()]

    (late,) = read("quarantine")
    assert late["computation"] == "a" and late["reason"].startswith("p#2 is late")
    told = sorted((row["computation"], row["event"]) for row in read("stamps"))
    assert told == [("a", "p#1"), ("b", "p#1"), ("c", "p#1"), ("c", "p#2"), ("c", "q#1"), ("d", "p#1")]
    counts = Counter()
    for row in read("totals"):
        counts[row["name"]] += row["count"]
    assert counts["late"] == 1 and counts["live"] == 2  # c and d


def test_what_cannot_be_streamed_is_refused(spark, tmp_path):
    write_lines(tmp_path / "in", one_computation(random.Random(1)), 1)
    spark.dataSource.register(TraceSource)
    events = spark.readStream.format("happened").load(str(tmp_path / "in"))
    with pytest.raises(CausalityError, match="is not answered by a stream"):
        hs.stream(events, questions=["necessary"])
    with pytest.raises(CausalityError, match="takes a streaming frame"):
        hs.stream(hs.read_trace(spark, tmp_path / "in" / "000.jsonl"))
    with pytest.raises(CausalityError, match="above 0"):
        hs.stream(events, retire=0)
    answers = hs.stream(events, questions=["order"])
    assert answers.tables == ("violations", "lost_causes", "quarantine", "totals")
    with pytest.raises(CausalityError, match="is no table of this stream"):
        answers.table("stamps")


def test_partitions_are_the_columns_that_their_directories_name(tmp_path):
    for name in ("c1", "c2"):
        folder = tmp_path / f"computation={name}"
        folder.mkdir()
        rows = traces.table([{"process": "p", "seq": 1, "kind": "internal", "label": name}])
        pq.write_table(rows.drop_columns(["computation"]), folder / "a.parquet")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "no-part.parquet").write_bytes(b"")
    tail = TraceTail(str(tmp_path))
    position = tail.latest({})
    assert sorted(position) == ["computation=c1/a.parquet", "computation=c2/a.parquet"]
    found = [tail.split(each).read().events.to_pylist() for each in tail.stretches({}, position)]
    assert [(row["computation"], row["label"]) for (row,) in found] == [("c1", "c1"), ("c2", "c2")]


def test_what_appears_while_a_stream_is_read_to_its_end_takes_nothing_of_the_limit(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(b"0123456789\n")
    tail = TraceTail(str(tmp_path))
    target = tail.latest({})
    (tmp_path / "a.jsonl.gz").write_bytes(b"0123456789\n")
    assert tail.latest({}, 5, target) == target


def test_a_tail_reads_whole_lines_and_keeps_to_its_limit(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"0123456\n01234567890123456789\n012")
    tail = TraceTail(str(tmp_path))
    assert tail.latest({}) == {"a.jsonl": 29}
    assert tail.latest({}, 10) == {"a.jsonl": 8}
    assert tail.latest({"a.jsonl": 8}, 10) == {"a.jsonl": 29}  # the next line is longer than the limit
    assert tail.latest({"a.jsonl": 29}) == {"a.jsonl": 29}
    (tmp_path / "b.jsonl").write_bytes(b"xyz\n")
    (tmp_path / "_c.jsonl").write_bytes(b"xyz\n")
    assert tail.latest({}, 10) == {"a.jsonl": 8, "b.jsonl": 4}
    assert tail.stretches({"a.jsonl": 8}, {"a.jsonl": 29}) == [FileRange("a.jsonl", 8, 29)]
    path.write_bytes(b"0\n")
    with pytest.raises(TraceFormatError, match="files of a trace only grow"):
        tail.latest({"a.jsonl": 29})


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    reader = TraceReader(str(tmp_path), None)
    (part,) = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(TraceFormatError, match=r"a\.jsonl: was there when the batch was planned and is gone"):
        list(reader.read(part))


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, "reads a path"),
        ({"path": "x", "maxBytesPerTrigger": "-1"}, "number of bytes above 0"),
        ({"path": "x", "malformed": "guess"}, 'malformed is "quarantine", "fail" or "skip"'),
        ({"path": "x", "ended": "perhaps"}, 'ended is "true" or "false"'),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    with pytest.raises(CausalityError, match=told):
        TraceSource(options).streamReader(None)


@pytest.mark.parametrize("malformed", [b"no event", b'{"process": "a", "seq": 1}', b"[1]"])
def test_a_row_that_is_no_event_stays_ends_the_query_or_is_left_out(malformed, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(malformed + b'\n{"process": "a", "seq": 2, "kind": "internal"}\n')

    def read(**more):
        reader = TraceSource({"path": str(tmp_path), **more}).streamReader(None)
        parts = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
        return [row["seq"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

    assert read(malformed="skip") == [2]
    with pytest.raises(
        TraceFormatError, match=r"a\.jsonl: 1 rows? between its bytes 0 and .* are not events"
    ):
        read(malformed="fail")
    assert sorted(read(), key=str) in ([1, 2], [2, None])  # for hs.stream to quarantine


UNENDED = b'{"process": "a", "seq": 1, "kind": "internal"}\n{"process": "a", "seq": 2, "kind": "internal"}'


@pytest.mark.skipif(not has("a limit of a batch"), reason="PySpark before 4.2 has no limits")
def test_of_a_trace_that_has_ended_the_last_line_counts_although_nothing_ends_it(tmp_path):
    """As `happened check` reads it; of a trace that grows, the rest of the line may still come."""
    (tmp_path / "a.jsonl").write_bytes(UNENDED)
    for ended, expected in (("true", [1, 2]), ("false", [1])):
        for limit in ("1", "50", "1000"):
            options = {"path": str(tmp_path), "maxBytesPerTrigger": limit, "ended": ended}
            reader = TraceSource(options).streamReader(None)
            reader.prepareForTriggerAvailableNow()
            at, read = reader.initialOffset(), []
            while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
                for part in reader.partitions(at, end):
                    read += [row["seq"] for batch in reader.read(part) for row in batch.to_pylist()]
                at = end
            assert read == expected


@pytest.mark.slow
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_trace_that_is_followed_is_judged_when_that_is_ended(tmp_path, by):
    """On Spark, which has handlers of its own: one line of judgement, and its exit code."""
    rows = [
        {"process": "p", "seq": 1, "kind": "send", "message": "m1", "to": ["q"]},
        {"process": "p", "seq": 2, "kind": "send", "message": "m2", "to": ["q"]},
        {"process": "q", "seq": 1, "kind": "deliver", "message": "m2"},
        {"process": "q", "seq": 2, "kind": "deliver", "message": "m1"},
    ]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["stream", "trace.jsonl", "--out", "live", "--follow", "--master", "local[1]"]
    process = subprocess.Popen(
        [sys.executable, "-m", "happened", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 240
    while not (tmp_path / "live" / "progress.json").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(by)
    told, noted = process.communicate(timeout=120)
    assert process.returncode == 1, noted
    assert told.startswith("causal order VIOLATED") and "Traceback" not in noted


def test_files_that_are_read_within_a_limit_are_read_side_by_side(tmp_path):
    """Two processes that talk to each other wait for each other: if one file were read to its end first, its
    events would be let go (--settle) before what they wait for, which is there, was read."""
    logs, seq = {"a": "", "b": ""}, {"a": 0, "b": 0}
    for number in range(200):
        sender, receiver = ("b", "a") if number % 2 else ("a", "b")
        for process, kind in ((sender, "send"), (receiver, "deliver")):
            seq[process] += 1
            row = {"process": process, "seq": seq[process], "kind": kind, "message": str(number)}
            logs[process] += line(row | {"to": [receiver] if kind == "send" else None})
    trace = tmp_path / "trace"
    trace.mkdir()
    for process, log in logs.items():
        (trace / f"{process}.jsonl").write_text(log)
    tail, bucket, head = TraceTail(str(trace)), {}, None
    at, batch, totals = {}, 0, Counter()
    while (end := tail.latest(at, 1000)) != at:
        read = [tail.split(stretch).read().events for stretch in tail.stretches(at, end)]
        live = Bucket(Kept(bucket), head, Rules(retire=5))
        answers = live.arrive(pa.concat_tables(read), batch)
        answers.join(live.expire(batch))
        head = live.close(answers)
        totals.update(answers.totals)
        at, batch = end, batch + 1
    assert (totals["events"], totals["quarantined"]) == (400, 0)
    assert batch > 20


class Kept:
    """Pages of a bucket."""

    def __init__(self, pages):
        self.read, self.write, self.remove = pages.__getitem__, pages.__setitem__, pages.pop
