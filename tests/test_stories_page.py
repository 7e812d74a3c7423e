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
