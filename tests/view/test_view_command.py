"""happened view: what it writes, prints and refuses."""

import base64
import re
import subprocess
import sys
import zlib

from causality.traces import number, table
from happened.cli import main
from happened.trace import write_jsonl
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


def test_serving_prints_an_address_and_ends_when_interrupted(tmp_path):
    command = [sys.executable, "-m", "happened", "view", trace(tmp_path), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(2)
        assert process.wait(30) == 130
