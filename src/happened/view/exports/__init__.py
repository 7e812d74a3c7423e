"""Traces in the formats of other tools; one file per format, and each says what it keeps.

An export takes computations and yields text. `FORMATS` is the one list of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..prepared import Prepared
from . import to_csv, to_dot, to_jsonl, to_mermaid, to_perfetto, to_shiviz, to_svg

__all__ = ["FORMATS", "Export"]


@dataclass(frozen=True, slots=True)
class Export:
    description: str
    write: Callable[[Sequence[Prepared]], Iterator[str]]


FORMATS = {
    "shiviz": Export(
        "a log for ShiViz, with vector clocks; `happened import` reads it back", to_shiviz.write
    ),
    "jsonl": Export("our own trace, one JSON object per event", to_jsonl.write),
    "dot": Export("a directed graph for Graphviz", to_dot.write),
    "mermaid": Export("a sequence diagram for Mermaid", to_mermaid.write),
    "perfetto": Export(
        "trace events for Perfetto and chrome://tracing, messages as flows", to_perfetto.write
    ),
    "csv": Export("a table with timestamps, for spreadsheets", to_csv.write),
    "svg": Export("the space–time diagram as a picture", to_svg.write),
}
