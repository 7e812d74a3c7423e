"""Import foreign logs on Spark: the same readers, parsing and assembling in tasks.

In    files or URLs that every executor can reach, in one of trace.readers.FORMATS
Out   as trace.importing: OUT/trace, OUT/quarantine, OUT/import.json, all at once or not at all
Cost  one pass to number lines, one to parse, one shuffle of the drafts by computation to assemble them

Files of a format that is read line by line are parsed in pieces, others whole, one to a task. Computations
are assembled by bucket, one after another, so that a task holds the packed drafts of a bucket and one
computation: some 2 KB per event. Drafts cross the JVM as bytes, some for each bucket, which it need not look
into: rows of them cost it as much as parsing does. What reaches the driver is a few numbers per piece, and
the names of services, instances and processes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ..core.errors import TraceFormatError
from ..trace.atomic import whole_directory, whole_file
from ..trace.importing import (
    AUTO,
    EXAMPLES,
    Import,
    Totals,
    buckets_for,
    choose_format,
    computation_names,
    not_understood,
    refuse_nothing,
    refuse_other_format,
    remarks,
    told_facts,
    write_summary,
)
from ..trace.readers import (
    FORMATS,
    QUARANTINE,
    Draft,
    Format,
    Options,
    QuarantinedRecord,
    Source,
    open_source,
)
from ..trace.readers.draft import PACKED, Row, packed_table, storable, table_of, unpacked_drafts
from ..trace.readers.file_counts import FileCounts
from ..trace.readers.source import (
    NO_EVENTS,
    beginning,
    is_compressed,
    lines_begun,
    open_piece,
    uncompressed_size,
)
from ..trace.readers.span_joins import TraceJoins
from ..trace.schema import SCHEMA
from ..trace.store import AnyPath, arrow_source, remove_tree, size_of
from ..trace.writer import table_from_rows
from .linked_traces import CHANNELS, REFERENCES, collected, leaders_of_linked
from .storage import read_parts, read_rows, write_rows
from .tasks import Emitted, exchange, on_tasks, packed_by_bucket, raise_faults, unpack_table

PIECE_BYTES = 32 << 20
BATCH_ROWS = 20_000
GROUPS_AT_ONCE = 4
"""Row groups of BATCH_ROWS drafts each that a task gives to buckets: some 50 MB."""
DRAFTS_AT_ONCE = 1_000
"""Rows of PACKED that are unpacked at a time; a computation is a row, or a few."""


@dataclass(frozen=True)
class Piece:
    """Part of a file, or, where `end` is None, the whole of it."""

    number: int
    path: AnyPath
    computation: str
    begin: int = 0
    end: int | None = None
    first_line: int = 1


def run(
    spark: SparkSession,
    files: Sequence[AnyPath],
    out: AnyPath,
    *,
    format: str = AUTO,
    options: Options | None = None,
    strict: bool = False,
    piece_bytes: int = PIECE_BYTES,
) -> Import:
    """Read all files in one format into a new trace; TraceFormatError if that cannot be."""
    options = options or Options()
    name = choose_format(files, format, options)
    with whole_directory(out) as folder:
        work = folder / ".work"
        pieces = _number_lines(spark, _cut(files, name, options, piece_bytes))
        told = _each(spark, pieces, partial(_parse, name, options, work, folder / "quarantine"))
        whole = _Whole(files, FORMATS[name], told)
        _refuse_other_format(files, name, whole)
        if any(of_piece["linked"] for of_piece in told):
            drafts, references, channels = (
                read_rows(spark, work / kind, schema)
                for kind, schema in (("drafts", PACKED), ("references", REFERENCES), ("channels", CHANNELS))
            )
            leaders, whole.facts["channels_not_joined"] = leaders_of_linked(
                drafts, references, channels, work
            )
            if leaders is not None:
                write_rows(leaders, work / "leaders")
        buckets = buckets_for(sum(uncompressed_size(path) for path in files))
        stretches = [
            stretch for piece in pieces for stretch in _stretches(work / "drafts" / _part(piece.number))
        ]
        assembling = _Assembling(name, options, folder, work, stretches, buckets)
        given, settled = exchange(spark, len(stretches), assembling.emit, buckets, assembling.settle)
        raise_faults(given)
        for of_bucket in raise_faults([settled[bucket] for bucket in sorted(settled)]):
            whole.add(of_bucket)
        if not any((folder / "trace").glob("*.parquet")):  # no drafts, no partitions
            with _parquet(folder / "trace" / "part-000000.parquet", SCHEMA) as write:
                write(SCHEMA.empty_table())
        first = whole.first()
        if strict and first:
            raise not_understood(str(first[0]), whole.totals["quarantined"])
        summary = whole.summary(name, options)
        refuse_nothing(summary["events"], first)
        remove_tree(work)
        write_summary(folder, summary)
    return Import(summary, first)


class _Whole:
    """The sums of what the tasks of an import reported."""

    def __init__(self, files: Sequence[AnyPath], reader: Format, told: list[dict[str, Any]]) -> None:
        self._files = files
        self._reader = reader
        self._of_file = _by_file(told)
        self._counts = FileCounts()
        self._processes: set[str] = set()
        self._of_each_file = [self._of_file[str(path.absolute())]["processes"] for path in files]
        self._examples = [row for of_piece in told for row in of_piece["examples"]]
        self.totals: Counter[str] = Counter()
        self.facts: Counter[str] = Counter()
        for of_piece in told:
            self.totals["quarantined"] += of_piece["quarantined"]
            self.totals["quarantined_imported"] += of_piece["imported"]

    def records(self, path: AnyPath) -> int:
        return int(self._of_file[str(path.absolute())]["records"])

    def add(self, told: dict[str, Any]) -> None:
        """The report for one bucket of computations."""
        self.totals += Counter(told["totals"])
        self.facts += Counter(told["facts"])
        self._processes.update(told["processes"])
        self._examples += told["examples"]
        for file, counts in told["counts"].items():
            self._counts.merge(file, counts)

    def first(self) -> list[QuarantinedRecord]:
        rows = sorted(self._examples, key=lambda row: (row["file"], row["line"] or 0))
        return [QuarantinedRecord(**row) for row in rows[:EXAMPLES]]

    def summary(self, name: str, options: Options) -> dict[str, Any]:
        files = []
        for file, of_file in self._of_file.items():
            counted = {key: of_file[key] for key in ("file", "records", "quarantined")}
            files.append({**counted, **self._counts.told(file, self._reader.counts)})
        names = ("computations", "events", "messages", "quarantined", "quarantined_imported")
        totals = {key: self.totals[key] for key in names}
        return {
            "format": name,
            "options": asdict(options),
            **totals,
            "processes": len(self._processes),
            "quarantine_examples": [str(each) for each in self.first()],
            "facts": told_facts(self.facts),
            "remarks": remarks(self._files, self._of_each_file, options.together),
            "files": files,
        }


def _refuse_other_format(files: Sequence[AnyPath], name: str, whole: _Whole) -> None:
    for path in files:
        if not whole.records(path):
            refuse_other_format(path, name, whole.first())


def _cut(files: Sequence[AnyPath], name: str, options: Options, piece_bytes: int) -> list[Piece]:
    reader = FORMATS[name]
    pieces: list[Piece] = []
    for path, computation in zip(files, computation_names(files, reader, options), strict=True):
        if not path.is_file():
            raise TraceFormatError("no such file; give the logs to import", file=str(path))
        size = size_of(path)
        if not reader.line_by_line or size <= piece_bytes or is_compressed(path):
            pieces.append(Piece(len(pieces), path.absolute(), computation))
            continue
        for begin in range(0, size, piece_bytes):
            end = min(begin + piece_bytes, size)
            pieces.append(Piece(len(pieces), path.absolute(), computation, begin, end))
    return pieces


def _number_lines(spark: SparkSession, pieces: list[Piece]) -> list[Piece]:
    cut = [piece for piece in pieces if piece.end is not None]
    counts = dict(zip((piece.number for piece in cut), _each(spark, cut, _count_lines), strict=True))
    numbered = []
    line = 1
    for piece in pieces:
        line = 1 if piece.begin == 0 else line
        numbered.append(Piece(piece.number, piece.path, piece.computation, piece.begin, piece.end, line))
        line += counts.get(piece.number, 0)
    return numbered


def _count_lines(piece: Piece) -> int:
    assert piece.end is not None
    return lines_begun(piece.path, piece.begin, piece.end)


def _each(spark: SparkSession, pieces: list[Piece], task: Callable[[Piece], Any]) -> list[Any]:
    """Run a task for each piece and return their small results, in the order of the pieces."""
    results = on_tasks(spark, len(pieces), lambda number: task(pieces[number]))
    for result in results:
        if isinstance(result, TraceFormatError):
            raise result
    return results


def _parse(name: str, options: Options, work: AnyPath, quarantine: AnyPath, piece: Piece) -> Any:
    """Write the drafts and the quarantined records of one piece as parts; returns its counts, or the error
    that a retry would not fix."""
    reader = FORMATS[name]
    source = _source(piece, reader.header)
    joins = TraceJoins()
    processes: set[str] = set()
    records = 0
    left_out: list[QuarantinedRecord] = []
    part = _part(piece.number)
    try:
        with _parquet(work / "drafts" / part, PACKED) as write:
            batch: list[Draft] = []
            for parsed in storable(reader.parse(source, options)):
                if isinstance(parsed, QuarantinedRecord):
                    left_out.append(parsed)
                    continue
                records += not parsed.absent
                batch.append(parsed)
                if options.together:
                    processes.add(parsed.process)
                if reader.joins_computations:
                    joins.add(parsed)
                if len(batch) == BATCH_ROWS:
                    write(packed_table(batch))
                    batch = []
            write(packed_table(batch))
    except TraceFormatError as error:
        return TraceFormatError(error.reason, file=error.file, line=error.line, field=error.field)
    for kind, table in zip(("references", "channels"), collected(joins), strict=True):
        with _parquet(work / kind / part, table.schema) as write:
            write(table)
    left_out += source.faults
    if not records and not left_out and piece.end is None:
        left_out.append(QuarantinedRecord(str(piece.path), None, None, NO_EVENTS))
    with _parquet(quarantine / part, QUARANTINE) as write:
        write(table_of(left_out))
    linked = bool(joins.named or joins.carried)
    of_piece = {"file": str(piece.path), "records": records, "processes": processes, "linked": linked}
    return {**of_piece, **_told(left_out)}


def _told(left_out: list[QuarantinedRecord]) -> dict[str, Any]:
    """How many records were left out, and the first of them."""
    first = sorted(left_out, key=lambda each: (each.file, each.line or 0))[:EXAMPLES]
    imported = sum(each.imported for each in left_out)
    return {"quarantined": len(left_out), "imported": imported, "examples": [asdict(each) for each in first]}


def _source(piece: Piece, header: str | None) -> Source:
    if piece.end is None:
        return open_source(piece.path, piece.computation)
    source = open_piece(piece.path, piece.begin, piece.end, piece.first_line, piece.computation)
    if header is not None and piece.begin > 0:
        first = beginning(piece.path).partition("\n")[0]
        if header in first:
            source.numbered = chain([(1, first)], source.numbered)
    return source


class RowGroups(NamedTuple):
    """Row groups of a file of drafts: what one task passes on, all of which is in the JVM at once."""

    path: AnyPath
    groups: range


def _stretches(path: AnyPath) -> list[RowGroups]:
    with pq.ParquetFile(arrow_source(path)) as file:
        groups = file.metadata.num_row_groups
    return [
        RowGroups(path, range(first, min(first + GROUPS_AT_ONCE, groups)))
        for first in range(0, groups, GROUPS_AT_ONCE)
    ]


@dataclass(frozen=True)
class _Assembling:
    """Bring the drafts of each computation together, and write its rows and what is quarantined of it."""

    name: str
    options: Options
    folder: AnyPath
    work: AnyPath
    stretches: Sequence["RowGroups"]
    buckets: int

    def emit(self, number: int) -> Emitted:
        """Give the drafts of a stretch to the buckets of their computations."""
        path, groups = self.stretches[number]
        with pq.ParquetFile(arrow_source(path)) as file:
            drafts = file.read_row_groups([*groups], columns=["computation", "file", "line", "drafts"])
        if (self.work / "leaders").is_dir():
            drafts = _under_leaders(drafts, read_parts(self.work / "leaders"))
        names = drafts["computation"].to_pylist()
        home = np.array([crc32(name.encode()) % self.buckets for name in names], np.int64)
        return Emitted(None, packed_by_bucket(drafts, home))

    def settle(self, bucket: int, blobs: list[bytes]) -> dict[str, Any]:
        """Assemble the computations of a bucket, one after another; returns a report about them."""
        order = [(name, "ascending") for name in ("computation", "file", "line")]
        packed = pa.concat_tables(map(unpack_table, blobs)).sort_by(order)
        drafts = chain.from_iterable(map(unpacked_drafts, packed.to_batches(max_chunksize=DRAFTS_AT_ONCE)))
        reader = FORMATS[self.name]
        counts = FileCounts()
        facts: Counter[str] = Counter()
        totals = Totals()
        rows: list[Row] = []
        left_out: list[QuarantinedRecord] = []
        part = f"part-{bucket:06d}.parquet"
        with _parquet(self.folder / "trace" / part, SCHEMA) as write:
            for _, group in groupby(drafts, key=lambda draft: draft.computation):
                of_computation = list(group)
                counts.add(of_computation, reader.counts)
                assembly = reader.assemble(of_computation, self.options)
                left_out += assembly.quarantined
                facts += assembly.facts
                totals.add(assembly.rows)
                rows += assembly.rows
                if len(rows) >= BATCH_ROWS:  # computations may be small: many to a row group
                    write(table_from_rows(rows))
                    rows = []
            write(table_from_rows(rows))
        with _parquet(self.folder / "quarantine" / part, QUARANTINE) as write:
            write(table_of(left_out))
        return {"facts": facts, **_told_of(totals, left_out), "counts": counts.of_file}


def _under_leaders(drafts: pa.Table, leaders: pa.Table) -> pa.Table:
    """The same drafts; those of linked traces get the computation that their leader names."""
    at = pc.index_in(drafts["computation"], value_set=leaders["trace"].combine_chunks())
    named = pc.coalesce(leaders["leader"].combine_chunks().take(at.combine_chunks()), drafts["computation"])
    return drafts.set_column(0, drafts.schema.field("computation"), named)


def _told_of(totals: Totals, left_out: list[QuarantinedRecord]) -> dict[str, Any]:
    told = _told(left_out)
    quarantined = {"quarantined": told["quarantined"], "quarantined_imported": told["imported"]}
    return {
        "totals": {**totals.counts, **quarantined},
        "processes": totals.processes,
        "examples": told["examples"],
    }


def _part(piece: int) -> str:
    return f"parsed-{piece:06d}.parquet"


@contextmanager
def _parquet(path: AnyPath, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write a part table by table; it gets its name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        yield writer.write_table


def _by_file(told: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Add up the records of all pieces of each file."""
    files: dict[str, dict[str, Any]] = {}
    for of_piece in told:
        new = {**of_piece, "records": 0, "quarantined": 0, "processes": set()}
        of_file = files.setdefault(of_piece["file"], new)
        of_file["processes"] |= of_piece["processes"]
        for name in ("records", "quarantined"):
            of_file[name] += of_piece[name]
    return files
