"""The example of a protocol in a package of its own, announced as an installed one would be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_protocol"


@pytest.fixture
def installed(tmp_path):
    """What installing leaves behind: the module, and metadata with its entry point."""
    site = tmp_path / "site"
    metadata = site / "fifo_example-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "fifo_multicast.py").write_text((EXAMPLE / "fifo_multicast.py").read_text())
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fifo-example\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[happened.protocols]\nfifo-example = fifo_multicast:FifoMulticast\n"
    )
    return site


def run(site, *arguments):
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "happened", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_commands_know_an_announced_protocol(installed):
    explored = run(installed, "explore", "--protocol", "fifo-example", "--messages", "2", "--json")
    assert explored.returncode == 0, explored.stderr
    found = json.loads(explored.stdout)
    assert found["programs"] > 10 and not found["violations"]
    beyond = run(installed, "explore", "--protocol", "fifo-example", "--messages", "3", "--order", "causal")
    assert beyond.returncode == 1 and "violated" in beyond.stdout


def test_a_broken_announcement_is_named(installed):
    (installed / "fifo_multicast.py").write_text("import nothing_of_this_name\n")
    refused = run(installed, "explore", "--protocol", "fifo-example", "--messages", "1")
    assert refused.returncode == 2
    assert "'fifo-example'" in refused.stderr and "nothing_of_this_name" in refused.stderr


def test_the_entry_point_of_the_example_is_the_one_tested():
    text = (EXAMPLE / "pyproject.toml").read_text()
    assert 'fifo-example = "fifo_multicast:FifoMulticast"' in text
