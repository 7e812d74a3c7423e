"""Traces in the formats of other tools; one file per format, and each says what it keeps.

An export takes computations and yields text, or bytes where it is binary. `FORMATS` is the one list of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..prepared import Prepared
from . import to_csv, to_dot, to_jsonl, to_mermaid, to_perfetto, to_shiviz, to_svg

__all__ = ["FORMATS", "Export"]


@dataclass(frozen=True, slots=True)
class Export:
    description: str
    write: Callable[..., Iterator[Any]]  # of computations, and of a picture by its name if it draws
    draws: bool = False
    binary: bool = False

    def chunks(self, computations: Sequence[Prepared], picture: str) -> Iterator[bytes]:
        """The bytes to write to a file, piece by piece."""
        found = self.write(computations, picture) if self.draws else self.write(computations)
        return (each if self.binary else each.encode() for each in found)


FORMATS = {
    "shiviz": Export(
        "a log for ShiViz, with vector clocks; `happened import` reads it back", to_shiviz.write
    ),
    "jsonl": Export("our own trace, one JSON object per event", to_jsonl.write),
    "dot": Export("a directed graph for Graphviz", to_dot.write),
    "mermaid": Export("a sequence diagram for Mermaid", to_mermaid.write),
    "perfetto": Export(
        "trace events for Perfetto and chrome://tracing, messages as flows; `happened import` reads it back",
        to_perfetto.write,
    ),
    "csv": Export("a table with timestamps; `happened import` reads it back", to_csv.write),
    "svg": Export("a picture, the one that --picture names", to_svg.write, draws=True),
    "png": Export("the same as pixels, drawn by Chromium", to_svg.write_png, draws=True, binary=True),
}
