"""Mermaid sequence diagrams: an arrow where a message is delivered, a note for what a process did by itself.
Arrivals are not shown where there are deliveries.

Arrows are in an order that respects happened-before; when a message was sent is not shown apart from its
delivery. Mermaid draws hundreds of arrows and not thousands, so that the first MOST_LINES are written.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from ..prepared import Prepared
from .event_texts import one_line, told

MOST_LINES = 2_000


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield "sequenceDiagram\n"
    lines = _lines(computations)
    yield from islice(lines, MOST_LINES)
    if next(lines, None) is not None:
        yield f"  %% more than {MOST_LINES:,} lines: the rest is left out; export a part of the trace\n"


def _lines(computations: Sequence[Prepared]) -> Iterator[str]:
    for number, each in enumerate(computations):
        for p, name in enumerate(each.c.process_names):
            yield f"  participant c{number}p{p} as {_plain(name)}\n"
    for number, each in enumerate(computations):
        c = each.c
        for event in told(each):
            e = event.number
            here = f"c{number}p{c.process[e]}"
            if c.source[e] >= 0:
                yield f"  c{number}p{c.process[c.source[e]]}-){here}: {_plain(event.row['message'])}\n"
            elif event.row["kind"] == "internal" or c.fate[e]:
                yield f"  Note over {here}: {_plain(event.deed)}\n"
            for u in c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]].tolist():
                if c.process[u] != c.process[e]:
                    yield f"  c{number}p{c.process[u]}-->>{here}: {_plain(event.deed)}\n"
            if event.row["kind"] == "send":
                for slot in range(int(c.dest_offsets[c.message[e]]), int(c.dest_offsets[c.message[e] + 1])):
                    if c.slot_delivery[slot] < 0:
                        yield f"  {here}-xc{number}p{c.slot_dest[slot]}: {_plain(event.row['message'])}\n"


def _plain(text: str) -> str:
    """The text on one line, with the characters that Mermaid interprets escaped."""
    return "".join(f"#{ord(sign)};" if sign in '#;<>{}&"%' else sign for sign in one_line(text))
