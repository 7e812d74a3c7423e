"""The parser of the command line: one shape for every command, and suggestions for words that do not exist.

A command is a module: its docstring is the description that `--help` prints, EPILOG what follows the options;
`add_arguments(parser)` declares its arguments and `run(arguments)` does the work. One that has forms (`ask
why`, `topology show`) adds them with `add_command`; a form may also be a function, which is its own `run`.
"""

import argparse
import difflib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

WIDTH = 100

Run = Callable[[argparse.Namespace], int | None]  # returns an exit code; None: what was asked is done


class Command(NamedTuple):
    module: str  # module of this package; imported when the command is given
    help: str
    forms: tuple[str, ...] = ()  # forms for which `happened FORM` is answered with `happened VERB FORM`


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean a or b? `, for a word that is not among those known; empty if none is similar."""
    near = difflib.get_close_matches(word, list(known))
    return f"did you mean {' or '.join(near)}? " if near else ""


class Parser(argparse.ArgumentParser):
    """A parser that takes options by their full names only, and suggests corrections."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options | {"allow_abbrev": False})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse unknown arguments here, where the known options can be suggested."""
        known, extra = super().parse_known_args(args, namespace)
        if extra:
            self._refuse_extra(extra)
        return known, extra

    def _refuse_extra(self, extra: list[str]) -> NoReturn:
        option = next((word.partition("=")[0] for word in extra if word.startswith("-")), None)
        if option is None:
            self.error(f"too many arguments: {' '.join(extra)}")
        known = [name for name in self._option_string_actions if name.startswith("--")]
        hint = meant(option, known) or f"the options are: {', '.join(known)}"
        self.error(f"no such option: {option}; {hint.strip()}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = f"{meant(str(value), known)}choose from: {', '.join(known)}"
            raise argparse.ArgumentError(action, f"invalid choice: {str(value)!r}; {hint}")


def later(module: str, name: str = "run") -> Run:
    """A function of another module of this package, which is not imported before it is called."""

    def run(arguments: argparse.Namespace) -> int | None:
        code: int | None = getattr(import_module(f".{module}", __package__), name)(arguments)
        return code

    return run


def add_command(subparsers: Any, name: str, source: Any, help: str = "") -> Parser:
    """Add the command that a module, a function or an object with the attributes of a module describes;
    without a `help` its description says enough."""
    told = source.__doc__ or ""
    paragraphs = told.split("\n\n")
    parser: Parser = subparsers.add_parser(
        name,
        help=help or f"{told[:1].lower()}{told[1:].rstrip('.')}",
        description="\n\n".join(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in paragraphs),
        epilog=getattr(source, "EPILOG", None),
    )
    run = source if callable(source) else getattr(source, "run", None)
    if run is not None:
        parser.set_defaults(run=run)
    if hasattr(source, "add_arguments"):
        source.add_arguments(parser)
    return parser


def add_forms(parser: argparse.ArgumentParser, required: bool = True) -> Any:
    """Where the forms of a command are added: `happened COMMAND FORM …`."""
    metavar = "FORM" if required else "[FORM]"
    return parser.add_subparsers(title="forms", metavar=metavar, required=required)


def add_modules(subparsers: Any, commands: Mapping[str, Command]) -> None:
    """Add commands with all their options, which imports their modules."""
    for name, command in commands.items():
        add_command(subparsers, name, import_module(f".{command.module}", __package__), command.help)
