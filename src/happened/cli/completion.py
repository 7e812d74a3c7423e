"""Completion for bash, zsh and fish, generated from the parser of all commands.

A *place* is the typed text so far without options and arguments: "", "check", "ask why". The script of each
shell finds the place, and offers the verbs or forms and the options there, and the values of an option that
has a list of them. Everything else is completed as file names.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from . import whole_parser
from .topics import TOPICS


class OptionCompletion(NamedTuple):
    name: str
    help: str
    values: tuple[str, ...]


class CommandCompletion(NamedTuple):
    words: str
    following: tuple[str, ...]
    options: tuple[OptionCompletion, ...]


def places() -> list[CommandCompletion]:
    first, *rest = _places(whole_parser(), "")
    helped = CommandCompletion("help", (*TOPICS, *first.following), ())
    return [first._replace(following=(*first.following, "help")), *rest, helped]


def _places(parser: argparse.ArgumentParser, words: str) -> Iterator[CommandCompletion]:
    options, forms = [], {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            forms = action.choices
        for name in action.option_strings:
            if name.startswith("--"):
                values = tuple(map(str, action.choices or ()))
                options.append(OptionCompletion(name, (action.help or "").partition(";")[0], values))
    yield CommandCompletion(words, tuple(forms), tuple(options))
    for name, form in forms.items():
        yield from _places(form, f"{words} {name}".strip())


def script(shell: str) -> str:
    forms: dict[str, Callable[[list[CommandCompletion]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return forms[shell](places())


def _cases(found: list[CommandCompletion], offer: str) -> tuple[str, str, str]:
    """Patterns of the words that lead to another place; cases of options' values; cases of places."""
    paths = [place.words.split() for place in found[1:]]
    steps = "|".join(f'"{" ".join(before)} {last}"' for *before, last in paths)
    values, at = [], []
    for place in found:
        for option in place.options:
            if option.values:
                said = offer.format(" ".join(option.values))
                values.append(f'    "{place.words} {option.name}") {said}; return ;;')
        said = offer.format(" ".join((*place.following, *(option.name for option in place.options))))
        at.append(f'    "{place.words}") {said} ;;')
    return steps, "\n".join(values), "\n".join(at)


def _bash(found: list[CommandCompletion]) -> str:
    steps, values, at = _cases(found, 'COMPREPLY=($(compgen -W "{}" -- "$now"))')
    return f"""\
_happened() {{
  local now="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" at="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at $word" in
    {steps}) at="${{at:+$at }}$word" ;;
    esac
  done
  case "$at $before" in
{values}
  esac
  case "$at" in
{at}
  esac
}}
complete -o default -F _happened happened
"""


def _zsh(found: list[CommandCompletion]) -> str:
    steps, values, at = _cases(found, "compadd -- {}")
    return f"""\
#compdef happened
_happened() {{
  local at="" word
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$at $word" in
    {steps}) at="${{at:+$at }}$word" ;;
    esac
  done
  case "$at ${{words[CURRENT-1]}}" in
{values}
  esac
  case "$at" in
{at}
  esac
  _files
}}
compdef _happened happened
"""


def _fish(found: list[CommandCompletion]) -> str:
    known = " ".join(f'"{place.words}"' for place in found[1:])
    lines = [
        "function __happened_at",
        '  set -l at ""',
        "  for word in (commandline -opc)[2..-1]",
        '    set -l next (string trim -- "$at $word")',
        f"    contains -- $next {known}; and set at $next",
        "  end",
        '  test "$at" = "$argv[1]"',
        "end",
    ]
    for place in found:
        here = f"complete -c happened -n '__happened_at \"{place.words}\"'"
        if place.following:
            lines.append(f"{here} -f -a '{' '.join(place.following)}'")
        for option in place.options:
            values = f" -x -a '{' '.join(option.values)}'" if option.values else ""
            about = option.help.replace("\\", "").replace("'", "’")
            lines.append(f"{here} -l {option.name[2:]}{values} -d '{about}'")
    return "\n".join(lines) + "\n"
