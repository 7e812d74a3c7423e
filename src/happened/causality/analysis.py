"""Every question asked of a table of whole computations, and the answers as tables.

In    rows of trace.SCHEMA, each computation complete
Out   Analysis: one Arrow table per question and the totals that add up over disjoint tables
Cost  as the questions: events x processes; computations are independent

A computation that is none (a cycle, a gap, two events of one name) is put aside with its reason and the
others are analysed.
"""

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from ..trace import validate
from .computation import SEND, Computation, encode
from .delivery import check_delivery
from .linearization import Ints
from .logged_clocks import verify_clocks
from .measures import MEASURES, measure
from .necessary import COUNTS, necessary
from .order import check_order
from .predecessors import PREDECESSORS, computation_predecessors
from .skew import correct, tightest
from .stamps import stamp_computation
from .verdict import EarlyDelivery

TIMESTAMPS = ("full", "sparse", "predecessors")

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
        pa.field("feasible", pa.bool_(), nullable=False),
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
TABLES = {
    "stamps": STAMPS,
    "predecessors": PREDECESSORS,
    "violations": VIOLATIONS,
    "necessary": NECESSARY,
    "measures": MEASURES,
    "skew": SKEW,
    "clocks": CLOCKS,
    "quarantine": QUARANTINE,
}


@dataclass
class Analysis:
    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: {name: [] for name in TABLES})
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            self.tables[name].append(table)

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([TABLES[name].empty_table(), *self.tables[name]])


def analyse(table: pa.Table, *, timestamps: str = "full") -> Analysis:
    analysis = Analysis()
    for sound in _sound(table, analysis):
        computations = encode(sound)
        _analyse_order(computations, analysis)
        for c in computations:
            _analyse_computation(c, sound, timestamps, analysis)
    return analysis


def _sound(table: pa.Table, analysis: Analysis) -> list[pa.Table]:
    """The computations that are computations: all at once if none is broken, else one by one."""
    if not table.num_rows:
        return []
    try:
        validate(table)
        encode(table)
        return [table]
    except TraceFormatError as error:
        names = pc.unique(table["computation"])
        if len(names) == 1:
            row = {"computation": names[0].as_py(), "reason": str(error)}
            analysis.add("quarantine", pa.Table.from_pylist([row], schema=QUARANTINE))
            analysis.totals["quarantined"] += table.num_rows
            return []
    return [
        sound
        for name in names
        for sound in _sound(table.filter(pc.equal(table["computation"], name)), analysis)
    ]


def _analyse_order(computations: Any, analysis: Analysis) -> None:
    totals = analysis.totals
    for order in ("fifo", "causal"):
        verdict = check_order(computations, order, limit=sys.maxsize)
        totals[f"{order}_violations"] += verdict.violations
        analysis.add("violations", violations_table(verdict.witnesses))
    totals["deliveries_judged"] += verdict.deliveries
    fates = check_delivery(computations, examples=0)
    for name in ("events", "processes", "messages", "lost", "duplicated", "misdelivered", "never_sent"):
        totals[name] += getattr(fates, name)
    totals["computations"] += len(computations)
    edges = necessary(computations)
    counts = edges.edge_counts()
    totals["necessary_units"] += pc.sum(counts["units"]).as_py() or 0
    totals["necessary_edges"] += counts.num_rows
    analysis.add("necessary", counts.drop_columns("message"))


def _analyse_computation(c: Computation, table: pa.Table, timestamps: str, analysis: Analysis) -> None:
    totals = analysis.totals
    vectors = stamp_computation(c)
    ordered = int(vectors.sum(dtype=np.int64)) - c.events
    totals["ordered_pairs"] += ordered
    totals["concurrent_pairs"] += c.events * (c.events - 1) // 2 - ordered
    relevant = c.relevant if c.relevant.any() else np.ones(c.events, bool)
    effects, causes = computation_predecessors(c, vectors, relevant)
    totals["reduction_edges"] += effects.size
    analysis.add("predecessors", _named(c, PREDECESSORS, effects, causes))
    logged = verify_clocks(c, vectors, table)
    totals["clocks_logged"] += logged.logged
    found = {
        "mismatch": logged.mismatches,
        "regression": logged.regressions,
        "impossible": logged.impossible,
    }
    for fault, events in found.items():
        totals[CLOCK_TOTALS[fault]] += len(events)
        rows = _named(c, pa.schema(_EVENT), events)
        analysis.add("clocks", rows.append_column(CLOCKS.field("fault"), pa.repeat(fault, len(events))))
    latency, skew = _skew(c, table, totals)
    analysis.add("measures", measure(c, latency))
    analysis.add("skew", skew)
    analysis.add("stamps", stamps_table(c, vectors, timestamps))


def _named(c: Computation, schema: pa.Schema, *events: Ints) -> pa.Table:
    """(computation, process, seq) of the first events, then (process, seq) of each of the others."""
    names = pa.array(c.process_names, pa.string())
    columns = [pa.repeat(c.name, len(events[0]))]
    for of in events:
        columns += [names.take(pa.array(c.process[of])), pa.array(c.seq[of].astype(np.int64))]
    return pa.table(columns, schema=schema)


def stamps_table(c: Computation, vectors: Ints, timestamps: str, epoch: int = 0) -> pa.Table:
    events = c.chain
    return clock_table(
        c.name, c.process_names, c.process[events], c.seq[events], vectors[events], timestamps, epoch
    )


def clock_table(
    computation: str,
    process_names: tuple[str, ...],
    process: Ints,
    seq: Ints,
    vectors: Ints,
    timestamps: str,
    epoch: int,
    before: Ints | None = None,
) -> pa.Table:
    """STAMPS for events given by process and seq, with their clocks in the form asked for.

    full          every entry that is not zero
    sparse        the entries that differ from the event before on the same process (`before` has the
                  vectors before each process's first event here, where those are not zero)
    predecessors  no clock: the table of immediate predecessors is the timestamp
    """
    names = pa.array(process_names, pa.string())
    if timestamps == "predecessors":
        clock = pa.nulls(len(process), STAMPS.field("clock").type)
    else:
        shown = vectors != 0
        if timestamps == "sparse":
            previous = np.empty_like(vectors)
            previous[1:] = vectors[:-1]
            starts = np.flatnonzero(np.diff(process, prepend=-1))
            previous[starts] = 0 if before is None else before[process[starts]]
            shown = vectors != previous
        _, column = np.nonzero(shown)
        offsets = np.concatenate([[0], np.cumsum(shown.sum(axis=1))]).astype(np.int32)
        clock = pa.MapArray.from_arrays(
            offsets, names.take(pa.array(column)), pa.array(vectors[shown].astype(np.int64))
        )
    return pa.table(
        [
            pa.repeat(computation, len(process)),
            names.take(pa.array(process)),
            pa.array(np.asarray(seq, np.int64)),
            pa.repeat(pa.scalar(epoch, pa.int32()), len(process)),
            clock,
        ],
        schema=STAMPS,
    )


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
        for w in witnesses
        if isinstance(w, EarlyDelivery)
    ]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)


def _skew(
    c: Computation, table: pa.Table, totals: Counter[str]
) -> tuple[tuple[Ints, Ints, Ints] | None, pa.Table]:
    """Corrected latencies by sender and receiver, and the offsets they were corrected by.

    Counts the deliveries that precede their sends by the clocks, before and after.
    """
    times = table["time"].take(pa.array(c.row))
    timed = pc.is_valid(times).to_numpy()
    time = pc.fill_null(times, 0).to_numpy()
    received = np.flatnonzero((c.source >= 0) & timed)
    received = received[timed[c.source[received]] & (c.kind[c.source[received]] == SEND)]
    if not received.size:
        return None, SKEW.empty_table()
    sent = c.source[received]
    gap = time[received] - time[sent]
    skew = correct(tightest(c.processes, c.process[sent], c.process[received], gap))
    corrected = gap - skew.offsets[c.process[received]] + skew.offsets[c.process[sent]]
    totals["receives_before_sends"] += int((gap < 0).sum())
    totals["receives_before_sends_corrected"] += int((corrected < 0).sum())
    offsets = pa.table(
        [
            pa.repeat(c.name, c.processes),
            pa.array(c.process_names, pa.string()),
            pa.array(skew.offsets),
            pa.repeat(skew.feasible, c.processes),
        ],
        schema=SKEW,
    )
    return (c.process[sent], c.process[received], corrected), offsets
