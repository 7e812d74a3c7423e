"""docs/api.md: its examples run and print what it says, and it leaves nothing out."""

import contextlib
import io
import re
from pathlib import Path

import happened
from happened.core.exit_codes import MEANINGS

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "api.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", PAGE, re.S)


def test_every_example_runs_and_prints_what_stands_below_it():
    assert len(EXAMPLES) == PAGE.count("```python") == len(happened.__all__) - 1  # a version needs no example
    names: dict[str, object] = {}
    for code, expected in EXAMPLES:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, "docs/api.md", "exec"), names)
        assert output.getvalue() == expected, code


def test_every_name_of_the_front_door_is_on_the_page_and_in_an_example():
    code = "".join(code for code, _ in EXAMPLES)
    for name in happened.__all__:
        assert f"| `{name}` |" in PAGE
        assert name == "__version__" or re.search(rf"happened\.{name}[.(]", code)


def test_the_table_of_exit_codes_is_the_one_the_commands_use():
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.M)
    assert rows == [(str(code.value), meaning) for code, meaning in MEANINGS.items()]
