"""Which service calls which in large computations.

In    the rows of the trace that hold them
Out   rows of DEPENDENCIES (causality.questions.dependencies)
Cost  one scan of the attributes by tasks; what reaches the driver is a row per pair of services and split
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...causality.questions import Answers
from ...causality.questions.dependencies import DEPENDENCIES, added_up, calls_of, tell_calls
from ..tasks import Runner, on_tasks
from .named_violations import Laid


def tell_dependencies(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    jobs = [(of.layout.computation, split) for of in laid for split in of.splits]

    def look(number: int) -> list[dict[str, Any]]:
        computation, split = jobs[number]
        rows = split.read(["computation", "attributes"]).events
        found: list[dict[str, Any]] = calls_of(
            rows.filter(pc.equal(rows["computation"], computation))
        ).to_pylist()
        return found

    found = on_tasks(spark, len(jobs), look)
    answers = Answers()
    for of in laid:
        name = of.layout.computation
        mine = [row for (each, _), rows in zip(jobs, found, strict=True) for row in rows if each == name]
        calls = added_up([pa.Table.from_pylist(mine, schema=DEPENDENCIES)])
        tell_calls(calls, answers)
        of.output.write("dependencies", calls)
    return answers.totals
