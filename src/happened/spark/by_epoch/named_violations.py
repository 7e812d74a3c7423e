"""Violations of order and lost causes by name, with their witnesses, of all large computations together.

In    the early deliveries and lost causes that stamped epochs showed, as integers (see
      causality.questions.order); the cycles of total order
Out   rows of VIOLATIONS and LOST_CAUSES. The first MOST_PATHS of each have the causal path between the sends
Cost  where there are any: a scan of the splits for the names of the messages; see paths_and_cycles

To name a finding, the messages sent at some events are needed, looked up by the epochs of these events. A
split has events of few epochs, and the findings of an epoch are about messages of few epochs, so each task
reads only a few files.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...causality.computation import Event, event_ids
from ...causality.epochs import event_keys, split_keys
from ...causality.linearization import Ints
from ...causality.questions import Answers
from ...causality.questions.order import LOST_CAUSES, MOST_PATHS, VIOLATIONS, total_row
from ...trace.store import AnyPath, matching
from ..splits import Split
from ..storage import read_arrays, read_part, write_arrays, write_part
from ..tasks import Runner, on_each
from .consistent_cuts import epoch_of
from .epoch_layout import Layout
from .paths_and_cycles import Leg, Step, causal_paths

WANTED, NAMED = "wanted", "named"
"""In a layout's store, by epoch: the keys of events whose messages are wanted; keys and messages found."""

Columns = dict[str, Ints]
Row = tuple[int, ...]
Told = tuple[int, Row]
"""Whether a finding violates FIFO order, and the finding."""
Build = Callable[[Layout, Columns, list[pa.Array], pa.Array], pa.Table]


class Laid(NamedTuple):
    """A computation whose epochs are done, the splits that hold its rows, and where its answers go."""

    layout: Layout
    splits: Sequence[Split]
    folder: AnyPath

    def write(self, table: str, rows: pa.Table, part: str = "") -> None:
        if rows.num_rows:
            write_part(self.folder / table, f"{self.layout.store.name}{part}", rows)


class FindingKind(NamedTuple):
    """A kind of finding.

    kept   under which name epochs keep it
    ends   two roles, in causal order of their sends: columns role_p and role_sent name the send of each
    key    the columns that tell findings apart
    """

    kept: str
    table: str
    ends: tuple[str, str]
    key: tuple[str, ...]
    build: Build

    @property
    def columns(self) -> list[str]:
        return [*self.key, *(f"{role}_{what}" for role in self.ends for what in ("p", "sent"))]

    def first(self, columns: Columns) -> list[Told]:
        """The first findings of all, and the first in FIFO order."""
        order = np.lexsort([columns[name] for name in reversed(self.columns)])
        of_fifo = order[columns["fifo"][order] == 1]
        chosen = np.union1d(order[:MOST_PATHS], of_fifo[:MOST_PATHS])
        rows = zip(*(columns[name][chosen].tolist() for name in self.columns), strict=True)
        return [*zip(columns["fifo"][chosen].tolist(), rows, strict=True)]


class Findings(NamedTuple):
    """The findings of one kind in one computation: the files that have some, and the first finding of all."""

    of: Laid
    kind: FindingKind
    files: list[AnyPath]
    first: list[Row]


def want(layout: Layout, kind: FindingKind, columns: Columns, part: str) -> None:
    """Write down the messages that these findings need."""
    process, seq = (
        np.concatenate([columns[f"{role}_{what}"] for role in kind.ends]) for what in ("p", "sent")
    )
    keys = np.unique(event_keys(process, seq))
    epoch = epoch_of(layout.cuts, *split_keys(keys))
    for k in np.unique(epoch).tolist():
        path = layout.store / WANTED / f"{k:06d}-{kind.kept}-{part}.npz"
        write_arrays(path, keys=keys[epoch == k])


def first_early(layout: Layout, epoch: int, answers: Answers) -> tuple[int, list[Told]]:
    """How many early deliveries an epoch has, and the first of them."""
    kept = answers.kept.get(EARLY.kept)
    if kept is None:
        return 0, []
    columns = _columns(kept)
    want(layout, EARLY, columns, f"{epoch:06d}")
    return kept.num_rows, EARLY.first(columns)


def early(of: Laid, told: list[tuple[int, list[Told]]]) -> Findings:
    """The early deliveries of a computation, from the results of `first_early` for its epochs."""
    files = [of.layout.store / EARLY.kept / f"{k:06d}.parquet" for k in range(len(told))]
    some = [file for file, (count, _) in zip(files, told, strict=True) if count]
    first = sorted((row, fifo) for _, rows in told for fifo, row in rows)
    of_fifo = [each for each in first if each[1]]
    chosen = {row for row, _ in (*first[:MOST_PATHS], *of_fifo[:MOST_PATHS])}
    return Findings(of, EARLY, some, sorted(chosen))


def lost_causes(spark: Runner, laid: Sequence[Laid]) -> tuple[list[Findings], int, int]:
    """The lost causes, each with the first delivery that shows it; how many in causal and in FIFO order."""
    lossy = [of for of in laid if of.layout.totals.get("lost")]

    def first_of_all(layout: Layout) -> tuple[int, int, list[Told]]:
        files = matching(layout.store / LOST.kept, "*.parquet")
        if not files:
            return 0, 0, []
        shown = _read(files)
        order = np.lexsort([shown[name] for name in ("delivered_seq", "lost_sent", "lost_p", "dest", "fifo")])
        keys = np.stack([shown[name][order] for name in LOST.key])
        first = order[np.flatnonzero((np.diff(keys, prepend=-1) != 0).any(axis=0))]
        rows = {name: column[first] for name, column in shown.items()}
        write_part(layout.store / "first-shown", "all", pa.table(rows))
        want(layout, LOST, rows, "all")
        fifo = int(rows["fifo"].sum())
        return first.size - fifo, fifo, LOST.first(rows)

    told = on_each(spark, [(of.layout,) for of in lossy], first_of_all)
    found = [
        Findings(of, LOST, [of.layout.store / "first-shown" / "all.parquet"], [row for _, row in first])
        for of, (causal, fifo, first) in zip(lossy, told, strict=True)
        if causal + fifo
    ]
    return found, sum(causal for causal, _, _ in told), sum(fifo for _, fifo, _ in told)


def name_all(
    spark: Runner, found: Sequence[Findings], cycles: Sequence[tuple[Laid, list[list[Leg]]]]
) -> None:
    """Write findings, and cycles of total order (disagreements of two processes among them), by name."""
    found = [of for of in found if of.files]
    if not found and not cycles:
        return
    paths = causal_paths(spark, [(of.of.layout, row[-4:]) for of in found for row in of.first])
    told = iter(paths)
    paths_of = [{row: next(told) for row in of.first} for of in found]
    steps: dict[AnyPath, tuple[Laid, set[Step]]] = {}
    for laid, legs in cycles:
        steps[laid.layout.store] = laid, {step for each in legs for leg in each for step in leg}
    for of, its in zip(found, paths_of, strict=True):
        steps.setdefault(of.of.layout.store, (of.of, set()))[1].update(*its.values())
    events = _look(spark, [*steps.values()])
    for laid, legs in cycles:
        at, layout = events[laid.layout.store], laid.layout
        rows = [total_row(layout.computation, [(at[a], at[b]) for a, b in each]) for each in legs]
        laid.write("violations", pa.Table.from_pylist(rows, schema=VIOLATIONS), "-total")
    jobs = []
    for of, its in zip(found, paths_of, strict=True):
        at = events[of.of.layout.store]
        shown = {row[: len(of.kind.key)]: [_told(at[step]) for step in path] for row, path in its.items()}
        jobs += [(of.of, of.kind, file, shown) for file in of.files]

    def write(of: Laid, kind: FindingKind, file: AnyPath, shown: Any) -> None:
        layout = of.layout
        columns = _read([file])
        messages = [_named(layout, columns[f"{role}_p"], columns[f"{role}_sent"]) for role in kind.ends]
        rows = kind.build(layout, columns, messages, _paths(kind, columns, shown))
        of.write(kind.table, rows, f"-{kind.kept}-{file.stem}")

    on_each(spark, jobs, write)


def _paths(kind: FindingKind, columns: Columns, shown: dict[Row, list[dict[str, Any]]]) -> pa.Array:
    """The path of each finding that has one; only the first few findings do."""
    maybe = np.ones(len(columns[kind.key[0]]), bool)
    for place, name in enumerate(kind.key):
        maybe &= np.isin(columns[name], [key[place] for key in shown])
    at = np.zeros(len(maybe), np.int64)
    paths: list[Any] = [None]
    for row in np.flatnonzero(maybe).tolist():
        path = shown.get(tuple(int(columns[name][row]) for name in kind.key))
        if path is not None:
            at[row] = len(paths)
            paths.append(path)
    return pa.array(paths, VIOLATIONS.field("path").type).take(pa.array(at))


def _told(event: Event) -> dict[str, Any]:
    return {"process": event.process, "seq": event.seq, "kind": event.kind, "message": event.message}


def _look(spark: Runner, steps: list[tuple[Laid, set[Step]]]) -> dict[AnyPath, dict[Step, Event]]:
    """Look in the splits for the events at these steps, which are returned, and for the wanted messages,
    which are written to the layout's store."""
    wanted = []
    for laid, of in steps:
        every = np.array(sorted(of), np.int64).reshape(-1, 2)
        wanted.append((laid.layout, np.sort(event_keys(every[:, 0], every[:, 1]))))
    jobs = [
        (i, number, split) for i, (laid, _) in enumerate(steps) for number, split in enumerate(laid.splits)
    ]

    def look(i: int, number: int, split: Split) -> list[tuple[int, str, str | None]]:
        layout, at_steps = wanted[i]
        keys, rows = _events(layout, split)
        _find_wanted(layout, number, keys, rows)
        asked = np.flatnonzero(np.isin(keys, at_steps))
        kinds, messages = (rows[name].take(pa.array(asked)).to_pylist() for name in ("kind", "message"))
        return [*zip(keys[asked].tolist(), kinds, messages, strict=True)]

    events: dict[AnyPath, dict[Step, Event]] = {laid.layout.store: {} for laid, _ in steps}
    for (i, _, _), told in zip(jobs, on_each(spark, jobs, look), strict=True):
        layout = wanted[i][0]
        for key, kind, message in told:
            process, seq = (int(part) for part in split_keys(np.array(key)))
            name = layout.names[process]
            events[layout.store][process, seq] = Event(layout.computation, name, seq, kind, message)
    return events


def _events(layout: Layout, split: Split) -> tuple[Ints, pa.Table]:
    """The events of a computation that a split holds: their keys, and their rows."""
    table = split.read_all(["computation", "process", "seq", "kind", "message"]).events
    process = layout.numbered(table["process"])
    # Rows that are not events have been quarantined already, and none of them is looked for.
    mine = pc.and_(pc.equal(table["computation"], layout.computation), pc.is_valid(process))
    mine = pc.and_(mine, pc.fill_null(pc.greater(table["seq"], 0), False))
    table, process = table.filter(mine), process.filter(mine)
    return event_keys(process.to_numpy().astype(np.int64), table["seq"].to_numpy()), table


def _find_wanted(layout: Layout, number: int, keys: Ints, rows: pa.Table) -> None:
    """Write the wanted messages of a split's events, by the epochs of these events."""
    sends = np.flatnonzero(pc.fill_null(pc.equal(rows["kind"], "send"), False).to_numpy())
    epoch = epoch_of(layout.cuts, *split_keys(keys[sends]))
    for k in np.unique(epoch).tolist():
        files = matching(layout.store / WANTED, f"{k:06d}-*.npz")
        if files:
            wanted = np.unique(np.concatenate([read_arrays(path)["keys"] for path in files]))
            here = sends[epoch == k]
            here = here[np.isin(keys[here], wanted)]
            table = pa.table({"key": keys[here], "message": rows["message"].take(pa.array(here))})
            write_part(layout.store / NAMED, f"{k:06d}-{number:06d}", table)


def _named(layout: Layout, process: Ints, seq: Ints) -> pa.Array:
    """The messages sent at these events."""
    epoch, keys = epoch_of(layout.cuts, process, seq), event_keys(process, seq)
    places, messages = [], []
    for k in np.unique(epoch).tolist():
        files = matching(layout.store / NAMED, f"{k:06d}-*.parquet")
        table = pa.concat_tables([read_part(file) for file in files]).combine_chunks()
        here, known = np.flatnonzero(epoch == k), table["key"].to_numpy()
        order = np.argsort(known)
        at = order[np.searchsorted(known[order], keys[here])]
        places.append(here)
        messages.append(table["message"].combine_chunks().take(pa.array(at)))
    return pa.concat_arrays(messages).take(pa.array(np.argsort(np.concatenate(places))))


def _read(files: Sequence[AnyPath]) -> Columns:
    return _columns(pa.concat_tables([read_part(file) for file in files]))


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy() for name in table.column_names}


def _violations(layout: Layout, of: Columns, messages: list[pa.Array], paths: pa.Array) -> pa.Table:
    # A delivery that violates FIFO order violates causal order too, and is reported under both.
    rows = np.repeat(np.arange(len(paths)), 1 + of["fifo"])
    also = np.append(np.diff(rows), 1) == 0
    overtaken, early = (column.take(pa.array(rows)) for column in messages)
    process = layout.named(of["dest"][rows])
    early_seq, overtaken_seq = pa.array(of["early_seq"][rows]), pa.array(of["overtaken_seq"][rows])
    return pa.table(
        [
            pa.repeat(layout.computation, rows.size),
            pa.array(np.where(also, "fifo", "causal")),
            process,
            early,
            early_seq,
            event_ids(process, early_seq),
            overtaken,
            overtaken_seq,
            event_ids(process, overtaken_seq),
            paths.take(pa.array(rows)),
        ],
        schema=VIOLATIONS,
    )


def _lost_causes(layout: Layout, of: Columns, messages: list[pa.Array], paths: pa.Array) -> pa.Table:
    process = layout.named(of["dest"])
    seq = pa.array(of["delivered_seq"])
    lost, delivered = messages
    return pa.table(
        [
            pa.repeat(layout.computation, len(paths)),
            pa.array(np.where(of["fifo"] == 1, "fifo", "causal")),
            process,
            lost,
            delivered,
            seq,
            event_ids(process, seq),
            paths,
        ],
        schema=LOST_CAUSES,
    )


EARLY = FindingKind("early", "violations", ("overtaken", "early"), ("dest", "early_seq"), _violations)
LOST = FindingKind(
    "shown", "lost_causes", ("lost", "delivered"), ("fifo", "dest", "lost_p", "lost_sent"), _lost_causes
)
