"""The page on stories shows what the command prints."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from happened.cli import main

ROOT = Path(__file__).parents[1]


PAGE = (ROOT / "docs" / "stories.md").read_text()
SHOWN = re.findall(r"^\$ happened ((?:play|simulate [^\n]*--story)[^\n]*)\n(.*?)```", PAGE, re.S | re.M)


@pytest.mark.parametrize("command, told", SHOWN, ids=range(len(SHOWN)))
def test_a_story_of_the_page_is_what_the_command_tells(command, told, monkeypatch, capsys):
    """A line that is only … stands for lines that the page leaves out."""
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    out, at = capsys.readouterr().out, 0
    for part in told.split("…\n"):
        assert part in out[at:]
        at = out.index(part, at) + len(part)
    assert told.startswith("…\n") or out.startswith(told.split("…\n")[0])
    assert told.endswith("…\n") or out.endswith(told.split("…\n")[-1])


def test_the_page_shows_stories_of_every_kind():
    assert len(SHOWN) == 6
    assert all(option in PAGE for option in ("--topology", "--tracker", "--story", "figure_4_1.txt"))


@pytest.mark.parametrize("file", sorted((ROOT / "examples" / "stories").glob("*.txt")), ids=lambda f: f.stem)
def test_an_example_is_played_as_it_says(file, monkeypatch, capsys, tmp_path):
    """Each file says in its comments how to play it; every step is of that file."""
    monkeypatch.chdir(ROOT)
    comments = " ".join(line.lstrip("# ") for line in file.read_text().splitlines() if line.startswith("#"))
    command = re.search(r"happened (play .*?\.txt)", comments.replace("\\ ", ""))
    assert main([*shlex.split(command[1]), "--out", str(tmp_path / "story.html"), "--json"]) == 0
    steps = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    out, err = capsys.readouterr()
    assert len(json.loads(out)["steps"]) == len(steps) and "passed over" not in err


def test_the_unit_of_the_page_is_explained_as_it_says(tmp_path):
    simulate, unit, told = re.search(
        r"\$ happened (simulate .+?) --out small\n\$ happened ask unit small '(.+?)'\n(.*?)```", PAGE, re.S
    ).groups()
    happened, run = [sys.executable, "-m", "happened"], str(tmp_path / "run")
    subprocess.run([*happened, *simulate.split(), "--out", run], check=True, timeout=120, capture_output=True)
    done = subprocess.run([*happened, "ask", "unit", run, unit], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, told)
