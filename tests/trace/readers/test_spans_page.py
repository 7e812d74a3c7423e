"""docs/spans.md: its example runs as it stands, and its table has every kind of edge."""

import re
import shlex
from pathlib import Path

from happened.cli import main
from happened.trace.readers.span_graph import BY_CLOCK, RECORDED

PAGE = (Path(__file__).parents[3] / "docs" / "spans.md").read_text(encoding="utf-8")


def block(kind):
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text(block("csv"))
    first, second, *expected = block("console").splitlines()
    assert main(shlex.split(first)[2:]) == 0
    capsys.readouterr()
    assert main(shlex.split(second)[2:]) == 1
    assert capsys.readouterr().out.startswith("\n".join(expected) + "\n")


def test_the_table_has_every_kind_of_edge():
    rows = dict(re.findall(r"^\| (`[^|]*`) \| (recorded|implied|asked for) \|", PAGE, re.MULTILINE))
    named = {kind: how for kinds, how in rows.items() for kind in re.findall(r"`(\w+)`", kinds)}
    assert {kind for kind, how in named.items() if how == "recorded"} == RECORDED
    assert named.keys() >= BY_CLOCK
    source = (Path(__file__).parents[3] / "src/happened/trace/readers/span_graph.py").read_text()
    assert set(re.findall(r'_before\([^\n]*, "(\w+)"\)', source)) <= named.keys()
