"""docs/ask.md: every command and program on it is run, and prints what stands below it.

`pytest tests/test_ask_page.py --rewrite` writes what they print into the page.
"""

import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import pytest

from happened.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ask.md"
BLOCKS = re.compile(r"^```console\n(.*?)^```\n|^```python\n(.*?)^```\n(?:```\n(.*?)^```\n)?", re.M | re.S)


def answered(command):
    """What a command prints on a terminal, errors included."""
    program, *words = shlex.split(command)
    assert program == "happened"
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        main(words)
    return output.getvalue()


def run_block(match, names):
    """The block as it should be."""
    session, code, _ = match.groups()
    if session is not None:
        commands = [line for line in session.splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"{line}\n{answered(line[2:])}" for line in commands) + "```\n"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "docs/ask.md", "exec"), names)
    return f"```python\n{code}```\n```\n{output.getvalue()}```\n"


@pytest.fixture
def beside_the_examples(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("notebook"))
    monkeypatch.chdir(tmp_path)


def test_the_page_says_what_is_printed(beside_the_examples, request):
    text, names = PAGE.read_text(), {}
    ran = BLOCKS.sub(lambda match: run_block(match, names), text)
    assert text.count("```console") >= 5 and "```python" in text
    if request.config.getoption("--rewrite"):
        PAGE.write_text(ran)
    else:
        assert ran == text, "run `pytest tests/test_ask_page.py --rewrite` and review what it wrote"


def test_every_question_is_on_the_page():
    from happened import ask

    for command in ("why", "path", "past", "future", "influenced", "critical-path", "diff"):
        assert f"`happened ask {command} " in PAGE.read_text()
        assert command.replace("-", "_") in ask.__all__
