"""happened export: a trace, or a part of one, in the formats of other tools."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from .output import add_force, refuse_earlier_file, replacing
from .slice_options import add_slice_options, slice_of
from .terminal import local_path, note

TRACE = "trace"
"""Our own trace in Parquet: a directory, where the others are one text."""


def add_parser(subparsers: Any) -> None:
    from ..view.exports import FORMATS

    formats = {TRACE: "our own trace, Parquet parts in a directory"} | {
        name: each.description for name, each in FORMATS.items()
    }
    parser = subparsers.add_parser(
        "export",
        help="a trace, or a part of one, for other tools: ShiViz, Graphviz, Mermaid, Perfetto, CSV, SVG",
        description="Write a trace in the format of another tool, or a part of it as a trace of its own.",
        epilog="formats:\n" + "\n".join(f"  {name:10}{text}" for name, text in formats.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="TRACE", help="a trace, or a directory that has one inside")
    parser.add_argument("--to", choices=formats, required=True, metavar="FORMAT", help="one of those below")
    parser.add_argument("--out", type=local_path, metavar="PATH", help="where to (default: stdout)")
    add_force(parser)
    add_slice_options(parser)
    parser.add_argument("--processes", metavar="NAMES", help="these processes alone, separated by commas")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..trace.atomic import whole_file
    from ..view.exports import FORMATS
    from ..view.pages import viewed
    from ..view.slicing import sliced

    if arguments.to == TRACE and arguments.out is None:
        raise LocalProtocolError("a trace is a directory: say where with --out")
    if arguments.to != TRACE:
        refuse_earlier_file(arguments.out, force=arguments.force)
    of = viewed(arguments.path)
    for reason in of.checked.quarantine:
        note(f"left out: {reason}")
    computations = of.chosen(arguments.computation)
    computations.sort(key=lambda each: each.c.name)
    parts = sliced(computations, slice_of(arguments))
    if not parts:
        raise LocalProtocolError("no event fits; nothing is written")
    events = sum(each.c.events for each in parts)
    if arguments.to == TRACE:
        with replacing(arguments.out, force=arguments.force, reads=[Path(arguments.path)]):
            _write_trace(parts, arguments.out)
    elif arguments.out is None:
        for text in FORMATS[arguments.to].write(parts):
            sys.stdout.write(text)
    else:
        with whole_file(arguments.out) as unfinished, unfinished.open("w", encoding="utf-8") as out:
            out.writelines(FORMATS[arguments.to].write(parts))
    note(f"{events:,} events of {len(parts):,} computation{'' if len(parts) == 1 else 's'}")
    return ExitCode.HOLDS


def _write_trace(parts: Any, out: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..trace.atomic import whole_directory

    tables = [each.table.take(pa.array(sorted(each.c.row.tolist()))) for each in parts]
    with whole_directory(out) as folder:
        pq.write_table(pa.concat_tables(tables), folder / "part-000000.parquet", compression="zstd")
