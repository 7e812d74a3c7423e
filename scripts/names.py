"""List the class names that are defined at more than one place under src/: python scripts/names.py

Prints each such name with its places, most frequent first, and the number of names last. Two definitions
in one file, in the branches of an `if` for instance, are one place.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def places(source: Path) -> dict[str, list[str]]:
    """The name of each class, private or not, with `file:line` of its definitions."""
    found = defaultdict(dict[Path, str])
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].setdefault(path, f"{path.relative_to(source)}:{node.lineno}")
    return {name: list(files.values()) for name, files in found.items()}


def main() -> int:
    repeated = {name: at for name, at in places(SOURCE).items() if len(at) > 1}
    for name, at in sorted(repeated.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"{name:24}{'  '.join(at)}")
    print(f"{len(repeated)} class names are defined at more than one place")
    return 0


if __name__ == "__main__":
    sys.exit(main())
