"""The notebook of examples/notebook runs from top to bottom, and shows what it says."""

import ast
import json
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "spans_to_violations.ipynb"


def run(cell, names):
    """Run a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    return last and eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)


def test_spans_become_violations_and_a_picture_and_no_file_is_named(spark, capsys):
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells)
    names = {}
    values = [run("".join(cell["source"]), names) for cell in cells]
    assert names["spark"].version == spark.version
    (row,) = names["violations"].collect()
    early, overtaken = row.early.split()[-1], row.overtaken.split()[-1]
    assert (row.process.partition("~")[0], early, overtaken) == ("shipping", "paid", "created")
    fates = {
        (row.message.split()[-1], row.receiver.partition("~")[0]): row for row in names["messages"].collect()
    }
    assert fates["created", "billing"].latency < 0 <= fates["created", "billing"].latency_corrected
    places = {row.place: row.took for row in names["paths"].collect()}
    assert (places["billing"], places["billing → shipping"]) == (330_000_000, 260_000_000)
    picture = values[-1]._repr_html_()
    assert "svg class=&quot;hv" in picture and "path class=&quot;message" in picture and "shipping" in picture
    assert "shipping" in capsys.readouterr().out
    code = "".join("".join(cell["source"]) for cell in cells)
    assert not any(word in code for word in ("open(", "Path", ".read", ".write", "tmp", "row_number"))
    values[-1].close()
