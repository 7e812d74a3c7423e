"""Count lines and files by room, and list what is too long: python scripts/weight.py [--against COMMIT]

With --against, the counts of an earlier commit are printed beside these; they are read from git, no checkout.
"""

import argparse
import ast
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 60


def working_tree() -> dict[str, str]:
    """The text of each Python file below src and tests, by its path."""
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "src", "tests").decode()
    found = (ROOT / name for name in listed.splitlines() if name.endswith(".py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in found if path.exists()}


def committed(commit: str) -> dict[str, str]:
    with tarfile.open(fileobj=BytesIO(_git("archive", commit, "src", "tests"))) as archive:
        files = [member for member in archive if member.isfile() and member.name.endswith(".py")]
        return {member.name: archive.extractfile(member).read().decode() for member in files}


def room(path: str) -> str:
    """`src/happened/net/node.py` is of the room `src net`, `tests/test_readme.py` of `tests .`."""
    top, *folders = path.split("/")[:-1]
    inner = [folder for folder in folders if folder != "happened"]
    return f"{top} {inner[0] if inner else '.'}"


def long_functions(path: str, text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield f"{path}:{node.name}", lines


class Weight:
    def __init__(self, files: Mapping[str, str]) -> None:
        lengths = {path: len(text.splitlines()) for path, text in files.items()}
        self.lines, self.files = Counter[str](), Counter[str]()
        for path, lines in lengths.items():
            for name in (room(path), f"{room(path).split()[0]} in all"):
                self.lines[name] += lines
                self.files[name] += 1
        self.long_files = Counter({path: n for path, n in lengths.items() if n > MOST_LINES_OF_A_FILE})
        self.long_functions = Counter(
            dict(f for path, text in files.items() for f in long_functions(path, text))
        )


def report(before: Weight | None, after: Weight) -> None:
    titles = {
        "lines": "lines",
        "files": "files",
        "long_files": f"files above {MOST_LINES_OF_A_FILE} lines",
        "long_functions": f"functions above {MOST_LINES_OF_A_FUNCTION} lines",
    }
    for attribute, title in titles.items():
        now, then = getattr(after, attribute), getattr(before, attribute) if before else Counter[str]()
        heading = f"{'before':>10}{'after':>10}{'change':>10}" if before else f"{'now':>10}"
        print(f"{title:60}{heading}")
        for name in sorted({*now, *then}):
            change = f"{then[name]:10,}{now[name]:10,}{now[name] - then[name]:+10,}"
            print(f"  {name:58}{change if before else f'{now[name]:10,}'}")
        print()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--against", metavar="COMMIT", help="show this commit beside the working tree")
    against = parser.parse_args().against
    report(Weight(committed(against)) if against else None, Weight(working_tree()))


if __name__ == "__main__":
    main()
