"""The repository speaks for itself: it cites nothing that a reader lacks, and its pages name what exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("src", "tests", "docs", "bench", "examples", "scripts", ".github")
FILES = [
    path
    for path in (*ROOT.iterdir(), *(path for room in ROOMS for path in (ROOT / room).rglob("*")))
    if path.is_file()
    and path.suffix in {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".js", ".html", ".sh", ""}
]
PAGES = [path for path in FILES if path.suffix == ".md"]

# Papers are cited by authors, title, year and section; docs/papers.md has their corrections. The phrases are
# split so that this file does not contain them.
UNKNOWN_TO_A_READER = ("seed " + "00", "003, " + "fig", "seeds " + "00", "err" + "ata", "shared/" + "seeds")


@pytest.mark.parametrize("phrase", UNKNOWN_TO_A_READER)
def test_nothing_is_cited_that_a_reader_does_not_have(phrase):
    assert len(FILES) > 300, "the repository was not found"
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if phrase in line.lower()
    ]
    assert found == []


def named_tests():
    """(page, file, test) for each test that a page names as `tests/room/test_file.py::test_name`."""
    for page in PAGES:
        for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text()):
            if "NAME" not in file:  # a file that the reader is about to write
                yield page.relative_to(ROOT).as_posix(), file, test


def functions(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_test_that_a_page_names_is_there():
    named = list(named_tests())
    assert sum(page == "docs/papers.md" for page, _, _ in named) > 40
    missing = {
        (page, file, test)
        for page, file, test in named
        if not (ROOT / file).is_file() or (test and test not in functions(ROOT / file))
    }
    assert missing == set()


def anchors(page):
    """The anchors that GitHub gives a page's headings: lower case, spaces to hyphens, other signs dropped."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target
