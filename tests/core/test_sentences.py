"""scripts/sentences.py finds every kind of sentence, and draws the same ones for a seed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "sentences.py"

MODULE = '''"""A module with one docstring here. It has a second sentence too.

    this_is = code("and not a sentence of ours")

Cost    one item with its own few words
"""
# A comment over
# two lines of code.


def f(x):
    raise ValueError(f"the number {x} is not a good one; give another")


add(help="what an option of this does")
'''


def sentences():
    spec = importlib.util.spec_from_file_location("sentences", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(path):
    return [(each.line, each.kind, each.text) for each in sentences().sentences(path)]


def test_sentences_of_a_module_come_with_their_lines(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    assert found(path) == [
        (1, "docstring", "A module with one docstring here."),
        (1, "docstring", "It has a second sentence too."),
        (5, "docstring", "Cost: one item with its own few words"),
        (7, "comment", "A comment over two lines of code."),
        (12, "error", "the number {x} is not a good one; give another"),
        (15, "help", "what an option of this does"),
    ]


def test_sentences_of_a_page_leave_out_code_and_numbers(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "# Title of a page that is long\n\nFirst sentence of this page.\nSecond one over\ntwo lines of it.\n"
        "\n```\nsome code that is not a sentence\n```\n\n| 1 | 2 | 3 | 4 | 5 |\n- an item of its own words\n"
    )
    assert found(path) == [
        (3, "page", "First sentence of this page."),
        (4, "page", "Second one over two lines of it."),
        (12, "page", "- an item of its own words"),
    ]


def test_a_seed_draws_the_same_sentences_again():
    def drawn(seed):
        command = [
            sys.executable,
            str(SCRIPT),
            "--seed",
            str(seed),
            "--count",
            "30",
            "README.md",
            "CONTRIBUTING.md",
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    assert len(drawn(1)) == 30
    assert drawn(1) == drawn(1) != drawn(2)
