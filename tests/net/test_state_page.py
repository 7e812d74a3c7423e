"""The example of docs/state-transfer.md prints what the page says."""

import re
import runpy
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "state-transfer.md").read_text()


def test_the_example_prints_what_the_page_says(tmp_path, capsys):
    ((code, told),) = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", PAGE, re.S)
    (tmp_path / "example.py").write_text(code)
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out == told
