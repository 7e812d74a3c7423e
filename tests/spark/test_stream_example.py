"""examples/stream.py, as a user would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
IN_ORDER = [
    "alice: shall we meet for lunch?",
    "bob:   yes, at noon",
    "carol: noon is fine, I will book a table",
    "alice: thank you, carol",
    "bob:   see you both there",
]


def said(*options):
    done = subprocess.run(
        [sys.executable, "examples/stream.py", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.strip() for line in done.stdout.splitlines()[1:]]


def test_the_conversation_makes_sense():
    lines = said()
    assert [line for line in lines if not line.startswith("(")] == IN_ORDER
    assert "(batch 0: c1 of carol waits for b1)" in lines


def test_without_order_the_anomaly_can_be_seen():
    lines = said("--order", "off")
    assert sorted(lines) == sorted(IN_ORDER)
    assert lines[0] == IN_ORDER[2] and lines[-1] == IN_ORDER[0]
