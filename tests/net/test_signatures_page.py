"""docs/runtime.md, "Signatures", as a reader follows it: commands and program print what the page says."""

import re
import runpy
import shlex
from pathlib import Path

from netcluster import free_ports

from happened.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()


def test_the_example_prints_what_the_page_says(tmp_path, capsys, monkeypatch):
    section = PAGE.split("\n## Signatures\n")[1].split("\n## ")[0]
    ((commands, code, told),) = re.findall(
        r"```\n(.*?)```\n```python\n(.*?)```\n```\n(.*?)```", section, re.S
    )
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0
    for port, free in zip(("7001", "7002", "7003"), free_ports(3), strict=True):
        assert code.count(port) == 1
        code = code.replace(port, str(free))
    (tmp_path / "example.py").write_text(code)
    capsys.readouterr()
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out == told
