"""Violations of order and lost causes by name, with their witnesses, of all large computations together.

In    the early deliveries and lost causes that stamped epochs showed, as integers (see
      causality.questions.order); the cycles of total order
Out   rows of VIOLATIONS and LOST_CAUSES. The first MOST_PATHS of each come with the causal path between the
      two sends
Cost  where there are any: per MOST_NAMED_AT_ONCE of them a scan of the splits for the names of the messages,
      and tasks that hold those names; see causal_paths
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from ...causality.computation import Event, event_ids
from ...causality.epochs import event_keys, split_keys
from ...causality.linearization import Ints
from ...causality.questions import Answers
from ...causality.questions.order import LOST_CAUSES, MOST_PATHS, VIOLATIONS, total_row
from ...trace.store import AnyPath, matching
from ..splits import Split
from ..storage import read_part, read_parts, write_part
from ..tasks import on_tasks
from .causal_paths import Step, causal_paths
from .epoch_layout import Layout
from .total_at_scale import Leg

MOST_NAMED_AT_ONCE = 1_000_000

Columns = dict[str, Ints]
Row = tuple[int, ...]
Build = Callable[[Layout, Columns, list[pa.Array], list[Any]], pa.Table]


@dataclass(frozen=True)
class Output:
    """Where the answers for one computation go: its parts of the tables in a directory."""

    folder: AnyPath
    part: str

    def write(self, table: str, rows: pa.Table, part: str = "") -> None:
        if rows.num_rows:
            write_part(self.folder / table, f"{self.part}{part}", rows)


class Laid(NamedTuple):
    """A computation whose epochs are done, the splits that hold its rows, and where its answers go."""

    layout: Layout
    splits: Sequence[Split]
    output: Output


class Kind(NamedTuple):
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

    def first(self, columns: Columns) -> list[Row]:
        """The first findings, as rows of `columns`."""
        rows = zip(*(columns[name].tolist() for name in self.columns), strict=True)
        return sorted(rows)[:MOST_PATHS]


class Findings(NamedTuple):
    """What was found of a kind in one computation: files and the findings in each; the first of all."""

    of: Laid
    kind: Kind
    files: list[AnyPath]
    counts: list[int]
    first: list[Row]


def first_early(answers: Answers) -> tuple[int, list[Row]]:
    """How many early deliveries an epoch keeps, and the first of them."""
    kept = answers.kept.get(EARLY.kept)
    return (kept.num_rows, EARLY.first(_columns(kept))) if kept is not None else (0, [])


def early(of: Laid, told: list[tuple[int, list[Row]]]) -> Findings:
    """The early deliveries of a computation, from what `first_early` told of its epochs."""
    files = [of.layout.store / EARLY.kept / f"{k:06d}.parquet" for k in range(len(told))]
    some = [(file, count) for file, (count, _) in zip(files, told, strict=True) if count]
    first = sorted(row for _, rows in told for row in rows)[:MOST_PATHS]
    return Findings(of, EARLY, [file for file, _ in some], [count for _, count in some], first)


def lost_causes(spark: SparkSession, laid: Sequence[Laid]) -> tuple[list[Findings], int, int]:
    """The lost causes, each with the first delivery that shows it; how many in causal and in FIFO order."""
    layouts = [of.layout for of in laid if of.layout.totals.get("lost")]

    def first_of_all(number: int) -> tuple[int, int, list[Row]]:
        files = matching(layouts[number].store / LOST.kept, "*.parquet")
        if not files:
            return 0, 0, []
        shown = _read(files)
        order = np.lexsort([shown[name] for name in ("delivered_seq", "lost_sent", "lost_p", "dest", "fifo")])
        keys = np.stack([shown[name][order] for name in LOST.key])
        first = order[np.flatnonzero((np.diff(keys, prepend=-1) != 0).any(axis=0))]
        rows = {name: column[first] for name, column in shown.items()}
        write_part(layouts[number].store / "first-shown", "all", pa.table(rows))
        fifo = int(rows["fifo"].sum())
        return first.size - fifo, fifo, LOST.first(rows)

    told = dict(
        zip((each.store for each in layouts), on_tasks(spark, len(layouts), first_of_all), strict=True)
    )
    found = [
        Findings(of, LOST, [of.layout.store / "first-shown" / "all.parquet"], [causal + fifo], first)
        for of in laid
        for causal, fifo, first in [told.get(of.layout.store, (0, 0, []))]
        if causal + fifo
    ]
    return found, sum(causal for causal, _, _ in told.values()), sum(fifo for _, fifo, _ in told.values())


def name_all(
    spark: SparkSession, found: Sequence[Findings], cycles: Sequence[tuple[Laid, list[list[Leg]]]]
) -> None:
    """Write findings, and cycles of total order (disagreements of two processes among them), by name."""
    for number, batch in enumerate(_batches(found)):
        _name(spark, batch, cycles if number == 0 else (), number)


def _batches(found: Sequence[Findings]) -> list[list[Findings]]:
    """The findings, so many at once that their names fit a task; always one batch, be it empty."""
    batches: list[list[Findings]] = [[]]
    held = 0
    for of in found:
        for file, count in zip(of.files, of.counts, strict=True):
            if held and held + count > MOST_NAMED_AT_ONCE:
                batches.append([])
                held = 0
            held += count
            same = batches[-1] and batches[-1][-1].kind is of.kind and batches[-1][-1].of is of.of
            if same:
                batches[-1][-1].files.append(file)
            else:
                batches[-1].append(of._replace(files=[file]))
    return batches


def _name(
    spark: SparkSession,
    found: list[Findings],
    cycles: Sequence[tuple[Laid, list[list[Leg]]]],
    batch: int,
) -> None:
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
    events = _look(spark, [*steps.values()], found, batch)
    for laid, legs in cycles:
        at, layout = events[laid.layout.store], laid.layout
        rows = [total_row(layout.computation, [(at[a], at[b]) for a, b in each]) for each in legs]
        laid.output.write("violations", pa.Table.from_pylist(rows, schema=VIOLATIONS), "-total")
    jobs = []
    for of, its in zip(found, paths_of, strict=True):
        at = events[of.of.layout.store]
        shown = {row[: len(of.kind.key)]: [_told(at[step]) for step in path] for row, path in its.items()}
        jobs += [(of, file, shown) for file in of.files]
    lists = [(of.of.layout, of.of.output, of.kind, file, shown) for of, file, shown in jobs]

    def write(number: int) -> None:
        layout, output, kind, file, shown = lists[number]
        columns = _read([file])
        messages = [
            _named(layout, batch, columns[f"{role}_p"], columns[f"{role}_sent"]) for role in kind.ends
        ]
        keys = zip(*(columns[name].tolist() for name in kind.key), strict=True)
        rows = kind.build(layout, columns, messages, [shown.get(key) for key in keys])
        output.write(kind.table, rows, f"-{kind.kept}-{file.stem}")

    on_tasks(spark, len(lists), write)


def _told(event: Event) -> dict[str, Any]:
    return {"process": event.process, "seq": event.seq, "kind": event.kind, "message": event.message}


def _look(
    spark: SparkSession, steps: list[tuple[Laid, set[Step]]], found: list[Findings], batch: int
) -> dict[AnyPath, dict[Step, Event]]:
    """Look in the splits for the events at these steps, which come back; and for the messages sent at those
    that findings name, which go to the layout's store."""
    wanted = []
    for laid, of in steps:
        layout = laid.layout
        files = [(each.kind.ends, each.files) for each in found if each.of is laid]
        every = np.array(sorted(of), np.int64).reshape(-1, 2)
        wanted.append((layout, np.sort(event_keys(every[:, 0], every[:, 1])), files))
    jobs = [
        (i, number, split) for i, (laid, _) in enumerate(steps) for number, split in enumerate(laid.splits)
    ]

    def look(job: int) -> list[tuple[int, str, str | None]]:
        i, number, split = jobs[job]
        layout, at_steps, files = wanted[i]
        named = [at_steps]
        for ends, of in files:
            columns = _read(of)
            named += [event_keys(columns[f"{role}_p"], columns[f"{role}_sent"]) for role in ends]
        keys, rows = _find(layout, split, np.unique(np.concatenate(named)))
        table = pa.table({"key": keys, "message": rows["message"]})
        write_part(layout.store / f"named-{batch:04d}", f"{number:06d}", table)
        asked = np.flatnonzero(np.isin(keys, at_steps))
        kinds, messages = (rows[name].take(pa.array(asked)).to_pylist() for name in ("kind", "message"))
        return [*zip(keys[asked].tolist(), kinds, messages, strict=True)]

    events: dict[AnyPath, dict[Step, Event]] = {laid.layout.store: {} for laid, _ in steps}
    for (i, _, _), told in zip(jobs, on_tasks(spark, len(jobs), look), strict=True):
        layout = wanted[i][0]
        for key, kind, message in told:
            process, seq = (int(part) for part in split_keys(np.array(key)))
            name = layout.names[process]
            events[layout.store][process, seq] = Event(layout.computation, name, seq, kind, message)
    return events


def _find(layout: Layout, split: Split, wanted: Ints) -> tuple[Ints, pa.Table]:
    """Those of the wanted events, given by their keys, that a split holds: their keys, and their rows."""
    table = split.read(["computation", "process", "seq", "kind", "message"]).events
    table = table.filter(pc.equal(table["computation"], layout.computation))
    names = pa.array(layout.names, pa.string())
    process = pc.index_in(table["process"], value_set=names).to_numpy().astype(np.int64)
    keys = event_keys(process, table["seq"].to_numpy())
    at = np.minimum(np.searchsorted(wanted, keys), max(wanted.size - 1, 0))
    found = np.flatnonzero(wanted[at] == keys) if wanted.size else np.empty(0, np.int64)
    return keys[found], table.take(pa.array(found))


def _named(layout: Layout, batch: int, process: Ints, seq: Ints) -> pa.Array:
    """The messages sent at these events."""
    table = read_parts(layout.store / f"named-{batch:04d}").combine_chunks()
    keys = table["key"].to_numpy()
    order = np.argsort(keys)
    at = order[np.searchsorted(keys[order], event_keys(process, seq))]
    return table["message"].combine_chunks().take(pa.array(at))


def _read(files: Sequence[AnyPath]) -> Columns:
    return _columns(pa.concat_tables([read_part(file) for file in files]))


def _columns(table: pa.Table) -> Columns:
    return {name: table[name].to_numpy() for name in table.column_names}


def _violations(layout: Layout, of: Columns, messages: list[pa.Array], paths: list[Any]) -> pa.Table:
    # A delivery that violates FIFO order violates causal order too, and is told of twice.
    rows = np.repeat(np.arange(len(paths)), 1 + of["fifo"])
    also = np.append(np.diff(rows), 1) == 0
    overtaken, early = (column.take(pa.array(rows)) for column in messages)
    process = pa.array(layout.names, pa.string()).take(pa.array(of["dest"][rows]))
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
            pa.array([paths[row] for row in rows.tolist()], VIOLATIONS.field("path").type),
        ],
        schema=VIOLATIONS,
    )


def _lost_causes(layout: Layout, of: Columns, messages: list[pa.Array], paths: list[Any]) -> pa.Table:
    process = pa.array(layout.names, pa.string()).take(pa.array(of["dest"]))
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
            pa.array(paths, LOST_CAUSES.field("path").type),
        ],
        schema=LOST_CAUSES,
    )


EARLY = Kind("early", "violations", ("overtaken", "early"), ("dest", "early_seq"), _violations)
LOST = Kind(
    "shown", "lost_causes", ("lost", "delivered"), ("fifo", "dest", "lost_p", "lost_sent"), _lost_causes
)
