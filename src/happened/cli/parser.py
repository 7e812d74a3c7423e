"""The parser of the command line: one shape for every command, and suggestions for words that do not exist.

A command is a module with a DESCRIPTION, perhaps an EPILOG, `add_arguments(parser)` and `run(arguments)`; one
that has forms (`ask why`, `topology show`) adds them with `add_forms`, each of the same shape.
"""

import argparse
import difflib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

WIDTH = 100


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
        options["allow_abbrev"] = False
        super().__init__(**options)

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
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {str(value)!r}; {meant(str(value), known)}choose from: {', '.join(known)}",
            )


def later(module: str) -> Callable[[argparse.Namespace], int]:
    """The `run` of another module of this package, which is imported only when it is called, and not for
    --help."""

    def run(arguments: argparse.Namespace) -> int:
        return int(import_module(f".{module}", __package__).run(arguments))

    return run


def add_command(subparsers: Any, name: str, help: str, source: Any) -> Parser:
    """Add the command that a module, or a class of the same shape, describes."""
    parser: Parser = subparsers.add_parser(
        name,
        help=help,
        description=_wrapped(source.DESCRIPTION),
        epilog=getattr(source, "EPILOG", None),
    )
    if hasattr(source, "run"):
        parser.set_defaults(run=source.run)
    source.add_arguments(parser)
    return parser


def add_forms(
    parser: argparse.ArgumentParser, forms: Mapping[str, Command], package: str, *, required: bool = True
) -> None:
    """Add the forms of a command: `happened COMMAND FORM …`."""
    metavar = "FORM" if required else "[FORM]"
    subparsers = parser.add_subparsers(title="forms", metavar=metavar, required=required)
    for name, form in forms.items():
        add_command(subparsers, name, form.help, import_module(f".{form.module}", package))


def _wrapped(text: str) -> str:
    """Wraps a description of one line; one that has lines of its own stays unchanged."""
    return text if "\n" in text.strip() else textwrap.fill(text, WIDTH)
