"""Write a trace in the format of another tool, or a part of it as a trace of its own."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ..core.errors import LocalProtocolError
from .options import add_output, add_slice_options, chosen_part, option
from .output import refuse_earlier_file, replacing
from .parser import Parser
from .terminal import note

TRACE = "trace"
"""Our own trace in Parquet: a directory, where the others are one text."""
PICTURE = (
    "the picture of svg and png: the space–time diagram (default), the Hasse diagram of the relevant events, "
    "or the spans of the largest request"
)


def add_arguments(parser: Parser) -> None:
    from ..view.exports import FORMATS, PICTURES

    formats = {TRACE: "our own trace, Parquet parts in a directory"} | {
        name: each.description for name, each in FORMATS.items()
    }
    parser.epilog = "formats:\n" + "\n".join(f"  {name:10}{text}" for name, text in formats.items())
    option(parser, "path TRACE", "a trace, or a directory that has one inside")
    option(parser, "--to FORMAT", "one of those below", choices=formats, required=True)
    add_output(parser, "a file, or a directory for a trace (default: stdout)")
    option(parser, "--picture", PICTURE, choices=PICTURES, default="space")
    add_slice_options(parser)
    option(parser, "--process A,B", "these processes alone")


def run(arguments: argparse.Namespace) -> None:
    from ..trace.atomic import whole_file
    from ..view.exports import FORMATS
    from ..view.pages import viewed
    from ..view.slicing import sliced

    if arguments.to == TRACE and arguments.out is None:
        raise LocalProtocolError("a trace is a directory: name one with --out")
    if arguments.to != TRACE:
        refuse_earlier_file(arguments.out, force=arguments.force)
        if FORMATS[arguments.to].binary and arguments.out is None and sys.stdout.isatty():
            raise LocalProtocolError(f"{arguments.to} cannot be shown on a terminal: name a file with --out")
    of = viewed(arguments.path)
    for reason in of.checked.quarantine:
        note(f"left out: {reason}")
    part, computations = chosen_part(arguments, of)
    parts = sliced(sorted(computations, key=lambda each: each.c.name), part)
    if not parts:
        raise LocalProtocolError("no event is in this part; nothing is written")
    events = sum(each.c.events for each in parts)
    if arguments.to == TRACE:
        with replacing(arguments.out, force=arguments.force, reads=[Path(arguments.path)]):
            _write_trace(parts, arguments.out)
    elif arguments.out is None:
        for chunk in FORMATS[arguments.to].chunks(parts, arguments.picture):
            sys.stdout.buffer.write(chunk)
    else:
        with whole_file(arguments.out) as unfinished, unfinished.open("wb") as out:
            out.writelines(FORMATS[arguments.to].chunks(parts, arguments.picture))
    note(f"{events:,} events of {len(parts):,} computation{'' if len(parts) == 1 else 's'}")


def _write_trace(parts: Any, out: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..trace.atomic import whole_directory

    tables = [each.table.take(pa.array(sorted(each.c.row.tolist()))) for each in parts]
    with whole_directory(out) as folder:
        pq.write_table(pa.concat_tables(tables), folder / "part-000000.parquet", compression="zstd")
