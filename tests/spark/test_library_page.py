"""docs/pipeline.md and docs/api.md on the library: the examples run, and no function is left out."""

import inspect
import re
from pathlib import Path

import happened.spark as hs
from spark.test_analyze import wild_rows, write

DOCS = Path(__file__).parents[2] / "docs"


def test_the_examples_run(spark, tmp_path, capsys, seed):
    section = (DOCS / "pipeline.md").read_text().partition("## As a library")[2].partition("\n## ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(examples) == 2
    rows = wild_rows(seed, 20, computation="c", skew=20)
    write(rows, tmp_path / "trace")
    names = {"spark": spark, "trace": str(tmp_path / "trace"), "out": str(tmp_path)}
    for code in examples:
        exec(compile(code, "docs/pipeline.md", "exec"), names)
    assert names["joined"].count() == len(rows)
    assert spark.read.orc(str(tmp_path / "tables" / "messages")).count()
    assert capsys.readouterr().out.splitlines()[-1] == "1.0"


def test_the_example_of_tables_runs(spark, capsys):
    section = (DOCS / "pipeline.md").read_text().partition("## Frames of the tables")[2].partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.S)
    names = {"spark": spark, "hs": hs}
    exec(compile(example, "docs/pipeline.md", "exec"), names)
    assert {row.process for row in names["events"].collect()} == {"web", "cart"}
    told = capsys.readouterr().out
    assert "web → cart" in told and "Why(event=Occurrence" in told


METHODS = {"Analysis": {"table", "summary", "report", "write", "close"}, "Stream": {"table", "to_tables"}}
"""Of the classes that functions return."""


def test_every_name_is_on_the_page_with_the_arguments_it_has():
    page = (DOCS / "api.md").read_text()
    for name in hs.__all__:
        row = re.search(rf"^\| `hs.{name}` \| (.*) \|$", page, re.M)
        assert row, name
        if name in METHODS:
            named = set(re.findall(r"\.(\w+)\(", row[1]))
            assert named == METHODS[name] <= {*dir(getattr(hs, name))}
        else:
            assert inspect.getdoc(getattr(hs, name))
            known = inspect.signature(getattr(hs, name)).parameters
            given = re.match(r"`\((.*?)\)`", row[1])[1]
            assert {word.partition("=")[0].strip("* ") for word in given.split(",")} <= known.keys()
