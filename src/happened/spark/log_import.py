"""Import foreign logs on Spark: the same readers, parsing and assembling in tasks.

In    files or URLs that every executor can reach, in one of trace.readers.FORMATS
Out   as trace.importing: OUT/trace, OUT/quarantine, OUT/import.json, all at once or not at all
Cost  one pass to number lines, one to parse, one shuffle of the drafts by computation to assemble them

Formats that are read line by line are parsed in pieces; a file of another format is parsed whole by one task.
A task assembles the computations of a bucket one after another, so that it holds the packed drafts of the
bucket and one computation: some 2 KB per event. Drafts pass through the JVM as one byte string per bucket,
because passing them as rows would cost as much as parsing. The driver receives a few numbers per piece, and
the names of services, instances and processes.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
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
from ..trace import importing
from ..trace.atomic import whole_directory, whole_file
from ..trace.importing import FileCounts
from ..trace.readers import (
    FORMATS,
    QUARANTINE,
    Draft,
    Options,
    QuarantinedRecord,
    Source,
    open_source,
)
from ..trace.readers.draft import PACKED, Row, packed_table, storable, table_of, unpacked_drafts
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
from .draft_frames import CHANNELS, REFERENCES, collected, leaders_of_linked
from .storage import read_parts, read_rows, write_rows
from .tasks import Emitted, exchange, on_each, packed_by_bucket, raise_faults, unpack_table

PIECE_BYTES = 32 << 20
BATCH_ROWS = 20_000
GROUPS_AT_ONCE = 4
"""Row groups (of BATCH_ROWS drafts) that one task sends to buckets: some 50 MB."""
DRAFTS_AT_ONCE = 1_000
"""Rows of PACKED that are unpacked at a time; a computation has one row or a few."""


@dataclass(frozen=True)
class Piece:
    """Part of a file; the whole file if `end` is None."""

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
    format: str = importing.AUTO,
    options: Options | None = None,
    strict: bool = False,
    piece_bytes: int = PIECE_BYTES,
) -> importing.Import:
    """Import all files, which have one format, as a new trace; TraceFormatError if they cannot be read."""
    options = options or Options()
    name = importing.choose_format(files, format, options)
    with whole_directory(out) as folder:
        work = folder / ".work"
        pieces = _number_lines(spark, _cut(files, name, options, piece_bytes))
        whole, of_files = Report(), dict[str, Report]()
        parsed = _each(spark, pieces, partial(_parse, name, options, work, folder / "quarantine"))
        for piece, report in zip(pieces, parsed, strict=True):
            of_files.setdefault(str(piece.path), Report()).join(report)
        for report in of_files.values():
            whole.count_left_out(report)
        of_paths = [of_files[str(path.absolute())] for path in files]
        for path, report in zip(files, of_paths, strict=True):
            if not report.counts["records"]:
                importing.refuse_other_format(path, name, whole.first)
        if any(report.counts["linked"] for report in parsed):
            drafts, references, channels = (
                read_rows(spark, work / kind, schema)
                for kind, schema in (("drafts", PACKED), ("references", REFERENCES), ("channels", CHANNELS))
            )
            leaders, whole.facts["channels_not_joined"] = leaders_of_linked(
                drafts, references, channels, work
            )
            if leaders is not None:
                write_rows(leaders, work / "leaders")
        buckets = importing.buckets_for(sum(uncompressed_size(path) for path in files))
        stretches = [
            stretch for piece in pieces for stretch in _stretches(work / "drafts" / _part(piece.number))
        ]
        assembling = _Assembling(name, options, folder, work, stretches, buckets)
        given, settled = exchange(spark, len(stretches), assembling.emit, buckets, assembling.settle)
        raise_faults(given)
        for of_bucket in raise_faults([settled[bucket] for bucket in sorted(settled)]):
            whole.join(of_bucket)
        if not any((folder / "trace").glob("*.parquet")):  # without drafts no task has written a part
            with _parquet(folder / "trace" / "part-000000.parquet", SCHEMA) as write:
                write(SCHEMA.empty_table())
        if strict and whole.first:
            raise importing.not_understood(str(whole.first[0]), whole.counts["quarantined"])
        processes = [report.processes for report in of_paths]
        summary = {
            **_summary(name, options, whole, of_files),
            "remarks": importing.remarks(files, processes, options.together),
        }
        importing.refuse_nothing(summary["events"], whole.first)
        remove_tree(work)
        importing.write_summary(folder, summary)
    return importing.Import(summary, whole.first)


def _summary(name: str, options: Options, whole: "Report", of_files: dict[str, "Report"]) -> dict[str, Any]:
    names = ("computations", "events", "messages", "quarantined", "quarantined_imported")
    return {
        "format": name,
        "options": asdict(options),
        **{key: whole.counts[key] for key in names},
        "processes": len(whole.processes),
        "quarantine_examples": [str(each) for each in whole.first],
        "facts": importing.told_facts(whole.facts),
        "files": [
            {"file": file, "records": of.counts["records"], "quarantined": of.counts["quarantined"]}
            | whole.files.told(file, FORMATS[name].counts)
            for file, of in of_files.items()
        ],
    }


class Report(importing.Totals):
    """The counts of a task, which can be added up. `first`: the first records that were left out."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: Counter[str] = Counter()
        self.files = FileCounts()
        self.first: list[QuarantinedRecord] = []

    def leave_out(self, records: Sequence[QuarantinedRecord], part: AnyPath) -> None:
        """Write records as a part of the quarantine."""
        with _parquet(part, QUARANTINE) as write:
            write(table_of(records))
        self.counts["quarantined"] += len(records)
        self.counts["quarantined_imported"] += sum(each.imported for each in records)
        self._show(records)

    def join(self, other: "Report") -> None:
        self.counts += other.counts
        self.facts += other.facts
        self.processes |= other.processes
        for file, counts in other.files.of_file.items():
            self.files.merge(file, counts)
        self._show(other.first)

    def count_left_out(self, other: "Report") -> None:
        """Add only the counts of what was left out of a file's records."""
        for name in ("quarantined", "quarantined_imported"):
            self.counts[name] += other.counts[name]
        self._show(other.first)

    def _show(self, records: Sequence[QuarantinedRecord]) -> None:
        every = sorted([*self.first, *records], key=lambda each: (each.file, each.line or 0))
        self.first = every[: importing.EXAMPLES]


def _cut(files: Sequence[AnyPath], name: str, options: Options, piece_bytes: int) -> list[Piece]:
    reader = FORMATS[name]
    pieces: list[Piece] = []
    for path, computation in zip(files, importing.computation_names(files, reader, options), strict=True):
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
    begun = _each(spark, cut, lambda piece: lines_begun(piece.path, piece.begin, piece.end or 0))
    counts = dict(zip((piece.number for piece in cut), begun, strict=True))
    numbered = []
    line = 1
    for piece in pieces:
        line = 1 if piece.begin == 0 else line
        numbered.append(replace(piece, first_line=line))
        line += counts.get(piece.number, 0)
    return numbered


def _each(spark: SparkSession, pieces: list[Piece], task: Callable[[Piece], Any]) -> list[Any]:
    """Run a task for each piece and return their small results, in the order of the pieces."""
    results = on_each(spark, [(piece,) for piece in pieces], task)
    for result in results:
        if isinstance(result, TraceFormatError):
            raise result
    return results


def _parse(
    name: str, options: Options, work: AnyPath, quarantine: AnyPath, piece: Piece
) -> Report | TraceFormatError:
    """Write the drafts and the quarantined records of one piece as parts; returns a report, or an error
    that a retry would not fix."""
    reader = FORMATS[name]
    source = _source(piece, reader.header)
    joins = TraceJoins()
    report = Report()
    left_out: list[QuarantinedRecord] = []
    part = _part(piece.number)
    try:
        with _parquet(work / "drafts" / part, PACKED) as write:
            batch: list[Draft] = []
            for parsed in storable(reader.parse(source, options)):
                if isinstance(parsed, QuarantinedRecord):
                    left_out.append(parsed)
                    continue
                report.counts["records"] += not parsed.absent
                batch.append(parsed)
                if options.together:
                    report.processes.add(parsed.process)
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
    if not report.counts["records"] and not left_out and piece.end is None:
        left_out.append(QuarantinedRecord(str(piece.path), None, None, NO_EVENTS))
    report.leave_out(left_out, quarantine / part)
    report.counts["linked"] = bool(joins.named or joins.carried)
    return report


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
    """Row groups of a file of drafts that one task sends to buckets; all are in the JVM's memory at once."""

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
    """Brings the drafts of each computation together, and writes its rows and its quarantined records."""

    name: str
    options: Options
    folder: AnyPath
    work: AnyPath
    stretches: Sequence["RowGroups"]
    buckets: int

    def emit(self, number: int) -> Emitted:
        """Send the drafts of some row groups to the buckets of their computations."""
        path, groups = self.stretches[number]
        with pq.ParquetFile(arrow_source(path)) as file:
            drafts = file.read_row_groups([*groups], columns=["computation", "file", "line", "drafts"])
        if (self.work / "leaders").is_dir():
            drafts = _under_leaders(drafts, read_parts(self.work / "leaders"))
        names = drafts["computation"].to_pylist()
        home = np.array([crc32(name.encode()) % self.buckets for name in names], np.int64)
        return Emitted(None, packed_by_bucket(drafts, home))

    def settle(self, bucket: int, blobs: list[bytes]) -> Report:
        """Assemble the computations of a bucket, one after another; returns a report about them."""
        order = [(name, "ascending") for name in ("computation", "file", "line")]
        packed = pa.concat_tables(map(unpack_table, blobs)).sort_by(order)
        drafts = chain.from_iterable(map(unpacked_drafts, packed.to_batches(max_chunksize=DRAFTS_AT_ONCE)))
        reader = FORMATS[self.name]
        report = Report()
        rows: list[Row] = []
        left_out: list[QuarantinedRecord] = []
        part = f"part-{bucket:06d}.parquet"
        with _parquet(self.folder / "trace" / part, SCHEMA) as write:
            for _, group in groupby(drafts, key=lambda draft: draft.computation):
                of_computation = list(group)
                report.files.add(of_computation, reader.counts)
                assembly = reader.assemble(of_computation, self.options)
                left_out += assembly.quarantined
                report.facts += assembly.facts
                report.add(assembly.rows)
                rows += assembly.rows
                if len(rows) >= BATCH_ROWS:  # a row group has the rows of many small computations
                    write(table_from_rows(rows))
                    rows = []
            write(table_from_rows(rows))
        report.leave_out(left_out, self.folder / "quarantine" / part)
        return report


def _under_leaders(drafts: pa.Table, leaders: pa.Table) -> pa.Table:
    """The same drafts; drafts of linked traces get the name of their leader as their computation."""
    at = pc.index_in(drafts["computation"], value_set=leaders["trace"].combine_chunks())
    named = pc.coalesce(leaders["leader"].combine_chunks().take(at.combine_chunks()), drafts["computation"])
    return drafts.set_column(0, drafts.schema.field("computation"), named)


def _part(piece: int) -> str:
    return f"parsed-{piece:06d}.parquet"


@contextmanager
def _parquet(path: AnyPath, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write a part table by table; the file gets its final name only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        yield writer.write_table
