"""Importing on Spark, in pieces, gives what importing in one process gives."""

import json
from random import Random

import pyarrow.parquet as pq
import pytest

from happened import trace
from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.spark import log_import
from happened.spark.log_import import run
from happened.trace.importing import import_files
from happened.trace.readers import FORMATS, Draft, Options, open_source
from happened.trace.readers.draft import PACKED, packed_table
from happened.trace.store import any_path
from spark.span_tables import otlp_file, random_spans
from spark.test_tasks_in_a_store import executors  # noqa: F401

HEADER = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration\n"


@pytest.fixture(autouse=True)
def few_partitions(setting):
    setting("spark.sql.shuffle.partitions", "3")


def requests(dice, count):
    """Spans of some request traces, shuffled, with a few lines that are none."""
    lines = []
    for trace_id in range(count):
        spans = []
        for span in range(dice.randint(1, 8)):
            parent = dice.choice(spans) if spans else "root"
            spans.append(f"s{span}")
            start = dice.randint(0, 99)
            lines.append(f"t{trace_id},s{span},{parent},pod-{dice.choice('abc')},op,{start},{start + 9},9\n")
    lines += ["t0,broken\n"] * 3 + ["t1,s9,gone,pod-a,op,1,2,1\n"]
    dice.shuffle(lines)
    return HEADER + "".join(lines)


def contents(out):
    """Rows and leftovers, whatever part they are in."""
    rows = trace.read(out).to_pylist()
    left_out = pq.read_table(out / "quarantine").to_pylist()
    return (
        sorted(rows, key=lambda row: (row["computation"], row["process"], row["seq"])),
        sorted(left_out, key=lambda row: (row["line"], row["reason"])),
    )


def test_a_table_in_pieces_is_the_table(spark, dice, tmp_path):
    path = tmp_path / "spans.csv"
    path.write_text(requests(dice, 120))
    on_spark = run(spark, [path], tmp_path / "spark", piece_bytes=2000)
    alone = import_files([path], tmp_path / "alone")
    assert path.stat().st_size > 6000
    assert contents(tmp_path / "spark") == contents(tmp_path / "alone")
    assert alone.summary["quarantined"] == 4
    for name in ("format", "computations", "processes", "events", "quarantined", "quarantined_imported"):
        assert on_spark.summary[name] == alone.summary[name]
    assert on_spark.summary["files"][0]["records"] == alone.summary["files"][0]["records"]
    assert sorted(each.name for each in (tmp_path / "spark").iterdir()) == [
        "import.json",
        "quarantine",
        "trace",
    ]


def test_traces_linked_in_a_row_are_one_computation(spark, tmp_path):
    def span(trace_id, linked):
        links = f', "references": [{{"refType": "FOLLOWS_FROM", "traceID": "{linked}", "spanID": "s"}}]'
        return (
            f'{{"traceID": "{trace_id}", "spanID": "s", "startTime": 1, "duration": 1, '
            f'"process": {{"serviceName": "web"}}{links if linked else ""}}}'
        )

    order = [f"t{n}" for n in (7, 3, 9, 1, 8, 2, 6)]
    chained = [span(a, b) for a, b in zip(order, [None, *order[:-1]], strict=True)]
    path = tmp_path / "traces.json"
    path.write_text(f'{{"spans": [{", ".join([*chained, span("apart", None)])}]}}')
    run(spark, [path], tmp_path / "spark", format="jaeger")
    import_files([path], tmp_path / "alone", format="jaeger")
    assert contents(tmp_path / "spark") == contents(tmp_path / "alone")
    assert {row["computation"] for row in contents(tmp_path / "spark")[0]} == {"t1", "apart"}


def test_what_a_task_refuses_is_said_as_if_there_were_no_tasks(spark, tmp_path):
    path = tmp_path / "log"
    path.write_text("no clock here\n")
    with pytest.raises(TraceFormatError, match="matches 0 of 1 lines"):
        run(spark, [path], tmp_path / "out", options=Options(regex=r"(?<host>\d) (?<clock>{}) (?<event>.)"))
    path.write_text("0 1 active\nnonsense\n")
    with pytest.raises(TraceFormatError, match=f"{path}:2: is not `node"):
        run(spark, [path], tmp_path / "out", format="peterson", strict=True)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_events_is_an_error(spark, tmp_path):
    path = tmp_path / "log"
    path.touch()
    with pytest.raises(TraceFormatError, match=f"no events were found: {path}: is empty"):
        run(spark, [path], tmp_path / "out", format="tokens")
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_takes_a_master(spark, tmp_path, capsys):
    path = tmp_path / "ring.trace"
    path.write_text("0 1 active\n")
    assert main(["import", str(path), "--out", str(tmp_path / "out"), "--master", "local[2]"]) == 0
    out, err = capsys.readouterr()
    assert "events                    1" in out
    assert "importing on Spark (local[2])" in err


def test_counts_of_files_and_facts_survive(spark, dice, tmp_path):
    """Of files that were read in pieces too."""
    header, *lines = requests(dice, 40).splitlines(keepends=True)
    (tmp_path / "a.csv").write_text(header + "".join(lines[: len(lines) // 2]))
    (tmp_path / "b.csv").write_text(header + "".join(lines[len(lines) // 2 :]))
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    on_spark = run(spark, files, tmp_path / "spark", piece_bytes=1000)
    alone = import_files(files, tmp_path / "alone")
    said = [
        done.summary.pop("quarantine_examples") for done in (on_spark, alone)
    ]  # in the order they were met
    assert sorted(said[0]) == sorted(said[1])
    assert on_spark.summary == alone.summary
    assert alone.summary["files"][0]["pods"] == 3 and alone.summary["facts"]["detached_spans"] > 0


def test_traces_that_share_a_key_are_joined(spark, tmp_path):
    def span(number, kind, key):
        tags = {"kafka.topic": "orders", "kafka.key": key}
        place = {"serviceName": "shop", "ipv4": "10.0.0.1"}
        given = {"traceId": f"t{number}", "id": "1", "kind": kind, "timestamp": number, "tags": tags}
        return given | {"name": f"n{number}", "localEndpoint": place}

    spans = [span(number, "PRODUCER", f"k{number % 3}") for number in range(9)]
    path = tmp_path / "spans.json"
    path.write_text(json.dumps(spans))
    on_spark = run(spark, [path], tmp_path / "spark")
    alone = import_files([path], tmp_path / "alone")
    assert contents(tmp_path / "spark") == contents(tmp_path / "alone")
    assert alone.summary["computations"] == on_spark.summary["computations"] == 3


def test_a_large_piece_is_passed_on_in_stretches(tmp_path, seed, monkeypatch):
    """Without Spark: what tasks give to buckets, and what becomes of it, however a piece is cut."""
    (tmp_path / "spans.csv").write_text(HEADER + "".join(requests(Random(seed), 30)))
    source = open_source(tmp_path / "spans.csv", "")
    drafts = [each for each in FORMATS["nezha"].parse(source, Options()) if isinstance(each, Draft)]
    work = tmp_path / "work"
    (work / "drafts").mkdir(parents=True)
    with pq.ParquetWriter(work / "drafts" / "parsed-000000.parquet", PACKED) as writer:
        for at in range(0, len(drafts), 20):
            writer.write_table(packed_table(drafts[at : at + 20]))
    told = []
    for together in (1, 2, 1000):
        monkeypatch.setattr(log_import, "GROUPS_AT_ONCE", together)
        stretches = log_import._stretches(work / "drafts" / "parsed-000000.parquet")
        out = tmp_path / f"by-{together}"
        assembling = log_import._Assembling("nezha", Options(), out, work, stretches, buckets=3)
        given = [blob for number in range(len(stretches)) for blob in assembling.emit(number).blobs]
        for bucket in range(3):
            assembling.settle(bucket, [blob for home, blob in given if home == bucket])
        told.append((len(stretches), pq.read_table(out / "trace")))
    groups = -(-len(drafts) // 20)
    assert [count for count, _ in told] == [groups, -(-groups // 2), 1] and groups > 2
    assert all(table.num_rows > len(drafts) and table.equals(told[0][1]) for _, table in told)


def test_urls_are_read_and_written_as_paths_are(executors, spark, bucket, dice, tmp_path):  # noqa: F811
    process = '"process": {{"serviceName": "web"}}'
    span = f'{{{{"traceID": "{{}}", "spanID": "s", "startTime": 1, "duration": 1, {process}{{}}}}}}'
    link = ', "references": [{"refType": "FOLLOWS_FROM", "traceID": "t1", "spanID": "s"}]'
    traces = tmp_path / "traces.json"
    traces.write_text(f"[{span.format('t1', '')}, {span.format('t2', link)}, {span.format('apart', '')}]")
    table = tmp_path / "spans.csv"
    table.write_text(requests(dice, 60))
    for path, format in ((traces, "jaeger"), (table, "nezha")):
        url = any_path(bucket) / f"logs/{path.name}"
        url.write_bytes(path.read_bytes())
        on_spark = run(spark, [url], any_path(bucket) / f"out/{format}", format=format, piece_bytes=1000)
        run(spark, [url], tmp_path / f"{format}-local", format=format, piece_bytes=1000)
        alone = import_files([path], tmp_path / format, format=format)
        assert contents(tmp_path / f"{format}-local")[0] == contents(tmp_path / format)[0]
        rows = trace.read(any_path(bucket) / f"out/{format}").to_pylist()
        assert sorted(rows, key=str) == sorted(trace.read(tmp_path / format).to_pylist(), key=str)
        for name in ("computations", "events", "messages", "quarantined"):
            assert on_spark.summary[name] == alone.summary[name]


def test_the_command_imports_whatever_spark_reads(spark, dice, tmp_path, command, capsys):
    path = otlp_file(tmp_path / "spans.json", random_spans(dice, 8))
    spark.read.json(str(path)).write.parquet(str(tmp_path / "spans"))
    spark.read.json(str(path)).createOrReplaceTempView("raw_spans")
    alone = import_files([path], tmp_path / "alone")
    for number, source in enumerate((["parquet", str(tmp_path / "spans")], ["table", "raw_spans"])):
        out = tmp_path / f"out-{number}"
        assert command(["import", "--source", *source, "--out", str(out)]) == 0
        rows = contents(out)[0]
        assert rows == contents(tmp_path / "alone")[0]
        summary = json.loads((out / "import.json").read_text())
        for name in (
            "computations",
            "events",
            "messages",
            "processes",
            "quarantined",
            "quarantined_imported",
        ):
            assert summary[name] == alone.summary[name]
        assert [each.name for each in out.iterdir() if each.name.startswith(".")] == []
    assert (
        command(["import", "--source", "parquet", str(tmp_path / "nowhere"), "--out", str(tmp_path / "no")])
        == 2
    )
    assert "Spark cannot read it" in capsys.readouterr().err
