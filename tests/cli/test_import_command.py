"""`happened import`: which files are meant, and what is said about them."""

import io
import json
import sys

import pytest

from happened import trace
from happened.cli import main

SPAN = '{"traceId": "t%d", "id": "1", "name": "n", "localEndpoint": {"serviceName": "s"}}\n'
EVENT = '{"process": "%s", "kind": "internal"}\n'


@pytest.fixture
def importing(tmp_path, capsys):
    def importing(*arguments):
        code = main(["import", *map(str, arguments), "--out", str(tmp_path / "out")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return importing


def computations(tmp_path):
    return set(trace.read(tmp_path / "out")["computation"].to_pylist())


def test_a_directory_means_the_files_in_it(importing, tmp_path):
    (tmp_path / "logs" / "deep").mkdir(parents=True)
    (tmp_path / "logs" / "a.json").write_text(SPAN % 1)
    (tmp_path / "logs" / "deep" / "b.json").write_text(SPAN % 2)
    (tmp_path / "logs" / ".hidden").write_text("nothing")
    assert importing(tmp_path / "logs")[0] == 0
    assert computations(tmp_path) == {"t1", "t2"}


def test_a_pattern_means_the_files_that_match(importing, tmp_path):
    for number in range(3):
        (tmp_path / f"spans-{number}.json").write_text(SPAN % number)
    assert importing(tmp_path / "spans-[01].json")[0] == 0
    assert computations(tmp_path) == {"t0", "t1"}
    code, _, said = importing(tmp_path / "nothing-*.json")
    assert code == 2 and "no file matches this pattern" in said


def test_a_dash_means_standard_input(importing, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((SPAN % 5).encode())))
    assert importing("-")[0] == 0
    assert computations(tmp_path) == {"t5"}


def test_errors_about_standard_input_name_no_file_of_ours(importing, monkeypatch):
    for text, reason in (
        ("", "standard input is empty"),
        ("what is this?", "standard input: its format cannot"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        code, _, said = importing("-")
        assert code == 2 and reason in said and "/happened-" not in said


def test_an_empty_directory_is_refused(importing, tmp_path):
    (tmp_path / "logs").mkdir()
    code, _, said = importing(tmp_path / "logs")
    assert code == 2 and "there are no files in this directory" in said


@pytest.mark.parametrize("format", ["jaeger", "otlp", "etcd-raft", "xray", "peterson", "jsonl"])
def test_another_format_than_the_one_given_is_an_error_that_names_it(importing, tmp_path, format):
    (tmp_path / "spans.json").write_text(SPAN % 1)
    code, _, said = importing(tmp_path / "spans.json", "--format", format)
    assert code == 2
    assert f"nothing in it is {format}" in said and "It looks like zipkin; say --format zipkin" in said
    assert not (tmp_path / "out").exists()


def test_the_same_file_twice_is_said(importing, tmp_path):
    (tmp_path / "a.json").write_text(SPAN % 1)
    (tmp_path / "b.json").write_text(SPAN % 1)
    code, _, said = importing(tmp_path / "a.json", tmp_path / "b.json")
    assert code == 0
    assert f"{tmp_path / 'b.json'} is the same as {tmp_path / 'a.json'}" in said
    assert json.loads((tmp_path / "out" / "import.json").read_text())["remarks"]


def test_parts_of_one_run_that_share_no_process_are_said(importing, tmp_path):
    (tmp_path / "a.jsonl").write_text(EVENT % "alice")
    (tmp_path / "b.jsonl").write_text(EVENT % "bob")
    code, _, said = importing(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--together")
    assert code == 0 and "shares no process with the other files" in said


def test_fields_are_mapped(importing, tmp_path):
    (tmp_path / "events.csv").write_text("node,what\na,start\nb,start\n")
    assert importing(tmp_path / "events.csv", "--map", "process=node,label=what")[0] == 0
    assert trace.read(tmp_path / "out")["process"].to_pylist() == ["a", "b"]


def test_a_trace_is_not_imported_but_asked_as_it_is(importing, tmp_path):
    with trace.TraceWriter(tmp_path / "run" / "trace") as writer:
        writer.append(process="p", seq=1, kind="internal")
    code, _, said = importing(tmp_path / "run")
    assert code == 2 and "a trace is not imported but asked as it is" in said and "--format" not in said
