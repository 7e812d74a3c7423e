"""The examples of docs/messaging.md: they print what the page says, and a strict type checker takes them."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "messaging.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize(("code", "told"), EXAMPLES)
def test_an_example_prints_what_the_page_says(code, told, tmp_path, capsys):
    (tmp_path / "example.py").write_text(code)
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out == told


def test_every_example_has_its_output():
    assert len(EXAMPLES) == PAGE.count("```python") > 5


@pytest.mark.long
def test_the_examples_are_programs_that_a_strict_type_checker_takes(tmp_path):
    for number, (code, _) in enumerate(EXAMPLES):
        (tmp_path / f"example_{number}.py").write_text(code)
    (tmp_path / "wrong.py").write_text(
        "from happened.net import Node\nNode('a', peers=['b'], headers='yes')\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--config-file=",
            *tmp_path.iterdir(),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        timeout=300,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1 and "wrong.py:2" in errors[0] and '"headers"' in errors[0], (
        done.stdout + done.stderr
    )
