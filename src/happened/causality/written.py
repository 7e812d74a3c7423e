"""Write answers as tables in a directory, from a Spark task or a single process, and read them again.

In    tables of whole computations, and a directory
Out   a part of each table that has rows, and totals; `conclude` adds a summary and the empty tables
Cost  that of the questions, for about EVENTS_PER_BATCH events at a time

`analysed_events` reads such a directory as a trace, for `ask`, the viewer and reports if the trace itself is
missing: rows of trace.SCHEMA, by computation, process and seq. It reads `stamps`, `messages` and `processes`,
and `times` and `predecessors` if they exist. An event's causes are the events by which its clock exceeds that
of the event before it: this gives the same happened-before as the trace. No table has labels, attributes or
arrivals; a second delivery of a message at a process becomes an internal event.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import CausalityError
from ..trace.parts import write_part
from ..trace.schema import QUARANTINE, SCHEMA
from ..trace.store import AnyPath, arrow_dataset, matching
from .analysis import analyse
from .computation import REFUSE, RENUMBER
from .linearization import offsets_of
from .names import encode_names, nested
from .questions import Question, asked
from .questions.stamp import listed
from .reach import WORD
from .stamps import MANY_PROCESSES, MOST_CELLS

Known: TypeAlias = dict[str, dict[str, int] | None]
"""For each wanted computation, how many events of each process are wanted; None: all."""

NAME = ["computation", "process", "seq"]
BY_P = ["computation", "p"]
CAUSE, TO = SCHEMA.field("causes").type.value_type, SCHEMA.field("to").type

EVENTS_PER_BATCH = 200_000

MOST_WORDS = 20_000_000_000
"""Limit of steps to count the ordered pairs of a computation processed whole without vectors: some 20 s."""

COUNTED = ("events", "processes", "computations", "quarantined", "duplicate_rows")
ALWAYS = (*COUNTED, "complete")  # In every summary, whatever questions were asked

OF_WINDOWS = ("sent_outside", "causes_outside")
"""Additional totals in the summary of a window: deliveries of messages that were sent outside the window, and
recorded causes that are outside it."""


@dataclass(frozen=True)
class Whole:
    """The questions to ask of each computation, and the folder for the answers; `gaps` is as in `analyse`."""

    out: AnyPath
    timestamps: str
    questions: Sequence[str | Question]
    gaps: str = REFUSE

    @property
    def writes_vectors(self) -> bool:
        """Whether the questions need all events' vectors, whole or as changes."""
        names = [question.name for question in asked(self.questions)]
        return "stamp" in names and self.timestamps != "predecessors"

    def analyse(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for a table as the part `part` of each answer table; return the totals.

        A repeated task gives the same `part`, and so replaces the part that it wrote before.
        """
        analysis = analyse(table, timestamps=self.timestamps, questions=self.questions, gaps=self.gaps)
        for name, rows in analysis.filled():
            write_part(self.out / name, part, rows)
        return analysis.totals

    def analyse_in_batches(self, table: pa.Table, part: str) -> Counter[str]:
        """Write the answers for many computations, in batches; the table has every computation completely."""
        totals: Counter[str] = Counter()
        for number, batch in enumerate(whole_computations(table)):
            totals += self.analyse(batch, f"{part}-{number:05d}")
        return totals


def conclude(
    folder: AnyPath, totals: Counter[str], questions: Sequence[Question], gaps: str = REFUSE
) -> dict[str, Any]:
    """Write an empty table for each table without parts, and return the summary."""
    for name, schema in tables_of(questions).items():
        if not (folder / name).exists():
            write_part(folder / name, "empty", schema.empty_table())
    return summary_of(totals, questions, gaps)


def tables_of(questions: Sequence[Question]) -> dict[str, pa.Schema]:
    """The tables that answer these questions."""
    tables = {"quarantine": QUARANTINE}
    for question in questions:
        tables |= question.tables
    return tables


def summary_of(totals: Counter[str], questions: Sequence[Question], gaps: str = REFUSE) -> dict[str, Any]:
    counted = (*COUNTED, *OF_WINDOWS) if gaps == RENUMBER else COUNTED
    summary: dict[str, Any] = {name: totals[name] for name in counted}
    for question in questions:
        summary |= question.summarise(totals)
    return summary


def is_wide(events: pa.Table, writes_vectors: bool = False) -> bool:
    """Whether a computation has too many processes to be processed whole; events bound the processes."""
    return bool(large_computations(events, writes_vectors))


def large_computations(
    events: pa.Table, writes_vectors: bool = False, most_events: int | None = None
) -> list[str]:
    """The computations that are too large to process whole: too many processes, or over `most_events`."""
    if events.num_rows**2 <= MOST_CELLS and events.num_rows <= (most_events or events.num_rows):
        return []
    sizes = sizes_of(events)
    large = too_wide(sizes, writes_vectors)
    if most_events is not None:
        large = pc.or_(large, pc.greater(sizes["events"], most_events))
    names: list[str] = sizes["computation"].filter(large).to_pylist()
    return names


def too_wide(sizes: pa.Table, writes_vectors: bool = False) -> pa.ChunkedArray:
    """For each computation, whether it has too many processes for its events to be processed whole.

    sizes            at least the columns events, processes and messages of `sizes_of`
    writes_vectors   whether whole vectors are requested, for up to MANY_PROCESSES processes

    Without messages, vectors are needed only if they are to be written: see `questions.Subject.is_wide`.
    """
    events, processes = (sizes[name].cast(pa.float64()) for name in ("events", "processes"))
    words = pc.multiply(events, pc.min_element_wise(processes, pc.divide(events, float(WORD))))
    needs_vectors = pc.or_(pc.greater(sizes["messages"], 0), pc.greater(words, float(MOST_WORDS)))
    if writes_vectors:
        needs_vectors = pc.or_(needs_vectors, pc.less_equal(sizes["processes"], MANY_PROCESSES))
    return pc.and_(needs_vectors, pc.greater(pc.multiply(events, processes), float(MOST_CELLS)))


def sizes_of(events: pa.Table) -> pa.Table:
    """For each computation: the numbers of its events, of its processes with events, of its rows of kind
    `deliver`, and of its rows about messages."""
    flags = {
        "delivers": pc.equal(events["kind"], "deliver").cast(pa.int64()),
        "messages": pc.not_equal(events["kind"], "internal").cast(pa.int64()),
    }
    flagged = pa.table({"computation": events["computation"], "process": events["process"]} | flags)
    added = [("process", "count"), ("process", "count_distinct"), ("delivers", "sum"), ("messages", "sum")]
    table = flagged.group_by("computation").aggregate(added)
    names = ["computation", "process_count", "process_count_distinct", "delivers_sum", "messages_sum"]
    return table.select(names).rename_columns(["computation", "events", "processes", "delivers", "messages"])


def whole_computations(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in tables of about EVENTS_PER_BATCH rows, split only between computations."""
    if table.num_rows <= EVENTS_PER_BATCH:
        yield table
        return
    table = table.sort_by("computation")
    ends = pc.run_end_encode(table["computation"].combine_chunks()).run_ends.to_pylist()
    begin = 0
    for end, following in pairwise([*ends, None]):
        if following is None or following - begin > EVENTS_PER_BATCH:
            yield table.slice(begin, end - begin)
            begin = end


def analysed_events(
    folder: AnyPath, wanted: Known | None, *, time: str = "corrected", relevant: bool = False
) -> pa.Table:
    """The events of the wanted computations, or of all.

    time      which column of `times` to use as the time
    relevant  whether to mark the events in `predecessors` as relevant

    CausalityError if only relevant events have timestamps.
    """
    processes = arrow_dataset(folder / "processes").to_table().sort_by([(name, "ascending") for name in BY_P])
    stamps = _stamps(folder, wanted).sort_by([(name, "ascending") for name in NAME]).combine_chunks()
    size = stamps.num_rows
    keys = stamps.select(NAME).append_column("row", pa.array(np.arange(size)))
    sends, deliveries = _messages(folder, wanted)
    sent, received = _places(keys, sends), _places(keys, deliveries)
    columns = {
        **{name: stamps[name] for name in NAME},
        "kind": pc.if_else(
            pc.is_valid(sent), "send", pc.if_else(pc.is_valid(received), "deliver", "internal")
        ),
        "message": pc.coalesce(sends["message"].take(sent), deliveries["message"].take(received)),
        "to": sends["to"].take(sent),
        "time": _times(folder, wanted, keys, time),
        "causes": _causes(stamps, processes),
        "relevant": _relevant(folder, wanted, keys) if relevant else pa.repeat(False, size),
    }
    nothing = {field.name: pa.nulls(size, field.type) for field in SCHEMA}
    return pa.table(nothing | columns, schema=SCHEMA)


def _of(wanted: Known | None) -> pc.Expression | None:
    return None if wanted is None else pc.field("computation").isin([*wanted])


def _stamps(folder: AnyPath, wanted: Known | None) -> pa.Table:
    columns = ["computation", "process", "seq", "clock", "entries"]
    data = arrow_dataset(folder / "stamps")
    kept = [data.schema.empty_table().select(columns)]
    for batch in data.to_batches(columns=columns, filter=_of(wanted)):
        rows = pa.Table.from_batches([batch])
        kept.append(rows if wanted is None else rows.filter(_within(rows, wanted)))
    table = pa.concat_tables(kept)
    # Entries are changes, or immediate predecessors; if all events have them, either form gives
    # happened-before. If only the relevant events have them, it does not: process order is then unknown.
    every = arrow_dataset(folder / "processes").to_table(filter=_of(wanted))["events"]
    if table["clock"].null_count and (pc.sum(every).as_py() or 0) != table.num_rows:
        raise CausalityError(
            f"{folder}: its timestamps are immediate predecessors of the relevant events alone; analyse the "
            "trace again with --timestamps full or sparse, or ask the trace itself"
        )
    return table


def _within(rows: pa.Table, wanted: Known) -> pa.Array:
    """Whether each row is among the wanted events of its process."""
    kept = pc.is_valid(rows["seq"])
    for computation, known in wanted.items():
        if known is not None:
            at = pc.index_in(rows["process"], value_set=pa.array([*known], pa.string()))
            counts = pc.fill_null(pa.array(known.values(), pa.int64()).take(at), 0)
            beyond = pc.and_(pc.equal(rows["computation"], computation), pc.greater(rows["seq"], counts))
            kept = pc.and_(kept, pc.invert(beyond))
    return kept


def _messages(folder: AnyPath, wanted: Known | None) -> tuple[pa.Table, pa.Table]:
    """Sends and first deliveries, by NAME, with their messages; sends with their destinations, `to`."""
    columns = ["computation", "message", "sender", "sent_seq", "receiver", "received_seq", "fate"]
    told = arrow_dataset(folder / "messages").to_table(columns=columns, filter=_of(wanted))
    sent = told.filter(pc.is_valid(told["sent_seq"]))
    to = pc.if_else(pc.equal(sent["fate"], "misdelivered"), None, sent["receiver"])
    by_send = sent.append_column("to", to).group_by(["computation", "sender", "sent_seq", "message"])
    sends = by_send.aggregate([("to", "list")]).rename_columns([*NAME, "message", "to"]).combine_chunks()
    received = told.filter(pc.is_valid(told["received_seq"]))
    deliveries = received.select(["computation", "receiver", "received_seq", "message"])
    # Without the nulls in `to`, which stand for processes that were not addressed.
    lists = sends["to"].combine_chunks() if sends.num_rows else pa.array([], TO)
    flat, row = pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy()
    named = pc.is_valid(flat)
    counts = np.bincount(row[named.to_numpy(zero_copy_only=False)], minlength=len(lists))
    addressed = nested(counts, flat.filter(named), TO)
    sends = sends.set_column(sends.schema.get_field_index("to"), "to", addressed)
    return sends, deliveries.rename_columns([*NAME, "message"]).combine_chunks()


def _places(keys: pa.Table, named: pa.Table) -> pa.Array:
    """For each key, in order, the row of `named` with the same name; null if there is none."""
    numbered = named.select(NAME).append_column("at", pa.array(np.arange(named.num_rows)))
    return keys.join(numbered, NAME, join_type="left outer").sort_by("row")["at"].combine_chunks()


def _times(folder: AnyPath, wanted: Known | None, keys: pa.Table, column: str) -> pa.Array:
    if not matching(folder / "times", "*.parquet"):
        return pa.nulls(keys.num_rows, pa.int64())
    times = arrow_dataset(folder / "times").to_table(columns=[*NAME, column], filter=_of(wanted))
    return times[column].take(_places(keys, times))


def _relevant(folder: AnyPath, wanted: Known | None, keys: pa.Table) -> pa.Array:
    """Whether each event is an effect or a cause in `predecessors`."""
    if not matching(folder / "predecessors", "*.parquet"):
        return pa.repeat(False, keys.num_rows)
    edges = arrow_dataset(folder / "predecessors").to_table(filter=_of(wanted))
    causes = edges.select(["computation", "cause_process", "cause_seq"]).rename_columns(NAME)
    named = pa.concat_tables([edges.select(NAME), causes]).group_by(NAME).aggregate([])
    return pc.is_valid(_places(keys, named))


def _causes(stamps: pa.Table, processes: pa.Table) -> pa.Array:
    """For each stamp by NAME, the newest event of each other process that the previous stamp did not know."""
    row, number, seq = listed(stamps)
    if not stamps["clock"].null_count:  # entries that exceed the previous stamp's
        same = [np.diff(encode_names(stamps[name])[0], prepend=-1) == 0 for name in NAME[:2]]
        starts = offsets_of(np.bincount(row, minlength=stamps.num_rows))
        before = np.where((same[0] & same[1])[row], seq[starts[np.maximum(row - 1, 0)] + number], 0)
        row, number, seq = (each[seq > before] for each in (row, number, seq))
    computations = processes["computation"].combine_chunks()
    first = pc.index_in(stamps["computation"], value_set=computations).to_numpy()  # BY_P order: of process 0
    name = processes["process"].combine_chunks().take(pa.array(first[row] + number))
    others = pc.not_equal(name, stamps["process"].take(pa.array(row))).to_numpy()
    columns = [name.filter(pa.array(others)), pa.array(seq[others].astype(np.int64))]
    causes = pa.StructArray.from_arrays(columns, fields=list(CAUSE))
    counts = np.bincount(row[others], minlength=stamps.num_rows)
    return nested(counts, causes, SCHEMA.field("causes").type)
