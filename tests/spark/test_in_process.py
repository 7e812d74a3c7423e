"""`happened analyze --local`: tables, summary and report of `happened analyze`, without Spark or Java."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from causality import traces
from happened import ask
from happened.causality.questions import TABLES
from happened.cli import main
from happened.report.page import write_report
from happened.spark.in_process import analyze_here
from happened.spark.pipeline import analyze_path


def rows_of(folder, name):
    return sorted(map(repr, ds.dataset(folder / name, format="parquet").to_table().to_pylist()))


def agree(here, there):
    assert {path.name for path in here.iterdir()} == {path.name for path in there.iterdir()}
    for name in TABLES:
        assert rows_of(here, name) == rows_of(there, name), name
        schemas = {ds.dataset(folder / name, format="parquet").schema for folder in (here, there)}
        assert len(schemas) == 1
    for name in ("summary.json", "report.html", "view.html"):
        assert (here / name).read_text() == (there / name).read_text()


def hostile(random):
    """Several computations, one of them broken, with times, and a cause that is not there."""
    rows = [row for name in "abcd" for row in traces.wild(random, name)]
    rows = [row | {"time": random.randrange(10**6), "relevant": random.random() < 0.3} for row in rows]
    rows += traces.number({"x": [{"kind": "deliver", "message": "m"}, {"kind": "internal"}]}, "gap")[1:]
    rows.append(
        {
            "computation": "e",
            "process": "p",
            "seq": 1,
            "kind": "internal",
            "causes": [{"process": "q", "seq": 9}],
        }
    )
    return rows


def test_tables_summary_and_report_are_those_of_analyze(spark, tmp_path, seed):
    (tmp_path / "trace").mkdir()
    pq.write_table(traces.table(hostile(Random(seed))), tmp_path / "trace" / "part.parquet")
    there = analyze_path(spark, tmp_path / "trace", tmp_path / "there", finish=write_report)
    here = analyze_here(tmp_path / "trace", tmp_path / "here", finish=write_report)
    assert here == there and here["quarantined"]
    agree(tmp_path / "here", tmp_path / "there")


def test_a_line_that_is_no_event_is_quarantined_as_on_spark(spark, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"process": "p", "seq": 1, "kind": "internal"}\nnothing\n{"process": "p"}\n')
    there = analyze_path(spark, path, tmp_path / "there", finish=write_report)
    assert analyze_here(path, tmp_path / "here", finish=write_report) == there
    agree(tmp_path / "here", tmp_path / "there")


@pytest.mark.parametrize("timestamps", ["full", "sparse"])
def test_questions_are_answered_from_tables_of_a_computation_that_was_cut(spark, tmp_path, seed, timestamps):
    """What Spark cut into epochs answers as the trace does."""
    random = Random(seed)
    rows = [row | {"time": random.randrange(10**6)} for row in traces.busy(random, "run")]
    (tmp_path / "trace").mkdir()
    pq.write_table(traces.table(rows), tmp_path / "trace" / "part.parquet")
    sizes = {"whole_events": 3, "epoch_events": 4, "timestamps": timestamps}
    analyze_path(spark, tmp_path / "trace", tmp_path / "answers", **sizes)
    for row in random.sample(rows, 5):
        event = f"{row['process']}#{row['seq']}"
        for question in (ask.past, ask.future):
            found = [names(question(tmp_path / place, event)) for place in ("trace", "answers")]
            assert found[0] == found[1], event
        trees = [ask.why(tmp_path / place, event, depth=2).causes for place in ("trace", "answers")]
        assert len({str(sorted((c.event.id, len(c.causes)) for c in tree)) for tree in trees}) == 1


def names(found):
    return sorted(found["event"].to_pylist())


TRACE = """\
{"process": "a", "seq": 1, "kind": "send", "message": "x", "to": ["b"]}
{"process": "a", "seq": 2, "kind": "send", "message": "y", "to": ["b"]}
{"process": "b", "seq": 1, "kind": "deliver", "message": "y"}
{"process": "b", "seq": 2, "kind": "deliver", "message": "x"}
"""


@pytest.fixture
def trace(tmp_path):
    (tmp_path / "t.jsonl").write_text(TRACE)
    return tmp_path / "t.jsonl"


def test_the_command_needs_no_spark(trace, tmp_path):
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from happened.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [
        "analyze",
        str(trace),
        "--local",
        "--out",
        str(tmp_path / "out"),
        "--report",
        str(tmp_path / "page.html"),
    ]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("causal order VIOLATED")
    inside = (tmp_path / "out" / "report.html").read_text()
    outside = (tmp_path / "page.html").read_text()
    assert 'href="page-view.html#' in outside and 'href="out/violations/"' in outside
    outside = outside.replace("page-view.html", "view.html").replace('href="out/', 'href="')
    assert outside.replace("in <code>out</code>", "beside this page") == inside
    pages = (tmp_path / "page-view.html", tmp_path / "out" / "view.html")
    assert len({page.read_text() for page in pages}) == 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["causal_violations"] == 1


def test_a_report_alone_leaves_nothing_else(trace, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["analyze", str(trace), "--local", "--report", str(page)]) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"t.jsonl", "page.html", "page-view.html"}
    assert 'href="violations/"' not in page.read_text()
    (tmp_path / "page.html").unlink()
    assert main(["analyze", str(trace), "--local", "--report", str(page)]) == 2
    assert "page-view.html exists already" in capsys.readouterr().err
    (tmp_path / "page-view.html").unlink()
    assert main(["analyze", str(trace), "--local", "--report", str(page)]) == 1
    assert main(["analyze", str(trace), "--local", "--report", str(page)]) == 2
    assert "replace it with --force" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--local", "--report", str(page), "--force", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["causal_violations"] == 1


def test_earlier_results_are_replaced_with_force_alone_and_put_back_on_failure(trace, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["analyze", str(trace), "--local", "--out", str(out)]
    assert main(words) == 1
    assert main(words) == 2
    assert "exists already; name another directory, or replace it with --force" in capsys.readouterr().err
    (out / "summary.json").write_text("earlier")
    assert main([*words, "--force"]) == 1
    assert json.loads((out / "summary.json").read_text())["events"] == 4
    (out / "summary.json").write_text("earlier")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    assert main(["analyze", str(tmp_path / "cut.parquet"), "--local", "--out", str(out), "--force"]) == 2
    assert "not a readable Parquet file" in capsys.readouterr().err
    assert (out / "summary.json").read_text() == "earlier"
    assert {path.name for path in tmp_path.iterdir()} == {"cut.parquet", "out", "t.jsonl"}


def test_force_removes_results_and_nothing_else(trace, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["analyze", str(trace), "--local", "--out", str(out)]) == 1
    (out / "thesis.tex").write_text("years of work")
    assert main(["analyze", str(trace), "--local", "--out", str(out), "--force"]) == 2
    assert "not results of happened (thesis.tex)" in capsys.readouterr().err
    assert (out / "thesis.tex").exists() and (out / "summary.json").exists()


def test_force_keeps_an_imported_trace(trace, tmp_path, capsys):
    shop = tmp_path / "shop"
    log = Path(__file__).parents[2] / "examples" / "shop.otlp.json"
    assert main(["import", str(log), "--out", str(shop)]) == 0
    assert main(["analyze", str(trace), "--local", "--out", str(shop), "--force"]) == 2
    assert "holds files that are not results of happened (import.json, trace)" in capsys.readouterr().err
    assert main(["import", str(log), "--out", str(shop), "--force"]) == 0


def test_options_that_say_nothing_together_are_refused(trace, tmp_path, capsys):
    words = ["analyze", str(trace), "--local", "--report", str(tmp_path / "p.html")]
    assert main([*words, "--only", "order"]) == 2
    assert "leave --only out" in capsys.readouterr().err
    assert main([*words, "--io", "spark"]) == 2
    assert "--io is about Spark: leave it out with --local" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--report", str(tmp_path / "p.html"), "--out", "out"]) == 2
    assert "--report needs --local" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--local"]) == 2
    assert "name a directory for the tables with --out" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--rebuild", "--only", "order", "--out", "out"]) == 2
    assert "--only is not for --rebuild" in capsys.readouterr().err


def test_one_question_in_this_process(trace, tmp_path, capsys):
    assert (
        main(["analyze", str(trace), "--local", "--only", "order,stamp", "--out", str(tmp_path / "o")]) == 1
    )
    assert capsys.readouterr().out.startswith("causal order VIOLATED")
    tables = {"violations", "lost_causes", "stamps", "processes", "quarantine", "summary.json"}
    assert {path.name for path in (tmp_path / "o").iterdir()} <= tables
    assert (tmp_path / "o" / "violations").exists() and (tmp_path / "o" / "stamps").exists()
    assert main(["analyze", str(trace), "--local", "--only", "ordr", "--out", str(tmp_path / "p")]) == 2
    assert "--only ordr: no such question; did you mean order? the questions are:" in capsys.readouterr().err
