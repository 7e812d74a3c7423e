"""The page on stories shows what the command prints."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_story_of_the_page_is_what_the_command_tells():
    page = (ROOT / "docs" / "stories.md").read_text()
    program, schedule, told = re.search(
        r'\$ happened play "(.+?)" --schedule (\S+)\n(.*?)```', page, re.S
    ).groups()
    done = subprocess.run(
        [sys.executable, "-m", "happened", "play", program, "--schedule", schedule],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, told)


def test_the_unit_of_the_page_is_explained_as_it_says(tmp_path):
    page = (ROOT / "docs" / "stories.md").read_text()
    simulate, unit, told = re.search(
        r"\$ happened (simulate .+?) --out run\n\$ happened explain run '(.+?)'\n(.*?)```", page, re.S
    ).groups()
    happened, run = [sys.executable, "-m", "happened"], str(tmp_path / "run")
    subprocess.run([*happened, *simulate.split(), "--out", run], check=True, timeout=120, capture_output=True)
    done = subprocess.run([*happened, "explain", run, unit], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, told)
