"""The commands that run on Spark, with everything in an object store: the answers that a disk would get."""

import json

import happened.spark as hs
from causality import traces
from happened.causality.analysis import TABLES, analyse, clock_maps
from happened.spark.storage import read_parts, write_part
from happened.trace.store import any_path, files_below
from spark.test_analyze import wild_rows
from spark.test_tasks_in_a_store import executors  # noqa: F401


def table_at(url, seed, count):
    """A trace of one computation, in three parts of a few row groups each."""
    table = traces.table(wild_rows(seed, count, prefix="w", skew=40))
    third = -(-table.num_rows // 3)
    for part in range(3):
        rows = table.slice(part * third, third)
        write_part(any_path(url), f"part-{part}", rows, row_group_size=max(third // 2, 1))
    return table


def test_analyze_at_urls(executors, command, bucket, seed, monkeypatch, capsys):  # noqa: F811
    """Cut into epochs, with intermediates elsewhere; what is left is the answers and the page."""
    table = table_at(f"{bucket}/trace", seed, 8)
    from happened.spark import pipeline as job

    monkeypatch.setitem(job.analyze_path.__kwdefaults__, "whole_events", 1)
    words = [f"{bucket}/trace", "--out", f"{bucket}/out", "--work", f"{bucket}/work", "--epoch-events", "60"]
    assert command(["analyze", *words, "--json"]) in (0, 1, 2, 3)
    summary = json.loads(capsys.readouterr().out)
    expected = analyse(table)
    out = any_path(bucket) / "out"
    for name in TABLES:
        rows = traces.rows_of(read_parts(out / name), name)
        assert rows == traces.rows_of(expected.table(name), name), name
    assert summary == json.loads((out / "summary.json").read_text())
    assert "<h2>Tables</h2>" in (out / "report.html").read_text()
    at_top = {str(file).split("/out/")[1].split("/")[0] for file in files_below(out)}
    assert at_top <= {*TABLES, "summary.json", "report.html", "view.html"}
    assert files_below(any_path(bucket) / "work") == []


def test_one_question_and_rebuild_at_urls(executors, command, bucket, seed, tmp_path):  # noqa: F811
    table = table_at(f"{bucket}/trace", seed, 2)
    for name in ("sparse", "full"):
        words = ["analyze", f"{bucket}/trace", "--only", "stamp", "--out", f"{bucket}/{name}"]
        assert command([*words, "--timestamps", name]) == 0
    assert command(["analyze", f"{bucket}/sparse", "--rebuild", "--out", f"{bucket}/rebuilt"]) == 0
    at = any_path(bucket)
    clocks = {}
    for name in ("full", "rebuilt"):
        stamps = read_parts(at / name / "stamps").sort_by([("process", "ascending"), ("seq", "ascending")])
        clocks[name] = [
            dict(clock) for clock in clock_maps(stamps, read_parts(at / name / "processes")).to_pylist()
        ]
    assert clocks["full"] == clocks["rebuilt"]
    assert len(clocks["full"]) == table.num_rows
    assert not [file for file in files_below(at / "rebuilt") if ".work" in str(file)]


def test_a_frame_of_a_trace_in_a_store(executors, spark, bucket, seed, tmp_path):  # noqa: F811
    """Spark has no connector for it, so tasks read; lines that are no events come with the reason."""
    table = table_at(f"{bucket}/trace", seed, 2)
    events = hs.read_trace(spark, f"{bucket}/trace", io="direct")
    assert events.columns == table.column_names and events.count() == table.num_rows
    lines = [json.dumps({"process": "p", "seq": 1, "kind": "internal"}), "{", json.dumps({"seq": "one"})]
    (any_path(bucket) / "t.jsonl").write_bytes("\n".join(lines).encode())
    events = hs.read_trace(spark, f"{bucket}/t.jsonl", io="direct")
    with hs.analyze(events, questions=["stamp"], io="direct", work=bucket) as found:
        assert found.summary()["events"] == 1
        reasons = sorted(row["reason"] for row in found.quarantine.collect())
    assert len(reasons) == 2 and reasons[0].startswith("?#: field 'seq'") and "is not JSON: {" in reasons[1]
