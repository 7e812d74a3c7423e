"""`happened stream` on Spark: batches of files, of growing lines, and of any streaming DataFrame."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causality import traces
from causality.test_live import early, pairs, random_rows, stamps
from happened.causality.analysis import analyse
from happened.causality.judgement import judge_totals
from happened.causality.live import Rules
from happened.causality.questions import QUARANTINE
from happened.cli import main
from happened.core.errors import CausalityError, TraceFormatError
from happened.spark.live import live_job
from happened.spark.live.live_job import LiveTables, committed, follow, last_manifest
from happened.spark.live.trace_source import TraceReader, TraceSource
from happened.spark.live.trace_tail import Stretch, TraceTail

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


NOTHING = QUARANTINE.empty_table()


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
    code = command(["stream", str(trace), "--out", str(out), "--batch-bytes", "5000", "--json"])
    totals = json.loads(capsys.readouterr().out)
    assert_told_as_the_whole(out, rows)
    whole = analyse(traces.table(rows), questions=["order"]).totals
    judged = {name: totals[name] for name in totals if name in whole}
    assert judged == {name: whole[name] for name in judged} and totals["quarantined"] == 1
    assert code == judge_totals(whole | {"quarantined": 1}).exit_code
    assert totals["events"] == len(rows) and totals["duplicates"] == 1
    assert any("no event" in row["reason"] for row in rows_in(out, "quarantine"))
    assert last_manifest(out)["batch"] >= 1
    assert json.loads((out / "progress.json").read_text())["told"] == len(rows)
    assert command(["stream", str(trace), "--out", str(out)]) == 2
    assert "told to its end" in capsys.readouterr().err


def test_any_streaming_frame_of_events_can_be_followed(spark, tmp_path, seed):
    rows = one_computation(random.Random(seed))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(map(line, rows)))
    spark.dataSource.register(TraceSource)
    reader = spark.readStream.format("happened").option("maxBytesPerTrigger", "6000")
    events = reader.load(str(tmp_path / "in"))
    query, tables = follow(events, tmp_path / "out", checkpoint=str(tmp_path / "checkpoint"), once=True)
    query.awaitTermination()
    tables.finish()
    assert_told_as_the_whole(tmp_path / "out", rows)


def test_a_batch_that_is_run_again_is_skipped_and_one_without_manifest_is_written_over(tmp_path):
    rows = one_computation(random.Random(1))
    first, second = traces.table(rows[:20]), traces.table(rows[20:])
    empty = QUARANTINE.empty_table()
    tables = LiveTables(tmp_path / "out", Rules())
    tables.take(0, first, empty)
    tables.take(0, first, empty)
    # A crash after the tables and the state, before the manifest:
    lost = LiveTables(tmp_path / "out", Rules())
    lost.take(1, second, empty)
    (tmp_path / "out" / "commits" / "000000001.json").unlink()
    again = LiveTables(tmp_path / "out", Rules())
    assert again.last == 0
    again.take(1, second, empty)
    again.finish()
    assert_told_as_the_whole(tmp_path / "out", rows)
    with pytest.raises(CausalityError, match="told to its end"):
        LiveTables(tmp_path / "out", Rules())


def test_other_rules_than_at_the_start_are_refused(tmp_path):
    tables = LiveTables(tmp_path, Rules())
    tables.take(0, traces.table(one_computation(random.Random(2))), QUARANTINE.empty_table())
    with pytest.raises(CausalityError, match="other rules"):
        LiveTables(tmp_path, Rules(retire=7))


def test_the_tables_of_another_trace_are_not_gone_on_with(tmp_path):
    LiveTables(tmp_path, Rules(), "/here").take(0, traces.table(one_computation(random.Random(2))), NOTHING)
    LiveTables(tmp_path, Rules(), "/here")
    with pytest.raises(CausalityError, match="begun with another trace, /here"):
        LiveTables(tmp_path, Rules(), "/there")


def test_nothing_more_is_told_of_a_computation_that_was_given_up(tmp_path):
    """A message is sent twice; what comes after that has causes which nobody knows any more."""
    rows = [
        {"process": "p", "seq": 1, "kind": "send", "message": "m", "to": ["q"]},
        {"process": "p", "seq": 2, "kind": "send", "message": "m", "to": ["q"]},
        {"process": "q", "seq": 1, "kind": "deliver", "message": "m"},
        {"process": "q", "seq": 2, "kind": "internal"},
    ]
    tables = LiveTables(tmp_path, Rules())
    tables.take(0, traces.table(rows[:1]), NOTHING)
    tables.take(1, traces.table(rows[1:2]), NOTHING)
    again = LiveTables(tmp_path, Rules())
    again.take(2, traces.table(rows[2:]), NOTHING)
    again.finish()
    assert again.totals["quarantined"] == 3 and again.totals["events"] == 1
    assert again.totals["never_sent"] == 0
    assert [row["p"] for row in rows_in(tmp_path, "processes") if row["process"] == "p"] == [0]


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
    assert tail.stretches({"a.jsonl": 8}, {"a.jsonl": 29}) == [Stretch("a.jsonl", 8, 29)]
    path.write_bytes(b"0\n")
    with pytest.raises(TraceFormatError, match="files of a trace only grow"):
        tail.latest({"a.jsonl": 29})


def test_a_file_that_vanishes_before_it_is_read_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n")
    reader = TraceReader(str(tmp_path), None, False)
    (part,) = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(TraceFormatError, match=r"a\.jsonl: was there when the batch was planned and is gone"):
        list(reader.read(part))


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, "reads a path"),
        ({"path": "x", "maxBytesPerTrigger": "-1"}, "number of bytes above 0"),
        ({"path": "x", "malformed": "guess"}, 'malformed is "fail" or "skip"'),
        ({"path": "x", "ended": "perhaps"}, 'ended is "true" or "false"'),
    ],
)
def test_options_that_make_no_sense_are_refused(options, told):
    with pytest.raises(CausalityError, match=told):
        TraceSource(options).streamReader(None)


@pytest.mark.parametrize("malformed", [b"no event", b'{"process": "a", "seq": 1}', b"[1]"])
def test_a_row_that_is_no_event_ends_a_query_unless_it_is_to_be_left_out(malformed, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(malformed + b'\n{"process": "a", "seq": 2, "kind": "internal"}\n')

    def read(**more):
        reader = TraceSource({"path": str(tmp_path), **more}).streamReader(None)
        parts = reader.partitions({}, reader.latestOffset({}, reader.getDefaultReadLimit()))
        return [row["seq"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

    assert read(malformed="skip") == [2]
    with pytest.raises(TraceFormatError, match=r"a\.jsonl: 1 rows? between its bytes 0 and .* no event"):
        read()


UNENDED = b'{"process": "a", "seq": 1, "kind": "internal"}\n{"process": "a", "seq": 2, "kind": "internal"}'


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


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_before_its_end_can_be_gone_on_with(tmp_path, monkeypatch, by):
    """What is held waits for events that nobody has read yet: it is not told as missing."""
    rows = one_computation(random.Random(3))
    out, trace = tmp_path / "out", tmp_path / "trace.jsonl"
    trace.write_text("".join(map(line, rows)))

    class Query:
        stopped = False

        def awaitTermination(self, seconds):
            os.kill(os.getpid(), by)
            return self.stopped

        def stop(self):
            self.stopped = True

    query, tables = Query(), LiveTables(out, Rules())
    tables.take(0, traces.table(rows[1::2]), QUARANTINE.empty_table())
    monkeypatch.setattr(live_job, "stretches", lambda *_, **__: None)
    monkeypatch.setattr(live_job, "follow", lambda *_, **__: (query, tables))
    monkeypatch.setattr("happened.spark.session.session", lambda master: None)
    assert main(["stream", str(trace), "--out", str(out)]) == 130
    assert query.stopped
    again = LiveTables(out, Rules())
    again.take(1, traces.table(rows[::2]), QUARANTINE.empty_table())
    again.finish()
    assert_told_as_the_whole(out, rows)


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
    events would be let go (--retire) before what they wait for, which is there, was read."""
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
    tail, tables = TraceTail(str(trace)), LiveTables(tmp_path / "out", Rules(retire=5))
    at, batch = {}, 0
    while (end := tail.latest(at, 1000)) != at:
        read = [tail.split(stretch).read() for stretch in tail.stretches(at, end)]
        tables.take(batch, *map(pa.concat_tables, zip(*read, strict=True)))
        at, batch = end, batch + 1
    tables.finish()
    assert (tables.totals["events"], tables.totals["quarantined"]) == (400, 0)
    assert batch > 20
