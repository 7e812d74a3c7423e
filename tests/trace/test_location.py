"""Where a trace lies, and whether the run that left it said that it is complete."""

import json

import pytest

from happened.cli import main
from happened.core.errors import TraceFormatError
from happened.trace import TraceWriter, locate

LOST = [
    {"process": "alice", "seq": 1, "kind": "send", "message": "question", "to": ["bob", "carol"]},
    {"process": "bob", "seq": 1, "kind": "deliver", "message": "question"},
    {"process": "bob", "seq": 2, "kind": "send", "message": "answer", "to": ["carol"]},
    {"process": "carol", "seq": 1, "kind": "deliver", "message": "answer"},
]


@pytest.fixture
def run(tmp_path):
    with TraceWriter(tmp_path / "run" / "trace") as writer:
        for row in LOST:
            writer.append(row)
    return tmp_path / "run"


@pytest.mark.parametrize("inside", ["", "trace"], ids=["the run", "its trace"])
def test_a_run_and_its_trace_are_one_trace(run, inside):
    assert locate(run / inside).parts == (run / "trace" / "part-000000.parquet",)
    assert not locate(run / inside).is_complete
    (run / "summary.json").write_text(json.dumps({"complete": True}))
    assert locate(run / inside).is_complete


@pytest.mark.parametrize("text", ["", "[]", '{"complete": 1}', "{", b"\xff".decode("latin-1")])
def test_anything_else_says_nothing_about_completeness(run, text):
    (run / "summary.json").write_text(text)
    assert not locate(run).is_complete


def test_the_names_of_partitions_are_columns(tmp_path):
    part = tmp_path / "t" / "computation=a%2Fb" / "kind=__HIVE_DEFAULT_PARTITION__" / "part.parquet"
    part.parent.mkdir(parents=True)
    part.touch()
    at = locate(tmp_path / "t")
    assert at.parts == (part,)
    assert at.partition(part) == {"computation": "a/b", "kind": None}


def test_two_traces_in_one_place_are_refused(run):
    with TraceWriter(run) as writer:
        writer.append(LOST[0])
    with pytest.raises(TraceFormatError, match="say which"):
        locate(run)
    assert locate(run / "trace").parts


@pytest.mark.parametrize(
    ("said", "options", "code"),
    [
        (None, [], 3),
        (True, [], 1),
        (None, ["--complete"], 1),
        (True, ["--cut-off"], 3),
    ],
)
def test_a_lost_cause_is_weighed_by_completeness(run, capsys, said, options, code):
    if said is not None:
        (run / "summary.json").write_text(json.dumps({"complete": said}))
    assert main(["check", str(run), *options]) == code
    out = capsys.readouterr().out
    assert "carol delivered answer and never question" in out
    assert ("beyond the end of the trace" in out) == (code == 3)


def test_a_simulated_run_is_complete(tmp_path):
    out = tmp_path / "simulated"
    assert main(["simulate", "--messages", "20", "--processes", "3", "--out", str(out)]) == 0
    assert locate(out).is_complete
