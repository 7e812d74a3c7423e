"""Explain a verb (`happened help ask why`) or a topic."""

import argparse
from collections.abc import Callable

from ..core.exit_codes import MEANINGS
from .options import option
from .parser import Parser, meant

EXIT_CODES = "\n".join(f"  {code.value:<5}{meaning}" for code, meaning in MEANINGS.items())
EVENTS = """\
Events are named as you have them:
  process#seq               p3#20, or computation:p3#20 where a trace has several computations
  a span's id               or trace:span
  a message                 its name in the trace, such as p0:1
  a label, or a part of it  a name that fits several events is answered with all of them"""
TRACES = """\
A trace is one of these, on this machine or at a URL of a store (s3://…):
  a directory that `happened simulate --out` or `happened import --out` made
  a .parquet file, or a directory of them, with the columns of docs/pipeline.md
  a file of JSON lines (.jsonl), one event each
`happened ask` and `happened view` also take the directory that `happened analyze --out` made."""
SHELLS = ("bash", "zsh", "fish")
COMPLETION = """\
`happened help completion SHELL` prints a script that completes verbs, options and their values:
  bash    happened help completion bash >~/.local/share/bash-completion/completions/happened
  zsh     happened help completion zsh >"${fpath[1]}/_happened"
  fish    happened help completion fish >~/.config/fish/completions/happened.fish"""


def _patterns() -> str:
    from ..sim.network import DELAYS
    from ..sim.workload import PATTERNS

    return f"--pattern   {', '.join(PATTERNS)}\n--delay     {', '.join(DELAYS)}, in seconds"


def _protocols() -> str:
    from .. import tracking
    from ..ordering import protocols

    trackers = f"{', '.join(tracking.protocols())}; p2:4 is p2 with at most 4 entries per message"
    return f"--protocol, --protocols   {', '.join(protocols())}\n--tracker, --trackers     {trackers}"


def _questions() -> str:
    from ..causality.questions import QUESTIONS

    return "Questions of `happened analyze`, each with its tables:\n" + "\n".join(
        f"  {name:<16} {question.help} (tables: {', '.join(question.tables)})"
        for name, question in QUESTIONS.items()
    )


TOPICS: dict[str, tuple[str, Callable[[], str]]] = {
    "completion": ("completion for bash, zsh and fish", lambda: COMPLETION),
    "events": ("how events are named", lambda: EVENTS),
    "exit-codes": ("what the exit code says", lambda: EXIT_CODES),
    "patterns": ("the values of --pattern and --delay", _patterns),
    "protocols": ("the protocols and trackers that there are", _protocols),
    "questions": ("the questions of `happened analyze --only`", _questions),
    "traces": ("what a verb takes as TRACE", lambda: TRACES),
}
EPILOG = "topics:\n" + "\n".join(f"  {name:<12}{about}" for name, (about, _) in TOPICS.items())


def add_arguments(parser: Parser) -> None:
    option(parser, "topic TOPIC", "a verb, with a form of it, or a topic below", nargs="*")
    parser.set_defaults(help_parser=parser)


def run(arguments: argparse.Namespace) -> None:
    from . import COMMANDS, main

    match arguments.topic:
        case []:
            arguments.help_parser.print_help()
        case ["completion", shell] if shell in SHELLS:
            from .completion import script

            print(script(shell, TOPICS), end="")
        case ["completion", shell]:
            hint = meant(shell, SHELLS)
            arguments.help_parser.error(f"no completion for {shell!r}; {hint}there is {', '.join(SHELLS)}")
        case [topic] if topic in TOPICS:
            print(TOPICS[topic][1]())
        case [verb, *form] if verb in COMMANDS:
            main([verb, *form, "--help"])
        case [word, *_]:
            hint = f"{meant(word, [*TOPICS, *COMMANDS])}there is: {', '.join([*TOPICS, *COMMANDS])}"
            arguments.help_parser.error(f"no topic {word!r}; {hint}")
