"""happened view: what it writes, prints and refuses."""

import base64
import re
import subprocess
import sys
import zlib
from collections import Counter

from causality.traces import number, table
from happened.cli import main
from happened.spark.live.live_job import Manifests
from happened.trace import write_jsonl
from happened.trace.parts import write_part
from view.unpacking import Unpacked


def trace(folder):
    rows = number(
        {
            "p": [{"kind": "send", "message": m, "to": ["q"]} for m in "ab"],
            "q": [{"kind": "deliver", "message": m} for m in "ba"],
        },
        "c",
    )
    write_jsonl(table(rows), folder / "trace.jsonl")
    return str(folder / "trace.jsonl")


def scene(page):
    """The first scene of a page."""
    return Unpacked(zlib.decompress(base64.b64decode(re.search(r'id="scene-0">([^<]+)<', page)[1])))


def test_a_page_is_written_and_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["view", trace(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == "trace.html\n" and "causal order VIOLATED" in err
    text = (tmp_path / "trace.html").read_text()
    assert text.startswith("<!doctype html>") and "http://" not in text
    assert main(["view", trace(tmp_path), "--past", "q#1", "--out", "past.html"]) == 0
    assert len(scene(text).events) == 4
    assert scene((tmp_path / "past.html").read_text()).events == [("p", 1), ("p", 2), ("q", 1)]


def test_what_cannot_be_shown_is_refused(tmp_path, capsys, monkeypatch):
    path = trace(tmp_path)
    for wrong, said in (
        ([str(tmp_path / "absent")], "no such file"),
        ([path, "--past", "q#9"], "no event 'q#9'"),
        ([path, "--computation", "d"], "no computation 'd'"),
        ([path, "--serve", "--out", "x.html"], "leave the other options out"),
    ):
        assert main(["view", *wrong]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setattr("happened.view.pages.MOST_EVENTS", 3)
    assert main(["view", path]) == 2
    assert "see them with --serve" in capsys.readouterr().err


def named(folder):
    """Two computations; `load` and `load more` are labels in one, and a message and a span have names."""
    one = {
        "p": [
            {"kind": "internal", "label": "load"},
            {"kind": "send", "message": "m", "to": ["q"]},
            {"kind": "internal", "label": "load more"},
        ],
        "q": [{"kind": "deliver", "message": "m"}, {"kind": "internal", "attributes": {"span": "ab12"}}],
    }
    rows = number(one, "c") + number({"p": [{"kind": "internal", "label": "other"}] * 2}, "d")
    write_jsonl(table(rows), folder / "named.jsonl")
    return str(folder / "named.jsonl")


def test_events_are_named_as_for_why(tmp_path, capsys):
    path, out = named(tmp_path), tmp_path / "part.jsonl"
    for option, name, events in (
        ("--past", "m", {"p#1", "p#2", "q#1"}),
        ("--future", "m", {"p#2", "p#3", "q#1", "q#2"}),
        ("--past", "ab12", {"p#1", "p#2", "q#1", "q#2"}),
        ("--past", "load", {"p#1"}),
        ("--past", "LOAD M", {"p#1", "p#2", "p#3"}),
        ("--past", "c:p#2", {"p#1", "p#2"}),
        ("--future", "q#2", {"q#2"}),
        ("--past", "d:p#2", {"p#1", "p#2"}),
    ):
        assert main(["export", path, "--to", "csv", option, name, "--out", str(out), "--force"]) == 0
        rows = out.read_text().splitlines()[1:]
        origins = [re.search(r'""original"": ""([^"]*)""', row) or re.match('"([^"]*)"', row) for row in rows]
        found = {origin[1] for origin in origins}
        assert found == events, (option, name)
    assert main(["view", path, "--past", "ab12", "--out", str(tmp_path / "v.html")]) == 0
    assert scene((tmp_path / "v.html").read_text()).events == [("p", 1), ("p", 2), ("q", 1), ("q", 2)]
    capsys.readouterr()
    for names, said in (
        (["--past", "p#1"], "'p#1' names 2 things"),
        (["--past", "other"], "'other' names 2 things"),
        (["--past", "nothing"], "nothing in the trace is called 'nothing'"),
        (["--past", "q#2", "--future", "d:p#1"], "belong to two computations"),
    ):
        assert main(["view", path, *names]) == 2
        assert said in capsys.readouterr().err
    chosen = ["--past", "p#1", "--computation", "d", "--out", str(tmp_path / "d.html")]
    assert main(["view", path, *chosen]) == 0


def test_serving_prints_an_address_and_ends_when_interrupted(tmp_path):
    command = [sys.executable, "-m", "happened", "view", trace(tmp_path), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(2)
        assert process.wait(30) == 130


def test_who_would_view_the_tables_of_a_stream_is_told_what_to_view_instead(tmp_path, capsys):
    write_part(tmp_path / "live" / "stamps", "batch-0", table(number({"p": [{"kind": "internal"}]}, "c")))
    commits = Manifests(tmp_path / "live", {"trace": "somewhere"})
    commits.commit(0, ["stamps/batch-0.parquet"], Counter(events=1), 0.1)
    for command in (["view"], ["check"]):
        assert main([*command, str(tmp_path / "live")]) == 2
        told = capsys.readouterr().err
        assert "tables of `happened stream`" in told and "the trace that it follows" in told
