"""Turn logs of other systems into a trace. Unreadable records are quarantined, with reasons."""

import argparse
import glob
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError, TraceFormatError
from ..trace.importing import AUTO, Import, import_files
from ..trace.location import inside
from ..trace.readers import FORMATS, Options
from ..trace.readers.source import uncompressed_size
from ..trace.readers.table_spans import TEMPO
from ..trace.store import AnyPath, any_path
from .options import add_clock_order, add_output, add_where, given, option, stored_path
from .output import replacing
from .parser import Parser
from .terminal import note, print_answer, progress

SPARK_BYTES = 256 << 20  # bytes of input, uncompressed: minutes in one process
STDIN, COPY = "-", "standard-input"  # the argument, and the file that it is copied to
HIDDEN = re.compile(r"/[._]")  # the beginning of a file or directory that is not read
SHOWN = 5  # quarantined rows that are printed; OUT/quarantine has them all

EPILOG = f"""\
formats
{chr(10).join(f"  {name:<10} {format.description}" for name, format in FORMATS.items())}

examples:
  happened import chord.log --regex '(?<host>\\S*) (?<clock>{{.*}})\\n(?<event>.*)' --out chord
  happened import spans-*.csv --format nezha --out requests
  happened import events.csv --map process=node,kind=what,message=id,time=at:ms --out events

OUT gets trace/part-*.parquet, quarantine/ (file, line, field, reason, text; of a JSON document, line is the
number of the record) and import.json. Judge the trace with: happened check OUT
exit codes: 0 imported, 2 bad usage or input, or anything quarantined with --strict
"""


def add_arguments(parser: Parser) -> None:
    about = (
        "logs, all in one format: files, directories, patterns such as 'logs/*.json', or - for standard "
        "input; compressed by gzip or zstd or not"
    )
    option(parser, "files FILE", about, nargs="+")
    add_output(parser, "a directory that does not exist", type=stored_path, required=True)
    formats = (AUTO, *FORMATS, TEMPO)
    option(parser, "--format", "one of those below (default: by content)", choices=formats, default=AUTO)
    option(parser, "--regex REGEX", "shiviz: finds host, clock and event, as (?<host>…)")
    option(parser, "--delimiter REGEX", "shiviz: matches the line before each run; (?<trace>…) names it")
    option(parser, "--parsers JSON", "shiviz: a list of log, parser and delimiter, by name of the log")
    about = "etcd-raft: leave equal messages unmatched, or trust in FIFO channels"
    option(parser, "--match", about, choices=("unique", "fifo"), default="unique")
    add_clock_order(parser, "of spans, beyond what is recorded or implied")
    about = "read any JSON lines or CSV by these fields: process=node,seq=n,time=ts:ms or span=id,trace=t,…"
    option(parser, "--map OURS=THEIRS,…", about)
    option(parser, "--together", "the files are parts of one run, not one run each")
    option(parser, "--strict", "write nothing if a record cannot be read")
    add_where(parser, "256 MB")
    about = (
        "let Spark read FILE, a path or table, in its own FORMAT (parquet, delta, json, jdbc, table …): "
        "spans by --format otlp, jaeger, zipkin or tempo, else dag, map or awdit; --map names its columns"
    )
    option(parser, "--source FORMAT", about)
    about = "with --source: an option of Spark's reader; may be repeated"
    option(parser, "--source-option NAME=VALUE", about, action="append", default=[])
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> None:
    if arguments.source is not None:
        _run(arguments, [])
        return
    if arguments.source_option:
        raise LocalProtocolError("--source-option needs --source FORMAT: it is an option of Spark's reader")
    with found_files(arguments.files) as files:
        try:
            _run(arguments, files)
        except TraceFormatError as error:
            if STDIN not in arguments.files or Path(error.file or "").name != COPY:
                raise
            reason, line, field = error.reason, error.line, error.field
            raise TraceFormatError(reason, file="standard input", line=line, field=field) from error


def _run(arguments: argparse.Namespace, files: list[AnyPath]) -> None:
    reading = Options(**given(arguments, "regex delimiter parsers match map together clock_order"))
    common = given(arguments, "format strict") | {"options": reading}
    with replacing(arguments.out, force=arguments.force, traces=True, reads=files):
        size = sum(uncompressed_size(path) for path in files)
        wants_spark = arguments.master is not None or (size >= SPARK_BYTES and not arguments.local)
        if wants_spark or arguments.source is not None:
            done = _import_on_spark(arguments, files, common)
        else:
            with progress("importing", total=len(files), unit="files") as bar:
                done = import_files(files, arguments.out, **common, progress=bar.update)
    for remark in done.summary["remarks"]:
        note(remark)
    for each in done.quarantined[:SHOWN]:
        note(f"{each}{f' | {each.text}' if each.text else ''}")
    if done.summary["quarantined"] > SHOWN:
        note(f"… and {done.summary['quarantined'] - SHOWN:,} more, in the quarantine")
    print_answer(arguments, lambda: done.summary, _report(done.summary, arguments.out))


def _import_on_spark(arguments: argparse.Namespace, files: list[AnyPath], common: dict[str, Any]) -> Import:
    note(f"importing on Spark ({arguments.master or 'local[*]'})")
    from ..spark import log_import
    from ..spark.record_frames import import_source
    from ..spark.session import session

    if arguments.source is None:
        return log_import.run(session(arguments.master, brief=True), files, arguments.out, **common)
    if len(arguments.files) != 1:
        raise LocalProtocolError("--source reads one path or table at a time; name one")
    pairs = [text.partition("=") for text in arguments.source_option]
    for text, (name, equals, _) in zip(arguments.source_option, pairs, strict=True):
        if not name or not equals:
            raise LocalProtocolError(f"--source-option {text}: say NAME=VALUE, as Spark's reader calls it")
    reading = {name: value for name, _, value in pairs}
    spark, (file,) = session(arguments.master, brief=True), arguments.files
    return import_source(spark, arguments.source, file, arguments.out, reading, **common)


@contextmanager
def found_files(given: Sequence[str]) -> Iterator[list[AnyPath]]:
    """The files that the arguments mean: files, the content of directories, matches of patterns, or standard
    input.
    """
    with tempfile.TemporaryDirectory(prefix="happened-") as folder:
        yield [path for name in given for path in _files(name, Path(folder))]


def _files(name: str, folder: Path) -> list[AnyPath]:
    if name == STDIN:
        copy = folder / COPY
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        if not copy.stat().st_size:
            raise LocalProtocolError("standard input is empty: there is nothing to import")
        return [copy]
    path = any_path(name)
    if path.is_dir():
        held: list[AnyPath] = [each for each in path.rglob("*") if each.is_file()]
        held = [each for each in held if not HIDDEN.search(f"/{inside(path, each)}")]
        if not held:
            raise LocalProtocolError(f"{name}: there are no files in this directory")
        return sorted(held, key=str)
    if not path.is_file() and isinstance(path, Path) and any(mark in name for mark in "*?["):
        found = (Path(each) for each in sorted(glob.glob(name, recursive=True)))
        matching: list[AnyPath] = [each for each in found if each.is_file()]
        if not matching:
            raise LocalProtocolError(f"{name}: no file matches this pattern")
        return matching
    return [path]


def _report(summary: dict[str, Any], out: AnyPath) -> Iterator[str]:
    yield f"{'format':<14} {summary['format']:>12}"
    for name in ("computations", "processes", "events", "messages", "quarantined"):
        yield f"{name:<14} {summary[name]:>12,}"
    ambiguous = sum(of_file.get("ambiguous_receives", 0) for of_file in summary["files"])
    if ambiguous:
        fate = "matched in FIFO order" if summary["options"]["match"] == "fifo" else "left unmatched"
        yield f"{'ambiguous':<14} {ambiguous:>12,}  receives that could be of several sends, {fate}"
    for name, count in summary["facts"].items():
        yield f"{name.replace('_', ' '):<14} {count:>12,}"
    yield f"\nimported to {out}"
