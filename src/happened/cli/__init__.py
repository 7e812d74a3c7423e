"""The command line: one file per command, data on stdout, everything else on stderr.

The module of a command is imported when that command is given, so that `happened --help` imports none and a
command waits for no other command's imports.
"""

import argparse
import contextlib
import difflib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from .. import __version__
from ..core.errors import CausalityError
from ..core.exit_codes import MEANINGS, ExitCode
from ..core.extras import how_to_install
from .startup import spare


class Command(NamedTuple):
    module: str  # of this package; its add_parser(subparsers) adds the command, and others it may have
    help: str  # as add_parser gives it


COMMANDS = {
    "simulate": Command("simulate", "run a protocol, record what happened"),
    "import": Command("import_logs", "make a trace of other systems' logs"),
    "analyze": Command("analyze", "analyse a trace of any size on Spark"),
    "epochs": Command(
        "jobs", "consistent cuts, how far the clocks disagree, and every event's time corrected (on Spark)"
    ),
    "stamp": Command("jobs", "exact vector timestamps of every event (on Spark)"),
    "verify-clocks": Command(
        "jobs",
        "the vector clocks a source logged, against the ones that follow from its events (on Spark)",
    ),
    "predecessors": Command(
        "jobs", "immediate predecessors: the transitive reduction of happened-before (on Spark)"
    ),
    "order": Command(
        "jobs",
        "deliveries that came too early, with witnesses; messages lost, doubled or astray (on Spark)",
    ),
    "messages": Command(
        "jobs", "what became of each message at each destination, and how long it took (on Spark)"
    ),
    "necessary": Command(
        "jobs", "what the optimal protocol would have had to carry on each message (on Spark)"
    ),
    "dependencies": Command(
        "jobs", "which service calls which, how often, and how often that failed (on Spark)"
    ),
    "measures": Command("jobs", "depth, width, traffic and latencies (on Spark)"),
    "rebuild": Command(
        "jobs",
        "full vector clocks from dependency vectors, sparse stamps or immediate predecessors (on Spark)",
    ),
    "stream": Command("stream", "follow a trace that is being written, on Spark; or receive spans over OTLP"),
    "clean": Command("clean", "remove what runs left that did not finish"),
    "check": Command("check", "judge a recorded trace"),
    "export": Command(
        "export",
        "a trace, or a part of one, for other tools: ShiViz, Graphviz, Mermaid, Perfetto, CSV, SVG, PNG",
    ),
    "view": Command("view", "look at a trace: a space–time diagram in the browser"),
    "why": Command("why", "why an event happened, and why so late"),
    "path": Command("path", "the causal chain between two events, or why they are concurrent"),
    "past": Command("past", "all that happened before an event"),
    "future": Command("past", "all that an event happened before"),
    "influenced": Command(
        "influenced", "which requests influenced a request, each with a chain that shows it"
    ),
    "critical-path": Command(
        "critical_path", "where the time of requests went, by service, and what would be saved"
    ),
    "diff": Command("diff", "what is caused in one run and not in another"),
    "explore": Command("explore", "every interleaving of every small program"),
    "play": Command("play", "play a small program step by step, with what each process knows"),
    "explain": Command("explain", "why messages had to carry a unit of information, and what ended that"),
    "track": Command("track", "what timestamping relevant events costs"),
    "compare": Command("compare", "what each protocol costs on the same schedule"),
    "advise": Command("advise", "what each protocol would have cost on a recorded trace"),
    "node": Command("node", "run one process of a causal or total order, from a configuration file"),
    "chat": Command("chat", "talk to others in causal order"),
    "keygen": Command("keygen", "make a shared key for the links of a laboratory"),
    "ca": Command("ca", "make certificates for nodes"),
    "topology": Command(
        "topology", "show a communication graph, its separators and routes; check what is claimed of it"
    ),
}
QUESTIONS = "jobs"
"""The module of the questions. A question that is not in the table is a command all the same, but `happened
--help` does not list it: that would take importing every question, and numpy and numba with them."""

EPILOG = """\
a first look:
  happened simulate --messages 1000 --units --out run    run a protocol, record what happened
  happened check run --necessary                         judge it from the trace alone
  happened view run --out run.html                       look at it in the browser
  happened why run p3#20                                 why this happened, and why so late
  happened explore --processes 3 --messages 2            every interleaving of every small program
  happened compare --protocols ks,rst,sequencer          what each protocol costs on the same schedule
  happened advise run                                    what each would have cost on a recorded trace

exit codes:
""" + "\n".join(f"  {code.value:<5}{meaning}" for code, meaning in MEANINGS.items())


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        argv = sys.argv[1:]
        spare(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: every terminal can show that
    try:
        try:
            parser = _parser(argv)
            if not argv:
                parser.print_help(sys.stderr)
                return ExitCode.BAD_INPUT
            arguments = parser.parse_args(argv)
            return int(arguments.run(arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failure can be told, and not at the interpreter's end
    except CausalityError as error:
        return _refuse(str(error))
    except ImportError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        return _refuse(advice)
    except BrokenPipeError:
        _discard_output()
        return ExitCode.PIPE_CLOSED
    except OSError as error:
        _discard_output()
        where = f"{error.filename}: " if error.filename is not None else ""
        return _refuse(f"{where}{error.strerror or error}")
    except KeyboardInterrupt:
        print("happened: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, of which only the one that `argv` gives has its options."""
    parser = argparse.ArgumentParser(
        prog="happened",
        description="What happened, and what happened before it: causal message order with the least "
        "metadata, and exact causality of recorded traces.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"happened {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    given = next((word for word in argv if not word.startswith("-")), None)
    module = COMMANDS[given].module if given in COMMANDS else QUESTIONS if given is not None else None
    for name, command in COMMANDS.items():
        if command.module != module:
            subparsers.add_parser(name, help=command.help)
    if module is not None:
        import_module(f".{module}", __name__).add_parser(subparsers)
    if given is not None and given not in subparsers.choices:
        near = difflib.get_close_matches(given, subparsers.choices)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        parser.error(f"invalid choice: {given!r}; {meant}the commands are: {', '.join(subparsers.choices)}")
    return parser


def _refuse(reason: str) -> ExitCode:
    print(f"happened: {reason}", file=sys.stderr)
    return ExitCode.BAD_INPUT


def _discard_output() -> None:
    """What is still buffered has nowhere to go: the interpreter must not try again when it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
