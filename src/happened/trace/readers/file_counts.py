"""What a file holds, counted computation by computation and added up: files may be larger than memory.

A count is a number, whether something holds of all, or the set of names of which the number is wanted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .draft import Draft

Counts = dict[str, Any]
Count = Callable[[list[Draft]], Mapping[str, Any]]


class FileCounts:
    """By file, its counts so far."""

    def __init__(self) -> None:
        self.of_file: dict[str, Counts] = {}

    def add(self, drafts: Iterable[Draft], count: Count) -> None:
        """Count the drafts of one computation, of any number of files."""
        by_file: dict[str, list[Draft]] = {}
        for draft in drafts:
            by_file.setdefault(draft.file, []).append(draft)
        for file, of_file in by_file.items():
            self.merge(file, count(of_file))

    def merge(self, file: str, counts: Mapping[str, Any]) -> None:
        mine = self.of_file.setdefault(file, {})
        for name, value in counts.items():
            if isinstance(value, set):
                mine.setdefault(name, set()).update(value)
            elif isinstance(value, bool):
                mine[name] = value and mine.get(name, True)
            else:
                mine[name] = value if name not in mine else mine[name] + value

    def told(self, file: str, count: Count) -> dict[str, Any]:
        """The counts of a file as numbers; a file without records has the counts of an empty list."""
        counts = self.of_file.get(file) or count([])
        return {name: len(each) if isinstance(each, set) else each for name, each in counts.items()}
