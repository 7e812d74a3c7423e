"""What a question needs of computations cut into epochs beyond its own answers for epochs and walks.

A question itself has the answers for whole computations, for stamped epochs and for walks over the epochs.
Anything else it needs (names of events, times, a judgement over all epochs at once) is a Step here,
registered by the question's name in STEPS. Most questions need none.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...causality.linearization import Ints
from ...causality.questions import Answers, Question
from ...causality.questions.epochs import EPOCHS, TIMES, skew_table
from ...causality.questions.measures import measure_rows
from ...causality.questions.stamp import processes_table
from ...core.errors import CausalityError
from ..tasks import Runner, on_tasks
from .clock_faults import regressions
from .message_rows import write_messages
from .named_violations import Laid, Told, early, first_early, lost_causes, name_all
from .pair_traffic import parts_of, traffic_rows
from .service_calls import tell_dependencies
from .stamping import EpochDone, EpochStep
from .total_at_scale import count_disagreements, keep_casts
from .tracker_faults import verify_trackers


class Step(NamedTuple):
    """finish gets every computation, and the results of `epoch` for its epochs, in their order; returns
    totals"""

    finish: Callable[[Runner, Sequence[Laid], Sequence[list[Any]]], Counter[str]]
    epoch: EpochStep | None = None


def number_processes(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """The numbers that clocks are indexed by; the stamped epochs have written the clocks."""
    for of in laid:
        layout, n = of.layout, len(of.layout.names)
        names = [pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())]
        of.output.write("processes", processes_table(names, np.arange(n), layout.counts))
    return Counter()


def look_for_faults_of_order(of: EpochDone, answers: Answers) -> tuple[int, list[Told]]:
    keep_casts(of)
    return first_early(of.layout, of.view.number, answers)


def name_faults_of_order(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """Names and paths of early deliveries and lost causes; total order."""
    lost, causal, fifo = lost_causes(spark, laid)
    count, cycles = count_disagreements(spark, [of.layout for of in laid])
    found = [early(of, epochs) for of, epochs in zip(laid, told, strict=True)]
    name_all(spark, [*found, *lost], [(laid[i], legs) for i, legs in cycles])
    return Counter(lost_causes=causal, fifo_lost_causes=fifo, total_violations=count)


def finish_clocks(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    return regressions(spark, [(of.layout, of.output.folder) for of in laid if of.layout.logged])


def want_stamps(of: EpochDone, answers: Answers) -> None:
    """A step that only asks for the epochs to be stamped."""


class Backwards(NamedTuple):
    """How often clocks went back in an epoch, and the first and last time of each process there."""

    counts: Ints
    process: Ints
    first: Ints
    last: Ints


def tell_times(of: EpochDone, answers: Answers) -> Backwards:
    """Write the times of an epoch, corrected."""
    layout, view = of.layout, of.view
    times = of.share["times"]
    process, seq, time = times[np.lexsort((times[:, 1], times[:, 0]))].T
    n = len(layout.names)
    if layout.clocks is not None and time.size:
        ahead = layout.clocks.skew.ahead(process, time - layout.clocks.origin)
        columns = [*view.event_columns(process, seq), pa.array(time), pa.array(time - ahead)]
        answers.add("times", pa.table(columns, schema=TIMES))
    back = np.flatnonzero((np.diff(process) == 0) & (np.diff(time) < 0)) + 1
    first = np.flatnonzero(np.diff(process, prepend=-1))
    last = np.append(first[1:], process.size)[: first.size] - 1
    return Backwards(np.bincount(process[back], minlength=n), process[first], time[first], time[last])


def tell_cuts_and_clocks(
    spark: Runner, laid: Sequence[Laid], told: Sequence[list[Backwards]]
) -> Counter[str]:
    return sum((_cuts_and_clocks(*each) for each in zip(laid, told, strict=True)), Counter())


def _cuts_and_clocks(of: Laid, told: list[Backwards]) -> Counter[str]:
    layout = of.layout
    n = len(layout.names)
    columns = [
        pa.repeat(layout.computation, n * layout.epochs),
        pa.array(np.repeat(np.arange(layout.epochs, dtype=np.int32), n)),
        pa.array(layout.names * layout.epochs, pa.string()),
        pa.array(layout.cuts.ravel()),
    ]
    of.output.write("epochs", pa.table(columns, schema=EPOCHS))
    clocks = layout.clocks
    if clocks is None:
        return Counter()
    counts = np.zeros(n, np.int64)
    last = np.full(n, np.iinfo(np.int64).min)
    for each in told:
        counts += each.counts
        np.add.at(counts, each.process[each.first < last[each.process]], 1)
        last[each.process] = each.last
    names = [pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())]
    of.output.write("skew", skew_table(names, clocks.skew, np.full(n, clocks.origin), counts))
    return Counter(times_backwards=int(counts.sum()))


def measure_traffic(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """Events per process and traffic per pair; the walk has written depth and width."""
    for of in laid:
        counts, names = of.layout.counts, pa.array(of.layout.names, pa.string())
        present = np.flatnonzero(counts)
        rows = measure_rows(of.layout.computation, "events", counts[present], names.take(pa.array(present)))
        of.output.write("measures", rows, "-events")
    jobs = [(of.layout, of.output, part) for of in laid for part in range(parts_of(of.layout.pairs))]

    def write(number: int) -> None:
        layout, output, part = jobs[number]
        rows = traffic_rows(layout.computation, layout.names, layout.pairs, part)
        output.write("measures", rows, f"-pairs-{part:04d}")

    on_tasks(spark, len(jobs), write)
    return Counter()


def tell_messages(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    write_messages(spark, laid)
    return Counter()


def check_answerable(questions: Iterable[Question]) -> None:
    """Raise if a question has no answer for computations cut into epochs."""
    for question in questions:
        kind = type(question)
        has_fold = kind.fold is not Question.fold
        if not question.needs_stamps and not has_fold and question.name not in STEPS:
            raise CausalityError(
                f"the question {question.name!r} has no answer for computations cut into epochs: give it "
                "`stamped` or `fold`, or a step in spark/by_epoch/steps.py"
            )


STEPS: dict[str, Step] = {
    "stamp": Step(number_processes),
    "order": Step(name_faults_of_order, look_for_faults_of_order),
    "verify-clocks": Step(finish_clocks),
    "verify-trackers": Step(verify_trackers, want_stamps),
    "epochs": Step(tell_cuts_and_clocks, tell_times),
    "measures": Step(measure_traffic),
    "messages": Step(tell_messages),
    "dependencies": Step(tell_dependencies),
}
