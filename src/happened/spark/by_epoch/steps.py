"""What a question needs of computations cut into epochs beyond its own answers for epochs and walks.

A question itself has the answers for whole computations, for stamped epochs and for walks over the epochs.
Anything else it needs (names of events, times, a judgement over all epochs at once) is a Step here,
registered by the question's name in STEPS. Most questions need none. Costs beside those of stamping:

verify-clocks     per block of columns a task that goes through the logged clocks, epoch after epoch, and
                  holds those of an epoch and the last of each process; then one task that tells of them
verify-trackers   one scan of the attributes, where events are marked relevant; each epoch that has numbered
                  events is stamped once more; then a task for each computation, with a vector for each of its
                  numbered events. Wide computations have no whole vectors: theirs count as not judged
messages          one scan of the files of message fates, which the pass over the rows wrote (see matching)
dependencies      one scan of the attributes; a row per pair of services and split reaches the driver
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.computation import event_ids
from ...causality.epochs import event_keys, own_columns, places, stamp_epoch
from ...causality.linearization import Ints
from ...causality.questions import Answers, Question
from ...causality.questions.dependencies import DEPENDENCIES, added_up, calls_of, tell_calls
from ...causality.questions.epochs import EPOCHS, TIMES, skew_table
from ...causality.questions.measures import measure_rows
from ...causality.questions.message_fates import MESSAGES
from ...causality.questions.question import blocks_of
from ...causality.questions.stamp import processes_table
from ...causality.questions.verify_clocks import Regressions, add_clock_faults
from ...causality.questions.verify_trackers import (
    compare,
    is_numbered,
    numbered_events,
    read_attributes,
    tell_faults,
)
from ...core.errors import CausalityError
from ...trace.schema import SCHEMA
from ...trace.store import AnyPath
from ..splits import Split
from ..storage import read_arrays, read_part, read_parts, write_arrays, write_part
from ..tasks import Runner, on_each
from .edge_files import parts_of, traffic_rows
from .epoch_layout import FRONTIER, Layout, load
from .named_violations import Laid, Told, early, first_early, lost_causes, name_all
from .paths_and_cycles import count_disagreements, keep_casts
from .stamping import EpochDone, EpochStep, write_answers


class Step(NamedTuple):
    """`finish` gets every computation, and the results of `epoch` for its epochs; it returns totals."""

    finish: Callable[[Runner, Sequence[Laid], Sequence[list[Any]]], Counter[str]]
    epoch: EpochStep | None = None


def number_processes(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """The numbers that clocks are indexed by; the stamped epochs have written the clocks."""
    for of in laid:
        layout, n = of.layout, len(of.layout.names)
        names = [pa.repeat(layout.computation, n), pa.array(layout.names, pa.string())]
        of.write("processes", processes_table(names, np.arange(n), layout.counts))
    return Counter()


def look_for_faults_of_order(of: EpochDone, answers: Answers) -> tuple[int, list[Told]]:
    keep_casts(of)
    return first_early(of.layout, of.view.number, answers)


def name_faults_of_order(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """Write early deliveries and lost causes with the names of their messages, and causal paths for the first
    ones; look for violations of total order, and write those."""
    lost, causal, fifo = lost_causes(spark, laid)
    count, cycles = count_disagreements(spark, [of.layout for of in laid])
    found = [early(of, epochs) for of, epochs in zip(laid, told, strict=True)]
    name_all(spark, [*found, *lost], [(laid[i], legs) for i, legs in cycles])
    return Counter(lost_causes=causal, fifo_lost_causes=fifo, total_violations=count)


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
    of.write("epochs", pa.table(columns, schema=EPOCHS))
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
    of.write("skew", skew_table(names, clocks.skew, np.full(n, clocks.origin), counts))
    return Counter(times_backwards=int(counts.sum()))


def measure_traffic(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """Events per process and traffic per pair; the walk has written depth and width."""
    for of in laid:
        counts, present = of.layout.counts, np.flatnonzero(of.layout.counts)
        named = of.layout.named(present)
        rows = measure_rows(of.layout.computation, "events", counts[present], named)
        of.write("measures", rows, "-events")

    def write(of: Laid, part: int) -> None:
        rows = traffic_rows(of.layout.computation, of.layout.names, of.layout.pairs, part)
        of.write("measures", rows, f"-pairs-{part:04d}")

    on_each(spark, [(of, part) for of in laid for part in range(parts_of(of.layout.pairs))], write)
    return Counter()


def tell_messages(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    def write(of: Laid, path: AnyPath) -> None:
        of.write("messages", message_rows(of.layout, read_part(path)), f"-{path.stem}")

    on_each(spark, [(of, path) for of in laid for path in of.layout.fates], write)
    return Counter()


def message_rows(layout: Layout, fates: pa.Table) -> pa.Table:
    sender, receiver = (fates[name].cast(pa.string()) for name in ("sender", "receiver"))
    sent, received = fates["sent_at"], fates["received_at"]
    columns = [
        pa.repeat(layout.computation, fates.num_rows),
        fates["message"],
        sender,
        fates["sent_seq"],
        event_ids(sender, fates["sent_seq"]),
        receiver,
        fates["received_seq"],
        event_ids(receiver, fates["received_seq"]),
        sent,
        received,
        pc.subtract(received, sent),
        pc.subtract(_corrected(layout, receiver, received), _corrected(layout, sender, sent)),
        fates["copies"],
        _fate(fates),
    ]
    return pa.table(columns, schema=MESSAGES)


def _corrected(layout: Layout, process: pa.ChunkedArray, time: pa.ChunkedArray) -> pa.Array:
    """The corrected time; null where there is no time."""
    if layout.clocks is None:
        return pa.nulls(len(time), pa.int64())
    p = pc.fill_null(layout.numbered(process), 0).to_numpy().astype(np.int64)
    shown = pc.fill_null(time, layout.clocks.origin).to_numpy()
    ahead = layout.clocks.skew.ahead(p, shown - layout.clocks.origin)
    return pa.array(shown - ahead, mask=pc.is_null(time).to_numpy())


def _fate(fates: pa.Table) -> pa.Array:
    conditions = {
        "never_sent": pc.is_null(fates["sender"]),
        "misdelivered": pc.invert(fates["addressed"]),
        "lost": pc.equal(fates["copies"], 0),
        "duplicated": pc.greater(fates["copies"], 1),
    }
    cases = pc.make_struct(
        *(flag.combine_chunks() for flag in conditions.values()), field_names=[*conditions]
    )
    return pc.case_when(cases, *map(pa.scalar, conditions), pa.scalar("delivered"))


def tell_dependencies(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    jobs = [(of.layout.computation, split) for of in laid for split in of.splits]

    def look(computation: str, split: Split) -> list[dict[str, Any]]:
        rows = split.read(["computation", "attributes"]).events
        mine = rows.filter(pc.equal(rows["computation"], computation))
        return calls_of(mine).to_pylist()  # type: ignore[no-any-return]

    found = on_each(spark, jobs, look)
    answers = Answers()
    for of in laid:
        name = of.layout.computation
        mine = [row for (each, _), rows in zip(jobs, found, strict=True) for row in rows if each == name]
        calls = added_up([pa.Table.from_pylist(mine, schema=DEPENDENCIES)])
        tell_calls(calls, answers)
        of.write("dependencies", calls)
    return answers.totals


WIDTH = 1024


def finish_clocks(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    """Logged clocks that do not exceed the previous one on their process; stamped epochs tell of others."""
    logged = [of for of in laid if of.layout.logged]

    def look(layout: Layout, block: int, columns: Any) -> None:
        walk = Regressions(own_columns(len(layout.names), columns), len(columns))
        for k in range(layout.epochs):
            found = walk.step(*layout.logged_clocks(k))
            write_arrays(layout.path(f"regressions-{block:04d}", k), found=found)

    def tell(layout: Layout, blocks: int, out: AnyPath) -> Counter[str]:
        answers = Answers()
        for k in range(layout.epochs):
            files = [layout.path(f"regressions-{block:04d}", k) for block in range(blocks)]
            found = np.unique(np.concatenate([read_arrays(file)["found"] for file in files]))
            if found.size:
                view = layout.view(k)
                add_clock_faults(view, "regression", view.logged[found], answers)
        write_answers(layout, out, answers, "regressions")
        return answers.totals

    of_each = [[*blocks_of(len(of.layout.names), WIDTH)] for of in logged]
    pairs = [*zip(logged, of_each, strict=True)]
    on_each(spark, [(of.layout, b, block) for of, blocks in pairs for b, block in enumerate(blocks)], look)
    totals = on_each(spark, [(of.layout, len(blocks), of.folder) for of, blocks in pairs], tell)
    return sum(totals, Counter())


ROWS = pa.schema([("process", pa.int64()), ("seq", pa.int64()), SCHEMA.field("attributes")])
FOLDER, VECTORS = "numbered", "numbered-vectors"


def verify_trackers(spark: Runner, laid: Sequence[Laid], told: Sequence[Any]) -> Counter[str]:
    marked = [of for of in laid if not of.layout.all_relevant]
    jobs = [(of.layout, number, split) for of in marked for number, split in enumerate(of.splits)]
    counts: Counter[str] = Counter()
    for (layout, _, _), found in zip(jobs, on_each(spark, jobs, _take_out), strict=True):
        counts[str(layout.store)] += found
    tracked = [of for of in marked if counts[str(of.layout.store)] and not of.layout.wide]
    unjudged = sum(counts[str(of.layout.store)] for of in marked if of.layout.wide)
    epochs = [(of.layout, k) for of in tracked for k in range(of.layout.epochs)]
    on_each(spark, epochs, _stamp)
    totals: Counter[str] = sum(on_each(spark, [(of,) for of in tracked], _compare), Counter())
    return totals + Counter(tracker_unjudged=unjudged)


def _take_out(layout: Layout, number: int, split: Split) -> int:
    """Keep the numbered events that a split has of a computation; how many there are."""
    table = split.read(["computation", "process", "seq", "attributes"]).events
    table = table.filter(pc.equal(table["computation"], layout.computation))
    table = table.filter(pa.array(is_numbered(table["attributes"])))
    process = layout.numbered(table["process"]).cast(pa.int64())
    kept = pa.table([process, table["seq"], table["attributes"]], schema=ROWS)
    if kept.num_rows:
        write_part(layout.store / FOLDER, f"{number:06d}", kept)
    return int(kept.num_rows)


def _numbered(layout: Layout) -> tuple[Ints, Ints, pa.Table]:
    """Process and seq of all numbered events, in that order, and their rows."""
    table = read_parts(layout.store / FOLDER).combine_chunks()
    table = table.sort_by([("process", "ascending"), ("seq", "ascending")])
    return table["process"].to_numpy(), table["seq"].to_numpy(), table


def _stamp(layout: Layout, k: int) -> None:
    process, seq, _ = _numbered(layout)
    here = (seq > layout.starts(k)[process]) & (seq <= layout.cuts[k][process])
    process, seq = process[here], seq[here]
    view = layout.view(k)
    vectors = np.empty((0, len(layout.names)), np.int32)
    if process.size:
        stamped = stamp_epoch(view.epoch, load(layout.path(FRONTIER, k)), view.arranged)
        vectors = stamped.event_vectors()[places(view.epoch, process, seq)]
    write_arrays(layout.path(VECTORS, k), keys=event_keys(process, seq), vectors=vectors)


def _compare(of: Laid) -> Counter[str]:
    layout = of.layout
    process, seq, table = _numbered(layout)
    parts = [read_arrays(layout.path(VECTORS, k)) for k in range(layout.epochs)]
    order = np.argsort(np.concatenate([part["keys"] for part in parts]))
    vectors = np.concatenate([part["vectors"] for part in parts])[order]
    recorded = read_attributes(table["attributes"].combine_chunks())
    pasts = numbered_events(process, seq, np.zeros(len(layout.names), np.int64), vectors)
    answers = Answers()
    answers.totals["tracker_stamps"] += recorded.rows

    def processes(row: Ints, named: pa.Array) -> Ints:
        found: Ints = layout.numbered(named).fill_null(-1).to_numpy(zero_copy_only=False)
        return found.astype(np.int64)

    view = layout.view(0)
    tell_faults(
        compare(recorded, pasts, processes),
        lambda rows: view.event_columns(process[rows], seq[rows]),
        answers,
    )
    write_answers(layout, of.folder, answers, "trackers")
    return answers.totals


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
