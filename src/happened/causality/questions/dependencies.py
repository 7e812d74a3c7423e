"""Which service calls which, how often, and how often that failed.

A call is the delivery of a request or of a message through a queue; it failed if the span of either side says
so. If the other side recorded nothing (a database, a broker, an outside client), the span's peer attributes
name it, and the call failed if the span itself did. The readers of spans record both sides in the attributes
`caller`, `caller_failed`, `callee`, `service` and `error` (trace/readers/spans.py); other traces have no
such calls.
"""

from collections.abc import Iterable
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ...trace.declared import schema
from .question import Answers, Question, Subject

DEPENDENCIES = schema("computation string, caller string, callee string, calls int64, errors int64")
ENDS = ["computation", "caller", "callee"]


class Dependencies(Question):
    """For computations cut into epochs, the Spark code answers (spark.by_epoch.service_calls)."""

    name = "dependencies"
    help = "which service calls which, how often, and how often that failed"
    tables: ClassVar = {"dependencies": DEPENDENCIES}
    totals = ("service_calls", "service_call_errors")

    def whole(self, subject: Subject, answers: Answers) -> None:
        c = subject.computation
        rows = subject.table.select(["computation", "attributes"]).take(pa.array(c.row))
        tell_calls(calls_of(rows), answers)


def calls_of(rows: pa.Table) -> pa.Table:
    """A table DEPENDENCIES from rows with the columns `computation` and `attributes`."""
    attributes = rows["attributes"].combine_chunks()
    service, caller, callee, error, caller_failed = (
        pc.map_lookup(attributes, pa.scalar(name), "first")
        for name in ("service", "caller", "callee", "error", "caller_failed")
    )
    failed = pc.or_(pc.fill_null(pc.not_equal(error, "false"), False), pc.is_valid(caller_failed))
    computation = rows["computation"].combine_chunks()
    known = pc.is_valid(service)
    parts = []
    for a, b in ((caller, service), (service, callee)):
        here = pc.and_(known, pc.and_(pc.is_valid(a), pc.is_valid(b)))
        columns = [each.filter(here) for each in (computation, a, b, failed.cast(pa.int64()))]
        parts.append(pa.table([*columns[:3], pa.repeat(1, len(columns[0])), columns[3]], schema=DEPENDENCIES))
    return added_up(parts)


def added_up(parts: Iterable[pa.Table]) -> pa.Table:
    """One row for each pair of services of each computation, with the sums of `parts`."""
    every = pa.concat_tables([DEPENDENCIES.empty_table(), *parts])
    sums = every.group_by(ENDS).aggregate([("calls", "sum"), ("errors", "sum")])
    named = sums.rename_columns([*ENDS, "calls", "errors"]).sort_by([(name, "ascending") for name in ENDS])
    return named.cast(DEPENDENCIES)


def tell_calls(calls: pa.Table, answers: Answers) -> None:
    answers.add("dependencies", calls)
    answers.totals["service_calls"] += pc.sum(calls["calls"]).as_py() or 0
    answers.totals["service_call_errors"] += pc.sum(calls["errors"]).as_py() or 0


QUESTION = Dependencies()
