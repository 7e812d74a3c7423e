"""Reads lines that a person types while others are printed: on a terminal, the typed text stays in one piece
below.

With prompt_toolkit (the extra `chat`) a terminal has a prompt with editing, completion and the lines typed
before. Without it, and through pipes, lines are read as they come.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator

from ..terminal import note, stdin_lines


def is_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def typed_lines(
    prompt: str, words: Iterable[str], before: Iterable[str]
) -> Iterator[Callable[[], Awaitable[str | None]]]:
    """What reads the next line from a terminal or a pipe; None at the end.

    words    what the tab key completes, at the beginning of a line and after a command
    before   lines typed in earlier lives, the newest last: for the arrow keys
    """
    if not is_a_terminal() or importlib.util.find_spec("prompt_toolkit") is None:
        if is_a_terminal():
            note("pip install 'happened[chat]' keeps what you type in one piece while lines arrive")
        yield stdin_lines().get
        return
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.patch_stdout import patch_stdout

    session: PromptSession[str] = PromptSession(
        prompt,
        history=InMemoryHistory(list(before)),
        completer=WordCompleter(list(words), WORD=True),
        complete_while_typing=False,
        erase_when_done=True,  # the line comes back as a line of the chat
    )

    async def line() -> str | None:
        try:
            return await session.prompt_async()
        except EOFError:
            return None

    # Text typed between two prompts is not echoed: the next prompt shows it.
    with session.app.input.raw_mode(), patch_stdout():
        yield line
