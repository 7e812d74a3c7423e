"""What trackers told of relevant events, against what follows from the events of the trace."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ..linearization import Ints
from ..logged_clocks import processes_named
from ..stamps import MANY_PROCESSES
from ..tracker_stamps import compare, is_numbered, numbered_events, read_attributes
from .question import EVENT, Answers, Question, Subject

TRACKERS = pa.schema([*EVENT, pa.field("fault", pa.string(), nullable=False)])


class VerifyTrackers(Question):
    """Of computations cut into epochs the Spark room answers (spark.by_epoch.tracker_faults)."""

    name = "verify-trackers"
    help = "compares the timestamps that trackers recorded with those that follow from the events"
    tables: ClassVar = {"trackers": TRACKERS}
    totals = ("tracker_stamps", "tracker_faults", "tracker_unjudged")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        attributes = subject.table["attributes"].take(pa.array(c.row[c.chain])).combine_chunks()
        numbered = is_numbered(attributes)  # in the order of `chain`: by process and seq
        if not numbered.any():
            return
        # Trackers count the relevant events of the whole trace, which a window has not.
        if c.is_window or (subject.is_wide and c.width > MANY_PROCESSES):
            answers.totals["tracker_unjudged"] += int(numbered.sum())
            return
        events = c.chain[numbered]
        recorded = read_attributes(attributes.filter(pa.array(numbered)))
        vectors = np.concatenate([columns[events] for _, columns in subject.columns()], axis=1)
        pasts = numbered_events(c.process[events], c.seq[events], c.first, vectors)
        found = compare(recorded, pasts, lambda row, names: processes_named(c, events[row], names))
        answers.totals["tracker_stamps"] += recorded.rows
        tell_faults(found, lambda rows: subject.names_of(events[rows]), answers)


def tell_faults(found: dict[str, Ints], names_of: Callable[[Ints], list[pa.Array]], answers: Answers) -> None:
    """A row for each fault of each event; `names_of` gives the columns EVENT of rows."""
    for fault, rows in found.items():
        answers.totals["tracker_faults"] += len(rows)
        answers.add("trackers", pa.table([*names_of(rows), pa.repeat(fault, len(rows))], schema=TRACKERS))


QUESTION = VerifyTrackers()
