"""Write a page with the space–time diagram of a trace: who did what, which message led where, what happened
before and after an event and what was concurrent with it.
"""

import argparse
from pathlib import Path

from ..core.errors import LocalProtocolError
from .options import (
    add_completeness,
    add_judged_order,
    add_output,
    add_slice_options,
    chosen_part,
    option,
    slice_of,
)
from .output import refuse_earlier_file
from .parser import Parser
from .terminal import note, progress

SERVE = (
    "serve it on this machine instead, window by window: for millions of events, and for a trace that is "
    "still being written; until interrupted"
)


def add_arguments(parser: Parser) -> None:
    option(parser, "path TRACE", "a trace, a run, or the answers of `happened analyze`")
    add_output(parser, "the page (default: NAME.html here)")
    add_judged_order(parser)
    add_completeness(parser)
    add_slice_options(parser)
    option(parser, "--serve", SERVE)
    option(parser, "--port N", "with --serve: the port (default: a free one)", type=int, default=0)


def run(arguments: argparse.Namespace) -> None:
    if arguments.serve:
        _serve(arguments)
        return
    from ..trace.atomic import whole_file
    from ..view import page, viewed

    out = arguments.out or Path(f"{Path(arguments.path).name.split('.')[0] or 'trace'}.html")
    refuse_earlier_file(out, force=arguments.force)
    with progress("reading", total=2, unit="step") as bar:
        of = viewed(arguments.path, order=arguments.order, complete=arguments.complete)
        bar.update()
        part, of.computations[:] = chosen_part(arguments, of)
        if not any(part.mask(each).any() for each in of.computations):
            raise LocalProtocolError("no event is in this part; nothing is written")
        text = page(of, None if part.is_whole else part)
        bar.update()
    with whole_file(out) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    note(of.checked.judgement.sentence)
    print(out)


def _serve(arguments: argparse.Namespace) -> None:
    from ..view.server import Followed, ViewServer

    if arguments.out is not None or not slice_of(arguments).is_whole or arguments.computation is not None:
        raise LocalProtocolError(
            "--serve shows the whole trace and writes no page; leave the other options out"
        )
    with progress("reading", total=1, unit="step") as bar:
        followed = Followed(arguments.path, order=arguments.order, complete=arguments.complete)
        bar.update()
    with ViewServer(followed, arguments.port) as server:
        print(server.address, flush=True)
        note("open this address in a browser of this machine; interrupt to end")
        server.serve_forever()
