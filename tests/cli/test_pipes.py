"""Output that nobody reads to its end, and places that cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HAPPENED = [sys.executable, "-m", "happened"]

OVERTAKEN = """\
{"process": "a", "seq": 1, "kind": "send", "message": "x", "to": ["b"]}
{"process": "a", "seq": 2, "kind": "send", "message": "y", "to": ["b"]}
{"process": "b", "seq": 1, "kind": "deliver", "message": "y"}
{"process": "b", "seq": 2, "kind": "deliver", "message": "x"}
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_is_neither_a_verdict_nor_a_traceback(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "t.jsonl").write_text(OVERTAKEN)
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*HAPPENED, "check", str(tmp_path / "t.jsonl")],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_terminal_that_cannot_show_a_character_is_told_its_number(tmp_path: Path) -> None:
    """A traceback would end with exit code 1, which is a verdict."""
    done = subprocess.run(
        [*HAPPENED, "play", "0: {1}"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"0 sends M(0,1)\u2192{1}" in done.stdout


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [*HAPPENED, "simulate", "--messages", "5", "--out", str(tmp_path / "file" / "run")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == f"happened: {tmp_path / 'file' / 'run'}: Not a directory\n"
