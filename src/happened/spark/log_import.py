"""Import foreign logs on Spark: the same readers, parsing and assembling in tasks.

In    files that every executor can reach, in one of trace.readers.FORMATS
Out   as trace.importing: OUT/trace, OUT/quarantine, OUT/import.json, all at once or not at all
Cost  one pass to number lines, one to parse, one shuffle of the drafts by computation to assemble them

Files of a format that is read line by line are parsed in pieces, others whole, one to a task. A
computation is assembled by one task, one after another, so that a task holds one computation at a time:
some 2 KB per event. What reaches the driver is a few numbers per piece. Files read in pieces are counted
by records only: what else readers count needs a file whole.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..core.errors import TraceFormatError
from ..trace.atomic import whole_directory, whole_file
from ..trace.importing import (
    AUTO,
    EXAMPLES,
    Import,
    choose_format,
    computation_names,
    not_understood,
    told_facts,
    write_summary,
)
from ..trace.readers import FORMATS, QUARANTINE, Draft, Options, Quarantined, Source, open_source
from ..trace.readers.draft import DRAFTS, Row, draft_table, drafts_of, storable, table_of
from ..trace.readers.source import beginning, is_compressed, lines_begun, open_piece
from ..trace.schema import SCHEMA
from ..trace.writer import table_from_rows
from .linked_traces import join_linked_traces
from .schemas import TRACE, spark_schema
from .tasks import on_tasks

PIECE_BYTES = 32 << 20
BATCH_ROWS = 20_000


@dataclass(frozen=True)
class Piece:
    """Part of a file, or, where `end` is None, the whole of it."""

    number: int
    path: Path
    computation: str
    begin: int = 0
    end: int | None = None
    first_line: int = 1


def run(
    spark: SparkSession,
    files: Sequence[Path],
    out: Path,
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
        drafts = spark.read.schema(spark_schema(DRAFTS)).parquet(str(work / "drafts"))
        facts: Counter[str] = Counter()
        if FORMATS[name].joins_computations:
            drafts, facts["channels_not_joined"] = join_linked_traces(drafts, work)
        facts += _assemble_all(drafts, name, options, folder)
        summary, first = _summarise(spark, folder)
        if strict and first:
            raise not_understood(str(first[0]), summary["quarantined"])
        told_of = {"facts": told_facts(facts), "files": _by_file(told)}
        summary = {"format": name, "options": asdict(options), **summary, **told_of}
        shutil.rmtree(work)
        write_summary(folder, summary)
    return Import(summary, first)


def _cut(files: Sequence[Path], name: str, options: Options, piece_bytes: int) -> list[Piece]:
    reader = FORMATS[name]
    pieces: list[Piece] = []
    for path, computation in zip(files, computation_names(files, reader, options), strict=True):
        if not path.is_file():
            raise TraceFormatError("no such file; give the logs to import", file=str(path))
        size = path.stat().st_size
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


def _parse(name: str, options: Options, work: Path, quarantine: Path, piece: Piece) -> Any:
    """Write the drafts and the quarantined records of one piece as parts; returns its counts, or the error
    that no task can mend."""
    reader = FORMATS[name]
    source = _source(piece, reader.header)
    of_whole: list[Draft] = []
    records = 0
    left_out: list[Quarantined] = []
    part = f"parsed-{piece.number:06d}.parquet"
    try:
        with _parquet(work / "drafts" / part, DRAFTS) as write:
            batch: list[Draft] = []
            for parsed in storable(reader.parse(source, options)):
                if isinstance(parsed, Quarantined):
                    left_out.append(parsed)
                    continue
                records += not parsed.absent
                batch.append(parsed)
                if piece.end is None:
                    of_whole.append(parsed)
                if len(batch) == BATCH_ROWS:
                    write(draft_table(batch))
                    batch = []
            write(draft_table(batch))
    except TraceFormatError as error:
        return TraceFormatError(error.reason, file=error.file, line=error.line, field=error.field)
    left_out += source.faults
    if not records and not left_out and piece.end is None:
        left_out.append(Quarantined(str(piece.path), None, None, "holds no events"))
    with _parquet(quarantine / part, QUARANTINE) as write:
        write(table_of(left_out))
    counts = reader.counts(of_whole) if piece.end is None else {}
    return {"file": str(piece.path), "records": records, "quarantined": len(left_out), **counts}


def _source(piece: Piece, header: str | None) -> Source:
    if piece.end is None:
        return open_source(piece.path, piece.computation)
    source = open_piece(piece.path, piece.begin, piece.end, piece.first_line, piece.computation)
    if header is not None and piece.begin > 0:
        first = beginning(piece.path).partition("\n")[0]
        if header in first:
            source.numbered = chain([(1, first)], source.numbered)
    return source


def _assemble_all(drafts: DataFrame, name: str, options: Options, folder: Path) -> Counter[str]:
    """Write all rows; returns what the reader had to decide, added up."""
    done = (
        drafts.select(*DRAFTS.names)
        .repartition("computation")
        .sortWithinPartitions("computation", "file", "line")
        .mapInArrow(partial(_assemble, name, options, folder), "facts string")
    )
    return sum((Counter(json.loads(row.facts)) for row in done.collect()), Counter())


def _assemble(
    name: str, options: Options, folder: Path, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Assemble the computations of one partition, one after another, and write their rows and what is
    quarantined to parts that are named after the partition."""
    context = TaskContext.get()
    assert context is not None
    part = f"part-{context.partitionId():06d}.parquet"
    drafts = chain.from_iterable(map(drafts_of, batches))
    facts: Counter[str] = Counter()
    rows: list[Row] = []
    left_out: list[Quarantined] = []
    with _parquet(folder / "trace" / part, SCHEMA) as write:
        for _, group in groupby(drafts, key=lambda draft: draft.computation):
            assembly = FORMATS[name].assemble(group, options)
            left_out += assembly.quarantined
            facts += assembly.facts
            rows += assembly.rows
            if len(rows) >= BATCH_ROWS:  # computations may be small: many to a row group
                write(table_from_rows(rows))
                rows = []
        write(table_from_rows(rows))
    with _parquet(folder / "quarantine" / part, QUARANTINE) as write:
        write(table_of(left_out))
    yield pa.RecordBatch.from_pydict({"facts": [json.dumps(facts)]})


@contextmanager
def _parquet(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write a part table by table; it has its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        yield writer.write_table


def _summarise(spark: SparkSession, folder: Path) -> tuple[dict[str, Any], list[Quarantined]]:
    """Totals of what was written, and the first of what was left out."""
    if not any((folder / "trace").glob("*.parquet")):  # no drafts, no partitions
        with _parquet(folder / "trace" / "part-000000.parquet", SCHEMA) as write:
            write(SCHEMA.empty_table())
    events = spark.read.schema(TRACE).parquet(str(folder / "trace"))
    left_out = spark.read.schema(spark_schema(QUARANTINE)).parquet(str(folder / "quarantine"))
    totals = events.agg(
        F.countDistinct("computation").alias("computations"),
        F.countDistinct("process").alias("processes"),
        F.count("*").alias("events"),
        F.count_if(F.col("kind") == "send").alias("messages"),
    ).first()
    counts = left_out.agg(
        F.count("*").alias("quarantined"), F.count_if("imported").alias("quarantined_imported")
    ).first()
    assert totals is not None and counts is not None
    first = [
        Quarantined(**row.asDict()) for row in left_out.orderBy("file", "line").limit(EXAMPLES).collect()
    ]
    examples = {"quarantine_examples": [str(each) for each in first]}
    return {**totals.asDict(), **counts.asDict(), **examples}, first


def _by_file(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add up the counts of all pieces of each file."""
    files: dict[str, dict[str, Any]] = {}
    for of_piece in told:
        of_file = files.setdefault(of_piece["file"], of_piece)
        if of_file is not of_piece:
            for name in ("records", "quarantined"):
                of_file[name] += of_piece[name]
    return list(files.values())
