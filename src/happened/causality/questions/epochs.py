"""Where epochs end, how far the clocks of processes disagree, and every event's corrected time."""

from typing import ClassVar

import numpy as np
import pyarrow as pa

from ...trace.declared import schema
from ..linearization import Ints
from ..skew import Skew
from .question import EVENT, Answers, Question, Subject

EPOCHS = schema("computation string, epoch int32, process string, last int64")
"""Where each epoch ends at each process. A computation that is processed whole has one epoch, 0."""
SKEW = schema(
    "computation string, process string, clock_offset int64, drift float64, origin int64, "
    "feasible bool, backwards int64"
)
"""A clock that shows `time` is ahead by clock_offset + drift x (time - origin). `backwards` counts the
events at which the clock showed less than at the event before."""
TIMES = pa.schema([*EVENT, *schema("clock_time int64, corrected int64")])


class Epochs(Question):
    """For computations cut into epochs, the Spark code answers, since it makes the cuts
    (spark.by_epoch.steps)."""

    name = "epochs"
    help = "consistent cuts, how far the clocks disagree, and every event's time corrected"
    tables: ClassVar = {"epochs": EPOCHS, "skew": SKEW, "times": TIMES}
    totals = ("receives_before_sends", "receives_before_sends_corrected", "times_backwards")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        last, acts = np.zeros(c.processes, np.int64), np.diff(c.chain_offsets) > 0
        last[acts] = c.recorded_seq[c.chain[c.chain_offsets[1:][acts] - 1]]
        computation, process = c.names_of(np.arange(c.processes))
        columns = [computation, np.zeros(c.processes, np.int32), process, last]
        answers.add("epochs", pa.table(columns, schema=EPOCHS))
        times = subject.times
        if times is None:
            return
        backwards = times.backwards(c)
        before = times.time[times.received] < times.time[times.sent]
        answers.totals["receives_before_sends"] += int(before.sum())
        answers.totals["receives_before_sends_corrected"] += int((times.gap < 0).sum())
        answers.totals["times_backwards"] += int(backwards.sum())
        told = np.flatnonzero(np.isin(c.owner, c.owner[c.process[times.timed]]))
        skew = times.skew.of(told)
        answers.add("skew", skew_table(c.names_of(told), skew, times.origin[told], backwards[told]))
        events = np.flatnonzero(times.timed)
        columns = [*subject.names_of(events), times.time[events], times.corrected[events]]
        answers.add("times", pa.table(columns, schema=TIMES))


def skew_table(names: list[pa.Array], skew: Skew, origin: Ints, backwards: Ints) -> pa.Table:
    """The table SKEW; `names` has the computation and the name of each process."""
    told = [skew.offsets, skew.drifts, origin, pa.array(skew.feasible), backwards]
    return pa.table([*names, *told], schema=SKEW)


QUESTION = Epochs()
