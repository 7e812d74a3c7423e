"""The command line: one file per command, data on stdout, everything else on stderr.

Exit codes: 0 holds or done, 1 violated, 2 bad usage or input, 3 undecided.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..core.errors import CausalityError
from . import (
    advise,
    analyze,
    ca,
    chat,
    check,
    compare,
    explore,
    importing,
    jobs,
    keygen,
    node,
    simulate,
    topology,
    track,
)

COMMANDS = (
    simulate,
    importing,
    analyze,
    jobs,
    check,
    explore,
    track,
    compare,
    advise,
    node,
    chat,
    keygen,
    ca,
    topology,
)

EPILOG = """\
a first look:
  happened simulate --messages 1000 --units --out run    run a protocol, record what happened
  happened check run --necessary                         judge it from the trace alone
  happened explore --processes 3 --messages 2            every interleaving of every small program
  happened compare --protocols ks,rst,sequencer          what each protocol costs on the same schedule
  happened advise run                                    what each would have cost on a recorded trace

exit codes: 0 holds, 1 violated (a witness is printed), 2 bad usage or input, 3 undecided
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="happened",
        description="What happened, and what happened before it: causal message order with the least "
        "metadata, and exact causality of recorded traces.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"happened {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    try:
        try:
            arguments = parser.parse_args(argv)
            return int(arguments.run(arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failure can be told, and not at the interpreter's end
    except CausalityError as error:
        print(f"happened: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough; nobody has seen a verdict
        _discard_output()
        return 141  # as by SIGPIPE: neither "holds" nor "violated"
    except OSError as error:
        _discard_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"happened: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("happened: interrupted", file=sys.stderr)
        return 130


def _discard_output() -> None:
    """What is still buffered has nowhere to go: the interpreter must not try again when it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
