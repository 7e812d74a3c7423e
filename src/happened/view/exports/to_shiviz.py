"""ShiViz logs: the regular expression, the delimiter, then two lines per event.

Kept are happened-before, exactly, and what the events say of themselves; not that an event was a send or a
delivery, for which the format has no place. White space in the name of a process becomes `_`.
"""

import json
import re
from collections.abc import Iterator, Sequence

from ..prepared import Prepared
from .event_texts import one_line, told

REGEX = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
DELIMITER = "^=== (?<trace>.*) ===$"


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    yield f"{REGEX}\n{DELIMITER}\n"
    for each in computations:
        c, vectors = each.c, each.vectors
        if vectors is None:
            continue
        hosts = _hosts(c.process_names)
        yield f"\n=== {one_line(c.name)} ===\n"
        for event in told(each):
            counts = vectors[event.number]
            clock = {hosts[q]: int(counts[q]) for q in counts.nonzero()[0]}
            host = hosts[c.process[event.number]]
            yield f"{host} {json.dumps(clock, ensure_ascii=False)}\n{event.deed}\n"


def _hosts(names: Sequence[str]) -> list[str]:
    """A unique name without white space for each process."""
    hosts: list[str] = []
    used: set[str] = set()
    for name in names:
        host = short = re.sub(r"\s+", "_", name) or "_"
        number = 2
        while host in used:
            host, number = f"{short}_{number}", number + 1
        used.add(host)
        hosts.append(host)
    return hosts
