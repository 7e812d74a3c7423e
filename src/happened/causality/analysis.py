"""Every question asked of a table of whole computations, and the answers as tables.

In    rows of trace.SCHEMA, each computation complete
Out   Analysis: one Arrow table per question and the totals that add up over disjoint tables
Cost  as the questions: events x processes; computations are independent

A computation that is none (a cycle, a gap, two events of one name) is put aside with its reason and the
others are analysed.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace import validate
from .computation import SEND, Computation, unite
from .delivery import check_delivery
from .linearization import Ints
from .logged_clocks import verify_clocks
from .measures import MEASURES, measure
from .necessary import COUNTS, NecessaryUnits
from .order import causal_order
from .predecessors import PREDECESSORS, computation_predecessors, edges_table
from .skew import Skew, estimate
from .stamps import stamp_computation
from .total import total_order
from .verdict import Disagreement, EarlyDelivery

TIMESTAMPS = ("full", "sparse", "predecessors")
TOTAL_WITNESSES = 1000
"""Causal order leaves concurrent messages in any order, so disagreements can be as many as deliveries."""

_EVENT = [
    pa.field("computation", pa.string(), nullable=False),
    pa.field("process", pa.string(), nullable=False),
    pa.field("seq", pa.int64(), nullable=False),
]
STAMPS = pa.schema(
    [
        *_EVENT,
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("clock", pa.map_(pa.string(), pa.int64())),
    ]
)
STEP = pa.struct(
    [("process", pa.string()), ("seq", pa.int64()), ("kind", pa.string()), ("message", pa.string())]
)
VIOLATIONS = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("order", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("early", pa.string(), nullable=False),
        pa.field("early_seq", pa.int64(), nullable=False),
        pa.field("overtaken", pa.string(), nullable=False),
        pa.field("overtaken_seq", pa.int64(), nullable=False),
        pa.field("path", pa.list_(STEP)),
    ]
)
NECESSARY = COUNTS.remove(COUNTS.get_field_index("message"))
SKEW = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("drift", pa.float64(), nullable=False),
        pa.field("origin", pa.int64(), nullable=False),
        pa.field("feasible", pa.bool_(), nullable=False),
        pa.field("backwards", pa.int64(), nullable=False),
    ]
)
"""A clock that shows `time` is ahead by offset + drift x (time - origin). `backwards` counts the events at
which it showed less than at the event before."""
TIMES = pa.schema(
    [
        *_EVENT,
        pa.field("time", pa.int64(), nullable=False),
        pa.field("corrected", pa.int64(), nullable=False),
    ]
)
CLOCK_TOTALS = {
    "mismatch": "clock_mismatches",
    "regression": "clock_regressions",
    "impossible": "clock_impossible",
}
CLOCKS = pa.schema([*_EVENT, pa.field("fault", pa.string(), nullable=False)])
QUARANTINE = pa.schema(
    [pa.field("computation", pa.string(), nullable=False), pa.field("reason", pa.string())]
)
EPOCHS = pa.schema(
    [
        pa.field("computation", pa.string(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("process", pa.string(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
    ]
)
"""Where each epoch ends at each process. A computation that is looked at whole has one epoch, 0."""
TABLES = {
    "epochs": EPOCHS,
    "stamps": STAMPS,
    "predecessors": PREDECESSORS,
    "violations": VIOLATIONS,
    "necessary": NECESSARY,
    "measures": MEASURES,
    "skew": SKEW,
    "times": TIMES,
    "clocks": CLOCKS,
    "quarantine": QUARANTINE,
}


class Question(NamedTuple):
    """What can be asked: the tables that answer it, and the totals that go into its summary."""

    tables: tuple[str, ...]
    totals: tuple[str, ...]


QUESTIONS = {
    "epochs": Question(
        ("epochs", "skew", "times"),
        ("receives_before_sends", "receives_before_sends_corrected", "times_backwards"),
    ),
    "stamp": Question(("stamps",), ("ordered_pairs", "concurrent_pairs")),
    "verify-clocks": Question(
        ("clocks",), ("clock_mismatches", "clock_regressions", "clock_impossible", "clocks_logged")
    ),
    "predecessors": Question(("predecessors",), ("reduction_edges",)),
    "order": Question(
        ("violations",),
        ("messages", "fifo_violations", "causal_violations", "total_violations", "lost", "duplicated",
         "misdelivered", "never_sent", "deliveries_judged"),
    ),
    "necessary": Question(("necessary",), ("necessary_units_mean",)),
    "measures": Question(("measures",), ()),
}  # fmt: skip
EVERYTHING = tuple(QUESTIONS)


@dataclass
class Analysis:
    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: {name: [] for name in TABLES})
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self.tables[name].append(table)

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([TABLES[name].empty_table(), *self.tables[name]])


def analyse(table: pa.Table, *, timestamps: str = "full", questions: Sequence[str] = EVERYTHING) -> Analysis:
    analysis = Analysis()
    for sound, unions in _sound(table, analysis):
        for c in unions:
            _analyse_union(c, sound, timestamps, questions, analysis)
    return analysis


def _sound(table: pa.Table, analysis: Analysis) -> Iterator[tuple[pa.Table, list[Computation]]]:
    """The computations that are computations. Where one is broken, it is found by halving."""
    if not table.num_rows:
        return
    try:
        validate(table)
        yield table, unite(table)
        return
    except TraceFormatError as error:
        if error.field == "causes":
            yield from _sound(_without_absent_causes(table, analysis), analysis)
            return
        names = pc.unique(table["computation"])
        if len(names) == 1:
            row = {"computation": names[0].as_py(), "reason": str(error)}
            analysis.add("quarantine", pa.Table.from_pylist([row], schema=QUARANTINE))
            analysis.totals["quarantined"] += table.num_rows
            return
    for half in (names[: len(names) // 2], names[len(names) // 2 :]):
        yield from _sound(table.filter(pc.is_in(table["computation"], value_set=half)), analysis)


def _without_absent_causes(table: pa.Table, analysis: Analysis) -> pa.Table:
    """The rows with causes that are events; the others are named in the quarantine."""
    known = set(zip(*(table[name].to_pylist() for name in ("computation", "process", "seq")), strict=True))
    rows = table.select(["computation", "process", "seq", "causes"]).to_pylist()
    rejected = []
    for row in rows:
        present = []
        for cause in row["causes"] or ():
            cause = cause or {"process": None, "seq": None}
            if (row["computation"], cause["process"], cause["seq"]) in known:
                present.append(cause)
                continue
            reason = (
                f"{row['process']}#{row['seq']} names the cause {cause['process']}#{cause['seq']}, "
                "which is not in the trace"
            )
            rejected.append({"computation": row["computation"], "reason": reason})
        row["causes"] = present
    analysis.add("quarantine", pa.Table.from_pylist(rejected, schema=QUARANTINE))
    analysis.totals["quarantined"] += len(rejected)
    at = table.schema.get_field_index("causes")
    kept = pa.array([row["causes"] for row in rows], table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), kept)


def _analyse_union(
    c: Computation, table: pa.Table, timestamps: str, questions: Sequence[str], analysis: Analysis
) -> None:
    analysis.totals["computations"] += len(c.computation_names)
    analysis.totals["events"] += c.events
    analysis.totals["processes"] += c.processes
    vectors = stamp_computation(c)
    if "epochs" in questions:
        analysis.add("epochs", _epochs(c))
    if "stamp" in questions:
        if timestamps != "predecessors":
            analysis.add("stamps", stamps_table(c, vectors, timestamps))
        _count(c, vectors, analysis.totals)
    if "order" in questions:
        _judge(c, vectors, analysis)
    if "necessary" in questions and c.slot_dest.size:
        _need(c, vectors, analysis)
    if "predecessors" in questions or ("stamp" in questions and timestamps == "predecessors"):
        _reduce(c, vectors, timestamps, questions, analysis)
    if "verify-clocks" in questions:
        _verify(c, vectors, table, analysis)
    if "measures" in questions or "epochs" in questions:
        _measure(c, table, questions, analysis)


def _epochs(c: Computation) -> pa.Table:
    computation, process = c.names_of(np.arange(c.processes))
    epoch = pa.repeat(pa.scalar(0, pa.int32()), c.processes)
    return pa.table([computation, epoch, process, np.diff(c.chain_offsets)], schema=EPOCHS)


def _count(c: Computation, vectors: Ints, totals: Counter[str]) -> None:
    events = np.bincount(c.owner[c.process]).astype(object)  # exact, however many pairs there are
    ordered = int(vectors.sum(dtype=np.int64)) - c.events
    totals["ordered_pairs"] += ordered
    totals["concurrent_pairs"] += int((events * (events - 1) // 2).sum()) - ordered


def _judge(c: Computation, vectors: Ints, analysis: Analysis) -> None:
    totals = analysis.totals
    for order in ("fifo", "causal"):
        verdict = causal_order(c, vectors, order, sys.maxsize)
        totals[f"{order}_violations"] += verdict.violations
        analysis.add("violations", violations_table(verdict.witnesses))
    totals["deliveries_judged"] += verdict.deliveries
    agreed = total_order(c, TOTAL_WITNESSES)
    totals["total_violations"] += agreed.violations
    analysis.add("violations", violations_table(agreed.witnesses))
    fates = check_delivery([c], examples=0)
    for name in ("messages", "lost", "duplicated", "misdelivered", "never_sent"):
        totals[name] += getattr(fates, name)


def _need(c: Computation, vectors: Ints, analysis: Analysis) -> None:
    units = NecessaryUnits(c, vectors)
    analysis.totals["necessary_units"] += int(units.edge_counts.sum())
    analysis.totals["necessary_edges"] += len(units.edge_counts)
    analysis.add("necessary", units.counts_table().drop_columns("message"))


def _reduce(
    c: Computation, vectors: Ints, timestamps: str, questions: Sequence[str], analysis: Analysis
) -> None:
    """Among the relevant events; where a computation marks none, all of its events are."""
    owner = c.owner[c.process]
    marked = np.bincount(owner, c.relevant) > 0
    relevant = c.relevant | ~marked[owner]
    effects, causes = computation_predecessors(c, vectors, relevant)
    if "predecessors" in questions:
        analysis.totals["reduction_edges"] += effects.size
        analysis.add("predecessors", edges_table(c, effects, causes))
    if "stamp" in questions and timestamps == "predecessors":
        events = np.flatnonzero(relevant)
        counts = np.bincount(effects, minlength=c.events)[events]
        clock = predecessor_clocks(counts, c.names_of(c.process[causes])[1], c.seq[causes])
        columns = [*c.names_of(c.process[events]), pa.array(c.seq[events].astype(np.int64))]
        epoch = pa.repeat(pa.scalar(0, pa.int32()), len(events))
        analysis.add("stamps", pa.table([*columns, epoch, clock], schema=STAMPS))


def predecessor_clocks(counts: Ints, processes: pa.Array, seqs: Ints) -> pa.Array:
    """Immediate predecessors as clocks: so many to each event, of these processes and seqs."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.MapArray.from_arrays(offsets, processes, pa.array(np.asarray(seqs, np.int64)))


def _verify(c: Computation, vectors: Ints, table: pa.Table, analysis: Analysis) -> None:
    logged = verify_clocks(c, vectors, table)
    analysis.totals["clocks_logged"] += logged.logged
    found = {
        "mismatch": logged.mismatches,
        "regression": logged.regressions,
        "impossible": logged.impossible,
    }
    for fault, events in found.items():
        analysis.totals[CLOCK_TOTALS[fault]] += len(events)
        named = [*c.names_of(c.process[events]), pa.array(c.seq[events].astype(np.int64))]
        analysis.add("clocks", pa.table([*named, pa.repeat(fault, len(events))], schema=CLOCKS))


def _measure(c: Computation, table: pa.Table, questions: Sequence[str], analysis: Analysis) -> None:
    """What needs times, corrected for skew, and what comes with it."""
    times = table["time"].take(pa.array(c.row))
    timed = pc.is_valid(times).to_numpy()
    if not timed.any():
        if "measures" in questions:
            analysis.add("measures", measure(c, None))
        return
    time = pc.fill_null(times, 0).to_numpy()
    received = np.flatnonzero((c.source >= 0) & timed)
    received = received[timed[c.source[received]] & (c.kind[c.source[received]] == SEND)]
    sent = c.source[received]
    source, target = c.process[sent], c.process[received]
    origin = np.full(len(c.computation_names), np.iinfo(np.int64).max)
    np.minimum.at(origin, c.owner[c.process[timed]], time[timed])
    origin = origin[c.owner]
    skew = estimate(c.owner, source, target, time[sent] - origin[source], time[received] - time[sent])
    since = time - origin[c.process]
    corrected = time - skew.ahead(c.process, since)
    gap = corrected[received] - corrected[sent]
    analysis.totals["receives_before_sends"] += int((time[received] < time[sent]).sum())
    analysis.totals["receives_before_sends_corrected"] += int((gap < 0).sum())
    if "measures" in questions:
        analysis.add("measures", measure(c, (source, target, gap) if received.size else None))
    if "epochs" not in questions:
        return
    backwards = _backwards(c, time, timed)
    analysis.totals["times_backwards"] += int(backwards.sum())
    told = np.flatnonzero(np.isin(c.owner, c.owner[c.process[timed]]))
    analysis.add("skew", skew_table(*c.names_of(told), skew.of(told), origin[told], backwards[told]))
    events = np.flatnonzero(timed)
    columns = [*c.names_of(c.process[events]), pa.array(c.seq[events].astype(np.int64))]
    analysis.add("times", pa.table([*columns, time[events], corrected[events]], schema=TIMES))


def _backwards(c: Computation, time: Ints, timed: Ints) -> Ints:
    """How often the clock of each process went back from one event that has a time to the next."""
    chain = c.chain[timed[c.chain]]
    earlier, later = chain[:-1], chain[1:]
    back = (c.process[earlier] == c.process[later]) & (time[later] < time[earlier])
    return np.bincount(c.process[later[back]], minlength=c.processes)


def skew_table(
    computations: pa.Array, processes: pa.Array, skew: Skew, origin: Ints, backwards: Ints
) -> pa.Table:
    told = [skew.offsets, skew.drifts, origin, pa.array(skew.feasible), backwards]
    columns = [computations, processes, *told]
    return pa.table(columns, schema=SKEW)


def stamps_table(c: Computation, vectors: Ints, timestamps: str) -> pa.Table:
    events = c.chain
    process = c.process[events]
    names = c.names_of(np.arange(c.processes))
    return clock_table(names, c.first, process, c.seq[events], vectors[events], timestamps)


def clock_table(
    names: list[pa.Array],
    first: Ints,
    process: Ints,
    seq: Ints,
    vectors: Ints,
    timestamps: str,
    epoch: int = 0,
    before: Ints | None = None,
) -> pa.Table:
    """STAMPS for events given by process and seq, with their clocks in the form asked for.

    `names` has the computation and the name of each process; entry k of the vector of an event of process p
    is about process first[p] + k.

    full          every entry that is not zero
    sparse        the entries that differ from the event before on the same process (`before` has the
                  vectors before each process's first event here, where those are not zero)

    Immediate predecessors, the third form, come from where those are found.
    """
    if timestamps == "sparse":
        shown = np.empty(vectors.shape, bool)
        np.not_equal(vectors[1:], vectors[:-1], out=shown[1:])
        starts = np.flatnonzero(np.diff(process, prepend=-1))
        shown[starts] = vectors[starts] != (0 if before is None else before[process[starts]])
    else:
        shown = vectors != 0
    row, column = np.nonzero(shown)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(process)))]).astype(np.int32)
    clock = pa.MapArray.from_arrays(
        offsets,
        names[1].take(pa.array(first[process[row]] + column)),
        pa.array(vectors[row, column].astype(np.int64)),
    )
    return pa.table(
        [
            *(name.take(pa.array(process)) for name in names),
            pa.array(np.asarray(seq, np.int64)),
            pa.repeat(pa.scalar(epoch, pa.int32()), len(process)),
            clock,
        ],
        schema=STAMPS,
    )


def _disagreement(w: Disagreement) -> dict[str, Any]:
    """At `process` the two came in one order; the path has their deliveries in the other, elsewhere."""
    early, overtaken = w.other
    return {
        "computation": w.computation,
        "order": "total",
        "process": early.process,
        "early": early.message,
        "early_seq": early.seq,
        "overtaken": overtaken.message,
        "overtaken_seq": overtaken.seq,
        "path": [{"process": e.process, "seq": e.seq, "kind": e.kind, "message": e.message} for e in w.one],
    }


def violations_table(witnesses: Any) -> pa.Table:
    rows = [
        {
            "computation": w.computation,
            "order": w.order,
            "process": w.process,
            "early": w.early,
            "early_seq": w.early_delivery.seq,
            "overtaken": w.overtaken,
            "overtaken_seq": w.overtaken_delivery.seq,
            "path": [
                {"process": e.process, "seq": e.seq, "kind": e.kind, "message": e.message} for e in w.path
            ],
        }
        if isinstance(w, EarlyDelivery)
        else _disagreement(w)
        for w in witnesses
    ]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)
