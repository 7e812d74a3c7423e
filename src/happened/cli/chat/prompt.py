"""Reads lines that a person types while others are printed: on a terminal, the typed text stays in one piece
below.

With prompt_toolkit (the extra `chat`) a terminal has a prompt with editing, completion and the lines typed
before. Without it, and through pipes, lines are read as they come.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from typing import Protocol

from ..terminal import note, stdin_lines


class Typed(Protocol):
    async def line(self) -> str | None:
        """The next line; None at the end."""


class PlainLines:
    def __init__(self) -> None:
        self._lines = stdin_lines()

    async def line(self) -> str | None:
        return await self._lines.get()


class PromptedLines:
    """While `patched` is entered, output to stdout and stderr appears above the prompt.

    words    what the tab key completes, at the beginning of a line and after a command
    before   lines typed in earlier lives, the newest last: for the arrow keys
    """

    def __init__(self, prompt: str, words: Iterable[str], before: Iterable[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import InMemoryHistory

        self._session: PromptSession[str] = PromptSession(
            prompt,
            history=InMemoryHistory(list(before)),
            completer=WordCompleter(list(words), WORD=True),
            complete_while_typing=False,
            erase_when_done=True,  # the line comes back as a line of the chat
        )

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        from prompt_toolkit.patch_stdout import patch_stdout

        # Text typed between two prompts is not echoed: the next prompt shows it.
        with self._session.app.input.raw_mode(), patch_stdout():
            yield

    async def line(self) -> str | None:
        try:
            return await self._session.prompt_async()
        except EOFError:
            return None


def is_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def typed_lines(prompt: str, words: Iterable[str], before: Iterable[str]) -> Iterator[Typed]:
    """Reads lines from a terminal or a pipe."""
    if not is_a_terminal():
        yield PlainLines()
    elif importlib.util.find_spec("prompt_toolkit") is None:
        note("pip install 'happened[chat]' keeps what you type in one piece while lines arrive")
        yield PlainLines()
    else:
        lines = PromptedLines(prompt, words, before)
        with lines.patched():
            yield lines
