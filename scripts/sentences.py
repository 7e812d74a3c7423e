"""Print random sentences of the repository, to be read by somebody who does not know it.

    python scripts/sentences.py --count 30 --seed 1            thirty sentences of everything
    python scripts/sentences.py --all src/happened/spark       every sentence of one folder, in order

Sentences come from docstrings, comments, error messages, help texts
and the text of Markdown pages; code, tables of values and single words are left out.
"""

import argparse
import ast
import inspect
import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("src", "docs", "bench", "examples", "scripts", "README.md", "CONTRIBUTING.md")
HELP = {"help", "description", "epilog"}
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(*])|\n\s*\n|\n(?=\w[\w, ]*  +\S)")
KEY = re.compile(r"^(\w[\w, ]*?)  +(?=\S)")  # the first word of an item such as `Cost  one shuffle`
FEWEST_WORDS = 5


class Sentence(NamedTuple):
    path: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} [{self.kind}] {self.text}"


def sentences(path: Path) -> Iterator[Sentence]:
    """Every sentence of a file, in the order of its lines."""
    texts = markdown(path) if path.suffix == ".md" else python(path)
    for line, kind, text in sorted(texts):
        passed = 0
        for part in END_OF_SENTENCE.split(text):
            start = text.index(part, passed)
            passed = start + len(part)
            words = " ".join(KEY.sub(r"\1: ", part, count=1).split())
            if len(re.findall(r"[A-Za-z]{2,}", words)) >= FEWEST_WORDS:
                yield Sentence(path, line + text.count("\n", 0, start), kind, words)


def python(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, kind, text) of the docstrings, comments, errors and help texts of a module."""
    source = path.read_text()
    yield from comments(source)
    for node in ast.walk(ast.parse(source)):
        for field in ("body", "orelse"):
            for statement in getattr(node, field, ()) if isinstance(getattr(node, field, ()), list) else ():
                match statement:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield statement.lineno, "docstring", without_examples(inspect.cleandoc(text))
        match node:
            case ast.Raise(exc=ast.expr() as error):
                yield from literals(error, "error")
            case ast.keyword(arg=arg, value=value) if arg in HELP:
                yield from literals(value, "help")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.lower() in HELP:
                yield from literals(value, "help")


def without_examples(text: str) -> str:
    """The text with empty lines in place of paragraphs that are indented as a whole: code."""
    paragraphs = text.split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        lines = paragraph.split("\n")
        if all(line.startswith("    ") for line in lines):
            paragraphs[i] = "\n" * (len(lines) - 1)
    return "\n\n".join(paragraphs)


def literals(expression: ast.expr, kind: str) -> Iterator[tuple[int, str, str]]:
    """The strings of an expression; the values that an f-string puts in are printed as `{…}`."""
    match expression:
        case ast.Constant(value=str(text)):
            yield expression.lineno, kind, text
        case ast.JoinedStr(values=parts):
            yield expression.lineno, kind, "".join(shown(part) for part in parts)
        case _:
            for child in ast.iter_child_nodes(expression):
                if isinstance(child, ast.expr):
                    yield from literals(child, kind)
                elif isinstance(child, ast.keyword):
                    yield from literals(child.value, kind)


def shown(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
    return ""


def comments(source: str) -> Iterator[tuple[int, str, str]]:
    """The comments; whole-line comments on successive lines are joined into one text."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text, line = token.string.lstrip("#:! "), token.start[0]
        alone = not token.line[: token.start[1]].strip()
        if block and alone and line == last + 1:
            block.append(text)
        else:
            if block:
                yield first, "comment", "\n".join(block)
            block, first = [text], line
        last = line
    if block:
        yield first, "comment", "\n".join(block)


def markdown(path: Path) -> Iterator[tuple[int, str, str]]:
    """The paragraphs, list items and table rows of a page, without blocks of code."""
    block: list[str] = []
    first, in_code = 0, False
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            line = ""
        begins_item = re.match(r"\s*([-*]|\d+\.) |\|", line)
        if block and (in_code or not line.strip() or begins_item or line.startswith("#")):
            yield first, "page", "\n".join(block)
            block = []
        if line.strip() and not in_code and not line.startswith(("#", "|--", "|:-")):
            if not block:
                first = number
            block.append(line)


def files(places: list[str]) -> list[Path]:
    paths = [ROOT / place for place in places]
    found = [path for place in paths for path in ([place] if place.is_file() else place.rglob("*"))]
    return sorted(path for path in found if path.suffix in (".py", ".md"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", default=PLACES, help="files and folders (default: all)")
    parser.add_argument("--count", type=int, default=30, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("docstring", "comment", "error", "help", "page"))
    parser.add_argument("--all", action="store_true", help="print every sentence, in order")
    arguments = parser.parse_args()
    found = [sentence for path in files(arguments.places) for sentence in sentences(path)]
    if arguments.kind:
        found = [sentence for sentence in found if sentence.kind == arguments.kind]
    if not arguments.all:
        found = random.Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    for sentence in found:
        print(sentence)


if __name__ == "__main__":
    main()
