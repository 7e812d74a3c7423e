"""The README's example prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_the_first_example_runs_and_prints_what_it_says():
    code, expected = re.search(r"```python\n(.*?)```\n```\n(.*?)```", README.read_text(), re.S).groups()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(README), "exec"), {})
    assert output.getvalue() == expected
