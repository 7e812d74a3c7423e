"""docs/topology.md: its file is the example, its program prints what it says, its refusal is ours."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import yaml

from happened.topology import TopologyError, load
from happened.topology.documents import IN_A_ZONE, IN_THE_WORLD

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "topology.md").read_text()


def test_the_file_shown_is_the_example():
    shown = re.search(r"```yaml\n(.*?)```", GUIDE, re.S)[1]
    assert yaml.safe_load(shown) == yaml.safe_load(
        (ROOT / "examples/topologies/departments.yaml").read_text()
    )


def test_every_key_is_explained():
    assert set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.M)) == IN_A_ZONE | IN_THE_WORLD


def test_the_program_prints_what_it_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    code, expected = re.search(r"```python\n(.*?)```\n```\n(.*?)```", GUIDE, re.S).groups()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "docs/topology.md", "exec"), {})
    assert output.getvalue() == expected


def test_the_refusal_shown_is_the_one_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "processes: [a, b, c, d]\nlinks: [[a, b], [b, c], [c, d], [d, a]]\nseparators: [[a]]\n"
    Path("ring.yaml").write_text(text)
    with pytest.raises(TopologyError) as refusal:
        load(Path("ring.yaml"))
    assert f"happened: {refusal.value}\n" in GUIDE
