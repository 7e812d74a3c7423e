"""The command line: verbs in groups, one module each; data on stdout, everything else on stderr.

This package has the options, texts and exit codes of commands; other packages compute the answers. The module
of a verb is imported only when that verb is given, so that `happened --help` and other verbs start quickly.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..core.errors import CausalityError
from ..core.exit_codes import ExitCode
from ..core.extras import how_to_install
from .parser import Command, Parser, add_modules, meant
from .startup import spare

ASKS = ("why", "path", "past", "future", "influenced", "critical-path", "diff", "unit")
GROUPS = {
    "get": {
        "simulate": Command("simulate", "run a protocol in virtual time and record a trace"),
        "import": Command("import_logs", "make a trace of other systems' logs and spans"),
        "node": Command("node", "run one real process; make its keys; chat", ("chat", "keys")),
    },
    "judge": {
        "check": Command("check", "judge a trace: did deliveries keep the order, was anything lost?"),
        "analyze": Command("analyze", "answer every question about a trace of any size, as tables"),
    },
    "ask": {"ask": Command("ask", f"{', '.join(ASKS[:-1])} or {ASKS[-1]}", ASKS)},
    "look": {
        "view": Command("view", "show a trace in the browser: a space–time diagram"),
        "export": Command("export", "write a trace, or a part of one, for other tools"),
    },
    "live": {"stream": Command("stream", "follow a trace that is being written, or receive spans over OTLP")},
    "study": {
        "compare": Command("compare", "what each protocol, or tracker, costs on the same schedule"),
        "advise": Command("advise", "what each protocol would have cost on a recorded trace"),
        "explore": Command("explore", "every interleaving of every small program"),
        "play": Command("play", "a small program step by step, with what each process knows"),
    },
    "operate": {
        "topology": Command("topology", "communication graphs: show, check, cost, suggest, deploy"),
        "clean": Command("clean", "delete leftovers of interrupted runs"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

EPILOG = """\
a first look:
  happened simulate --messages 1000 --units --out run    run a protocol, record what happened
  happened check run --necessary                         judge it from the trace alone
  happened view run --out run.html                       look at it in the browser
  happened ask why run p3#20                             why this happened, and why so late
  happened compare --protocols ks,rst,sequencer          what each protocol costs on the same schedule
  happened advise run                                    what each would have cost on a recorded trace

`happened VERB --help` explains a verb; `happened help` lists other topics.
"""


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        argv = sys.argv[1:]
        spare(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # stderr's encoding: every terminal can show that
    try:
        try:
            parser = _parser(argv)
            if not argv:
                parser.print_help(sys.stderr)
                return ExitCode.BAD_INPUT
            arguments = parser.parse_args(argv)
            return int(arguments.run(arguments) or ExitCode.HOLDS)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failure can be reported
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


def _parser(argv: Sequence[str]) -> Parser:
    """The parser of all commands; only the command in `argv` gets its options."""
    parser = Parser(prog="happened", usage="happened VERB …", description=_overview(), epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"happened {__version__}")
    subparsers = parser.add_subparsers(prog="happened", required=True, help=argparse.SUPPRESS)
    given = next((word for word in argv if not word.startswith("-")), None)
    if given == "help":
        add_modules(subparsers, {given: Command("topics", "")})
    elif given in COMMANDS:
        add_modules(subparsers, {given: COMMANDS[given]})
    elif given is not None:
        forms = [f"{verb} {given}" for verb, command in COMMANDS.items() if given in command.forms]
        hint = f"did you mean {' or '.join(forms)}? " if forms else meant(given, COMMANDS)
        parser.error(f"invalid choice: {given!r}; {hint}the verbs are: {', '.join(COMMANDS)}")
    return parser


def whole_parser() -> Parser:
    """The parser with the options of every command, for completion and tests; imports all their modules."""
    parser = Parser(prog="happened")
    add_modules(parser.add_subparsers(), COMMANDS)
    return parser


def _overview() -> str:
    lines = ["What happened, and what happened before it: causal message order with the least metadata,"]
    lines += ["and exact causality of recorded traces.", ""]
    for group, commands in GROUPS.items():
        for name, command in commands.items():
            title = group if name == next(iter(commands)) else ""
            lines.append(f"{title:<9}{name:<10}{command.help}")
    return "\n".join(lines)


def _refuse(reason: str) -> ExitCode:
    print(f"happened: {reason}", file=sys.stderr)
    return ExitCode.BAD_INPUT


def _discard_output() -> None:
    """Buffered output cannot be written: keep the interpreter from trying again when it ends."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
