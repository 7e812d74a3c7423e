"""A trace prepared for questions: it is read, encoded and timed once, for any number of questions.

In    a path, a table of `trace.read`, or the directory of tables that `happened analyze` wrote. Those tables
      have no labels and attributes, so there only `process#seq` and messages name events
Out   History: the computations as one union, with the names of their events
Cost  reading and encoding; a question reads text columns only when it needs them
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import trace as traces
from ..causality.analysis import sound_whole
from ..causality.computation import Computation, unite
from ..causality.linearization import Ints
from ..causality.questions import Answers
from ..causality.reach import Edges, edges_of, known_of, last_causes
from ..causality.skew import Times, times_of
from ..causality.written import Known, analysed_events
from ..core.errors import CausalityError
from ..trace.location import Location, is_json
from ..trace.reader import open_part
from ..trace.store import AnyPath, any_path, arrow_dataset, matching, size_of
from ..trace.validation import validate_rows
from .naming import UnknownName, halves

MOST_EVENTS = 5_000_000  # Events of a trace that is read whole. More take minutes and gigabytes of memory
MOST_BYTES = 1 << 30  # The same limit for JSON lines, whose events cannot be counted before they are read

NEEDED = ("stamps", "processes", "messages", "times")  # The tables of an analysis that are read

MOST_KNOWN = 64_000_000  # Entries of vector columns that are cached: 256 MB

ALL_AT_ONCE = np.iinfo(np.int64).max
"""Limit on vector cells per union. A history makes no vectors, so one union holds all computations."""


class Occurrence(NamedTuple):
    """An event as an answer shows it; `time` is in ns, corrected for skew if messages show a skew."""

    computation: str
    process: str
    seq: int
    kind: str
    message: str | None = None
    label: str | None = None
    time: int | None = None
    service: str | None = None
    span: str | None = None
    trace: str | None = None

    @property
    def id(self) -> str:
        """`process#seq`, unique within its computation."""
        return f"{self.process}#{self.seq}"

    @property
    def place(self) -> str:
        """The service that the event belongs to, or its process if no service is recorded."""
        return self.service or self.process

    def __str__(self) -> str:
        about = f"“{self.label}”" if self.label else self.message
        return printable(" ".join(filter(None, (self.id, self.kind, about))))


def printable(text: str) -> str:
    """A name from a trace with non-printable characters escaped, safe for a terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


@dataclass(frozen=True)
class History:
    """The sound computations of a trace. Events are numbered as in `union`, causes before effects.

    requests_in_trace   how many requests the trace has, if the history holds only some computations
    """

    table: pa.Table  # the rows from which the union was encoded
    union: Computation
    quarantined: int = 0  # how many rows, or causes, were left out
    partial: bool = False  # whether events may be missing that no question about the past needs
    requests_in_trace: int | None = None

    @cached_property
    def edges(self) -> Edges:
        return edges_of(self.union)

    @property
    def before(self) -> Ints:
        """For each event, the event before it on its process; -1 for the first."""
        return self.edges.before

    @cached_property
    def event_of_row(self) -> Ints:
        events = np.empty(self.union.events, np.int64)
        events[self.union.row] = np.arange(self.union.events)
        return events

    @cached_property
    def times(self) -> Times | None:
        return times_of(self.union, self.table["time"])

    @cached_property
    def waits(self) -> tuple[Ints, Ints]:
        """(since, waited) of `reach.last_causes`, by corrected times."""
        return last_causes(self.edges, *self.clock)

    @cached_property
    def clock(self) -> tuple[Ints, Ints]:
        """The corrected time of each event, and whether the event has a time."""
        if self.times is None:
            nothing = np.zeros(self.union.events, np.int64)
            return nothing, nothing.astype(bool)
        return self.times.corrected, self.times.timed

    @cached_property
    def relevant(self) -> Ints:
        """Whether each event is marked as relevant. If all events of a computation are marked, none of them
        counts as relevant."""
        c = self.union
        owner = c.owner[c.process]
        tells: Ints = np.bincount(owner, c.relevant) < np.bincount(owner)
        relevant: Ints = c.relevant & tells[owner]
        return relevant

    @cached_property
    def knows(self) -> Callable[[int], Ints]:
        """A function of a process: for each event, how many of its events are in the past, with itself.

        The most recently used columns are cached, up to MOST_KNOWN numbers.
        """
        most = max(1, MOST_KNOWN // max(1, self.union.events))
        return lru_cache(most)(lambda process: known_of(self.union, self.edges, process))

    def is_before(self, e: int, f: int) -> bool:
        return e != f and bool(self.knows(int(self.union.process[e]))[f] >= self.union.seq[e])

    @cached_property
    def attribute(self) -> Callable[[str], pa.Array]:
        """A function of an attribute's name: its value for each row of the table, null if absent from it."""
        return cache(lambda name: _column(pc.map_lookup(self.table["attributes"], name, "first")))

    @cached_property
    def places(self) -> tuple[Ints, list[str]]:
        """The place of each event, by number, and the names of all places: services, or else processes."""
        named = pc.coalesce(self.attribute("service"), _column(self.table["process"]))
        encoded = named.dictionary_encode()
        return encoded.indices.to_numpy()[self.union.row].astype(np.int64), encoded.dictionary.to_pylist()

    @cached_property
    def requests(self) -> tuple[Ints, list[str]]:
        """The request of each event, by number (-1: none), and the names of the requests.

        Requests are the values of the attribute `trace`. A computation in which no event has this attribute
        is a request itself.
        """
        ids, computation = self.attribute("trace"), _column(self.table["computation"])
        traced = pc.unique(computation.filter(pc.is_valid(ids)))
        alone = pc.invert(pc.is_in(computation, value_set=traced))
        encoded = pc.if_else(alone, computation, ids).dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy()[self.union.row].astype(np.int64)
        return codes, encoded.dictionary.to_pylist()

    def causes(self, e: int) -> list[int]:
        """The direct causes of an event, each once: the event before it on its process, the send, then
        recorded causes."""
        first, end = self.edges.offsets[e : e + 2]
        return [*dict.fromkeys(self.edges.causes[first:end].tolist())]

    def edge(self, cause: int, effect: int) -> str:
        """By which edge a cause led to its effect: `process`, `message` or `cause`."""
        c = self.union
        if c.process[cause] == c.process[effect]:
            return "process"
        return "message" if c.source[effect] == cause else "cause"

    def occurrence(self, e: int) -> Occurrence:
        event, row = self.union.event(e), int(self.union.row[e])
        time, timed = self.clock
        return Occurrence(
            *event,
            label=self.table["label"][row].as_py(),
            time=int(time[e]) if timed[e] else None,
            **{name: self.attribute(name)[row].as_py() for name in ("service", "span", "trace")},
        )

    def occurrences(self, events: Iterable[int]) -> list[Occurrence]:
        return [self.occurrence(int(e)) for e in events]

    def events_table(self, events: Ints) -> pa.Table:
        """These events as a table: names, columns of the trace, and corrected times."""
        rows = pa.array(self.union.row[events])
        time, timed = self.clock
        corrected = pa.array(time[events], mask=~timed[events])
        named = zip(("computation", "process", "seq", "event"), self.union.event_columns(events), strict=True)
        texts = {name: _column(self.table[name]).take(rows) for name in ("kind", "message", "label")}
        return pa.table(
            dict(named) | texts | {"time": corrected, "service": self.attribute("service").take(rows)}
        )


Asked: TypeAlias = History | pa.Table | str | os.PathLike[str]
"""What a question can be asked of: a history, or anything that `load` turns into one."""


def load(
    trace: Asked, about: Iterable[str] = (), *, past_only: bool = False, whatever_size: bool = False
) -> History:
    """A history to ask questions of, from a table, or the path of a trace or of an analysis's tables.

    about          names of the events in question; of an analysis, only their computations are read
    past_only      whether the questions concern only the past of these events; then, of an analysis, only
                   that past is read
    whatever_size  whether to read a trace however much memory it needs
    """
    if isinstance(trace, History):
        return trace
    if isinstance(trace, pa.Table):
        return _history(trace)
    path = any_path(trace)
    if is_answered(path):
        table, partial = answered_events(path, [*about], past_only=past_only)
        return _history(table, partial=partial)
    if not whatever_size and (reason := why_too_large(path)) is not None:
        raise CausalityError(
            f"{path}: {reason}; ask it on Spark (docs/ask.md), or analyse it first, `happened analyze {path} "
            "--out ANSWERS`, and ask ANSWERS"
        )
    return _history(traces.read(path, validate_rows))


def load_whole(trace: Asked, about: Iterable[str] = ()) -> History:
    """Like `load`, for questions that need more than the past of the named events."""
    history = load(trace, about)
    if history.partial:
        raise CausalityError("this history has the past of some events alone; load it without past_only")
    return history


def _history(table: pa.Table, *, partial: bool = False) -> History:
    answers = Answers()
    table, unions = sound_whole(table, answers, lambda rows: unite(rows, ALL_AT_ONCE))
    quarantined = answers.totals["quarantined"]
    if not unions:
        left = f": all {quarantined:,} rows are quarantined; `happened check` says why" if quarantined else ""
        raise CausalityError(f"the trace has no events to ask about{left}")
    (union,) = unions
    return History(table, union, quarantined, partial)


def why_too_large(path: AnyPath) -> str | None:
    """Why the trace at a path is too large to be read whole; None if it is not."""
    at: Location = traces.locate(path)
    if at.is_json:
        if is_json(at.root) and at.root.suffix != ".gz" and size_of(at.root) > MOST_BYTES:
            return f"{size_of(at.root):,} bytes of JSON lines are too many to be read whole"
        return None
    events = sum(open_part(part).metadata.num_rows for part in at.parts)
    return f"{events:,} events are too many to be read whole" if events > MOST_EVENTS else None


def _column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def is_answered(path: AnyPath) -> bool:
    """Whether a path holds an analysis's tables. CausalityError if some needed ones are missing."""
    if not path.is_dir() or not matching(path / "stamps", "*.parquet"):
        return False
    lacking = [name for name in NEEDED if not matching(path / name, "*.parquet")]
    if lacking:
        raise CausalityError(
            f"{path} has no table {', '.join(lacking)}: it is the answer to some questions only; ask what "
            "`happened analyze` or `happened analyze --local` leave, or the trace itself"
        )
    return True


def answered_events(
    folder: AnyPath, about: Sequence[str], *, past_only: bool = False
) -> tuple[pa.Table, bool]:
    """The events of the computations in which these names occur, or their past; and whether events are
    missing.

    Without names, all events. UnknownName if a name does not occur.
    """
    wanted = _wanted(folder, about, past_only) if about else None
    return analysed_events(folder, wanted), past_only and wanted is not None


def _wanted(folder: AnyPath, about: Sequence[str], past_only: bool) -> Known:
    wanted: Known = {}
    processes = arrow_dataset(folder / "processes").to_table()
    stamps = arrow_dataset(folder / "stamps")
    for text in about:
        named = pc.field("event") == text
        for computation, event in halves(text):
            named |= (pc.field("computation") == computation) & (pc.field("event") == event)
        found = stamps.to_table(columns=["computation", "clock"], filter=named)
        of_message = pc.field("message") == text
        messages = arrow_dataset(folder / "messages").to_table(columns=["computation"], filter=of_message)
        for computation in pc.unique(messages["computation"]).to_pylist():
            wanted[computation] = None  # all of it
        for row in found.to_pylist():
            before = wanted.setdefault(row["computation"], {})
            if not past_only or row["clock"] is None or before is None:
                wanted[row["computation"]] = None
                continue
            mine = processes.filter(pc.field("computation") == row["computation"])
            for p, name in zip(mine["p"].to_pylist(), mine["process"].to_pylist(), strict=True):
                if row["clock"][p]:
                    before[name] = max(before.get(name, 0), row["clock"][p])
        if not found.num_rows and not messages.num_rows:
            raise UnknownName(
                f"nothing in {folder} is called {text!r}: an analysis has no labels or spans, only "
                "process#seq and messages; ask the trace itself for those"
            )
    return wanted
