"""`happened import`: turns logs of other systems into a trace.

Exit code 0: imported; whatever was not understood is in OUT/quarantine. Exit code 2: bad usage or input, or,
with --strict, anything that was not understood.
"""

import argparse
import glob
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError, TraceFormatError
from ..core.exit_codes import ExitCode
from ..trace.importing import AUTO, Import, import_files
from ..trace.location import inside
from ..trace.readers import FORMATS, Options
from ..trace.readers.source import uncompressed_size
from ..trace.readers.table_spans import TEMPO
from ..trace.store import AnyPath, any_path
from .ask import add_clock_order
from .options import add_output, add_where, option
from .output import replacing
from .parser import Parser
from .terminal import note, print_answer, progress, stored_path

SPARK_BYTES = 256 << 20  # bytes of input, uncompressed: minutes in one process
STDIN, COPY = "-", "standard-input"  # the argument, and the file that it is copied to
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


DESCRIPTION = "Turn logs of other systems into a trace. Unreadable records are quarantined, with reasons."


def add_arguments(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="logs, all in one format: files, directories, patterns such as 'logs/*.json', or - for standard "
        "input; compressed by gzip or zstd or not",
    )
    add_output(parser, "a directory that does not exist", type=stored_path, required=True)
    add(
        "--format",
        choices=(AUTO, *FORMATS, TEMPO),
        default=AUTO,
        help="one of those below (default: by content)",
    )
    add("--regex", help="shiviz: finds host, clock and event, as (?<host>…)")
    add("--delimiter", metavar="REGEX", help="shiviz: matches the line before each run; (?<trace>…) names it")
    add("--parsers", metavar="JSON", help="shiviz: a list of log, parser and delimiter, by name of the log")
    add(
        "--match",
        choices=("unique", "fifo"),
        default="unique",
        help="etcd-raft: leave equal messages unmatched, or trust in FIFO channels (default: %(default)s)",
    )
    add_clock_order(parser, "of spans, beyond what is recorded or implied")
    add(
        "--map",
        metavar="OURS=THEIRS,…",
        help="read any JSON lines or CSV by these fields: process=node,seq=n,time=ts:ms or span=id,trace=t,…",
    )
    add("--together", action="store_true", help="the files are parts of one run, not one run each")
    add("--strict", action="store_true", help="write nothing if a record cannot be read")
    add_where(parser, "256 MB")
    add(
        "--source",
        metavar="FORMAT",
        help="let Spark read FILE, a path or table, in its own FORMAT (parquet, delta, json, jdbc, table …): "
        "spans by --format otlp, jaeger, zipkin or tempo, else dag, map or awdit; --map names its columns",
    )
    add(
        "--source-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --source: an option of Spark's reader; may be repeated",
    )
    option(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    if arguments.source is not None:
        return _run(arguments, [])
    if arguments.source_option:
        raise LocalProtocolError("--source-option needs --source FORMAT: it is an option of Spark's reader")
    with found_files(arguments.files) as files:
        try:
            return _run(arguments, files)
        except TraceFormatError as error:
            if STDIN not in arguments.files or Path(error.file or "").name != COPY:
                raise
            reason, line, field = error.reason, error.line, error.field
            raise TraceFormatError(reason, file="standard input", line=line, field=field) from error


def _run(arguments: argparse.Namespace, files: list[AnyPath]) -> int:
    options = Options(
        regex=arguments.regex,
        delimiter=arguments.delimiter,
        parsers=arguments.parsers,
        match=arguments.match,
        map=arguments.map,
        together=arguments.together,
        clock_order=arguments.clock_order,
    )
    with replacing(arguments.out, force=arguments.force, traces=True, reads=files):
        done = _import(arguments, files, options)
    for line in _leftovers(done):
        note(line)
    print_answer(arguments, lambda: done.summary, _report(done.summary, arguments.out))
    return ExitCode.HOLDS


def _import(arguments: argparse.Namespace, files: list[AnyPath], options: Options) -> Import:
    if arguments.source is not None:
        return _import_of_source(arguments, options)
    size = sum(uncompressed_size(path) for path in files)
    if arguments.master is not None or (size >= SPARK_BYTES and not arguments.local):
        return _import_on_spark(arguments, files, options)
    with progress("importing", total=len(files), unit="files") as bar:
        return import_files(
            files,
            arguments.out,
            format=arguments.format,
            options=options,
            strict=arguments.strict,
            progress=bar.update,
        )


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
        held: list[AnyPath] = [
            each for each in path.rglob("*") if each.is_file() and not _is_hidden(path, each)
        ]
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


def _is_hidden(folder: AnyPath, path: AnyPath) -> bool:
    return any(part.startswith((".", "_")) for part in inside(folder, path).parts)


def _import_on_spark(arguments: argparse.Namespace, files: list[AnyPath], options: Options) -> Import:
    note(f"importing on Spark ({arguments.master or 'local[*]'})")
    from ..spark.log_import import run as import_on_spark
    from ..spark.session import session

    return import_on_spark(
        session(arguments.master, brief=True),
        files,
        arguments.out,
        format=arguments.format,
        options=options,
        strict=arguments.strict,
    )


def _import_of_source(arguments: argparse.Namespace, options: Options) -> Import:
    note(f"importing on Spark ({arguments.master or 'local[*]'})")
    from ..spark.record_frames import import_source
    from ..spark.session import session

    if len(arguments.files) != 1:
        raise LocalProtocolError("--source reads one path or table at a time; name one")
    pairs = [text.partition("=") for text in arguments.source_option]
    for text, (name, equals, _) in zip(arguments.source_option, pairs, strict=True):
        if not name or not equals:
            raise LocalProtocolError(f"--source-option {text}: say NAME=VALUE, as Spark's reader calls it")
    return import_source(
        session(arguments.master, brief=True),
        arguments.source,
        arguments.files[0],
        arguments.out,
        {name: value for name, _, value in pairs},
        format=arguments.format,
        options=options,
        strict=arguments.strict,
    )


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


def _leftovers(done: Import) -> Iterator[str]:
    yield from done.summary["remarks"]
    for each in done.quarantined[:SHOWN]:
        yield f"{each}{f' | {each.text}' if each.text else ''}"
    if done.summary["quarantined"] > SHOWN:
        yield f"… and {done.summary['quarantined'] - SHOWN:,} more, in the quarantine"
