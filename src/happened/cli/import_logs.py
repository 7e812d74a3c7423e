"""`happened import`: logs of other systems become a trace.

Exit code 0: imported; whatever was not understood is in OUT/quarantine. Exit code 2: bad usage or input, or,
with --strict, anything that was not understood.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..trace.importing import AUTO, Import, import_files
from ..trace.readers import FORMATS, Options
from ..trace.store import AnyPath, StorePath, any_path, size_of
from .output import add_force, replacing
from .terminal import note, print_json, progress

SPARK_BYTES = 64 << 20  # of input: about 1 GB in one process
SHOWN = 5  # quarantined rows told one by one; OUT/quarantine has them all

EPILOG = f"""\
formats
{chr(10).join(f"  {name:<10} {format.description}" for name, format in FORMATS.items())}

examples:
  happened import chord.log --regex '(?<host>\\S*) (?<clock>{{.*}})\\n(?<event>.*)' --out chord
  happened import spans-*.csv --format nezha --out requests

OUT gets trace/part-*.parquet, quarantine/ (file, line, field, reason, text; of a JSON document, line is the
number of the record) and import.json. Judge the trace with: happened check OUT
exit codes: 0 imported, 2 bad usage or input, or anything quarantined with --strict
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "import",
        help="make a trace of other systems' logs",
        description="Make a trace of other systems' logs. What cannot be read is quarantined, with reasons.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", nargs="+", type=any_path, metavar="FILE", help="logs, all in one format; .gz is fine")
    add("--out", type=any_path, required=True, metavar="OUT", help="a directory that is not there yet")
    add_force(parser)
    add("--format", choices=(AUTO, *FORMATS), default=AUTO, help="see below; default: by content")
    add("--regex", help="shiviz: finds host, clock and event, as (?<host>…)")
    add("--delimiter", metavar="REGEX", help="shiviz: matches the line before each run; (?<trace>…) names it")
    add("--parsers", metavar="JSON", help="shiviz: a list of log, parser and delimiter, by name of the log")
    add(
        "--match",
        choices=("unique", "fifo"),
        default="unique",
        help="etcd-raft: leave equal messages unmatched, or trust in FIFO channels; default: %(default)s",
    )
    add("--lanes", action="store_true", help="spans: order a service's spans by recorded causes only")
    add("--together", action="store_true", help="the files are parts of one run, not a run each")
    add("--strict", action="store_true", help="write nothing if anything is not understood")
    add("--master", metavar="URL", help="import on Spark; without being asked from 64 MB on, as local[*]")
    add("--json", action="store_true", help="print import.json instead of text")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    options = Options(
        regex=arguments.regex,
        delimiter=arguments.delimiter,
        parsers=arguments.parsers,
        match=arguments.match,
        together=arguments.together,
        lanes=arguments.lanes,
    )
    with replacing(arguments.out, force=arguments.force):
        done = _import(arguments, options)
    for line in _leftovers(done):
        note(line)
    if arguments.json:
        print_json(done.summary)
    else:
        print("\n".join(_report(done.summary, arguments.out)))
    return ExitCode.HOLDS


def _import(arguments: argparse.Namespace, options: Options) -> Import:
    size = sum(size_of(path) for path in arguments.files if path.is_file())
    if arguments.master is not None or size >= SPARK_BYTES:
        return _import_on_spark(arguments, options)
    with progress("importing", total=len(arguments.files), unit="files") as bar:
        return import_files(
            arguments.files,
            arguments.out,
            format=arguments.format,
            options=options,
            strict=arguments.strict,
            progress=bar.update,
        )


def _import_on_spark(arguments: argparse.Namespace, options: Options) -> Import:
    for path in (*arguments.files, arguments.out):
        if isinstance(path, StorePath):
            raise LocalProtocolError(f"{path}: on Spark local logs become a local trace; copy them here")
    note(f"importing on Spark ({arguments.master or 'local[*]'})")
    from ..spark.log_import import run as import_on_spark
    from ..spark.session import session

    return import_on_spark(
        session(arguments.master),
        arguments.files,
        arguments.out,
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
    yield f"\nimported to {out}"


def _leftovers(done: Import) -> Iterator[str]:
    if not done.summary["events"]:
        yield "no events: the trace is empty"
    for each in done.quarantined[:SHOWN]:
        yield f"{each}{f' | {each.text}' if each.text else ''}"
    if done.summary["quarantined"] > SHOWN:
        yield f"… and {done.summary['quarantined'] - SHOWN:,} more, in the quarantine"
