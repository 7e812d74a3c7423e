"""Our own trace as JSON lines: nothing is lost."""

import json
from collections.abc import Iterator, Sequence

from ..prepared import Prepared
from .event_texts import told


def write(computations: Sequence[Prepared]) -> Iterator[str]:
    for each in computations:
        for event in told(each):
            row = {name: value for name, value in event.row.items() if value is not None}
            yield json.dumps(row, ensure_ascii=False) + "\n"
