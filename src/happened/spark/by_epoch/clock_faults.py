"""Logged vector clocks of large computations that do not exceed the previous clock logged on their process.

In    Layouts with logged clocks; whether each is right, their stamped epochs have told (see
      causality.questions.verify_clocks)
Out   rows of CLOCKS, under `out`
Cost  per block of columns a task that goes through the logged clocks, epoch after epoch, and holds those of
      an epoch and the last of each process; then one task that tells of what they found
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...causality.epochs import own_columns
from ...causality.questions import Answers
from ...causality.questions.question import blocks_of
from ...causality.questions.verify_clocks import Regressions, add_clock_faults
from ...trace.store import AnyPath
from ..storage import read_arrays, write_arrays
from ..tasks import Runner, on_tasks
from .epoch_layout import Layout
from .stamping import write_answers

WIDTH = 1024


def regressions(spark: Runner, laid: Sequence[tuple[Layout, AnyPath]]) -> Counter[str]:
    """The totals of layouts with logged clocks, each with the directory its tables are in."""
    blocks = [
        (layout, number, columns)
        for layout, _ in laid
        for number, columns in enumerate(blocks_of(len(layout.names), WIDTH))
    ]

    def look(number: int) -> None:
        layout, block, columns = blocks[number]
        walk = Regressions(own_columns(len(layout.names), columns), len(columns))
        for k in range(layout.epochs):
            found = walk.step(*layout.logged_clocks(k))
            write_arrays(layout.path(f"regressions-{block:04d}", k), found=found)

    def tell(number: int) -> Counter[str]:
        layout, out = laid[number]
        of = [block for of, block, _ in blocks if of is layout]
        answers = Answers()
        for k in range(layout.epochs):
            parts = [read_arrays(layout.path(f"regressions-{block:04d}", k))["found"] for block in of]
            found = np.unique(np.concatenate(parts))
            if found.size:
                view = layout.view(k)
                add_clock_faults(view, "regression", view.logged[found], answers)
        write_answers(layout, out, answers, "regressions")
        return answers.totals

    on_tasks(spark, len(blocks), look)
    return sum(on_tasks(spark, len(laid), tell), Counter())
