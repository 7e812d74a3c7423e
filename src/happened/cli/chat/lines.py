"""The lines of a chat: numbered as this process saw them, on the screen and, beside a journal, in a file.

Promises   with a file, a line is written before its message is acknowledged, and one that comes again after a
           crash is not shown twice: a chat that is killed goes on with the numbers that it had.
Bounds     REMEMBERED lines can be answered and are kept; the file has at most twice as many.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...net import Message
from ..terminal import note

REMEMBERED = 10_000


class Line(NamedTuple):
    """`number`: on the screen. `delivery`: the number of its delivery, which is the same if the message is
    delivered again."""

    number: int
    delivery: int
    name: str
    sender: str
    text: str
    answers: str = ""  # the name of a line
    alone: str = ""  # the addressees, if not everybody


class Lines:
    """All remembered lines, by number and by name. `file`: None to keep them in memory only."""

    def __init__(self, me: str, file: Path | None) -> None:
        self._me, self._file = me, file
        self._is_writable = True
        self._forget()

    def _forget(self) -> None:
        self._lines: dict[int, Line] = {}
        self._numbers: dict[str, int] = {}
        self._last = Line(0, 0, "", "", "")
        self._written = 0  # lines in the file

    def load(self, delivered: int) -> None:
        """Read the lines of an earlier session; `delivered` is the number of deliveries in the journal. If
        that is fewer than the file has, the file belongs to another journal and its lines to another
        conversation: it is renamed."""
        if self._file is None or not self._file.exists():
            return
        for line in _read(self._file):
            self._remember(line)
            self._written += 1
        if self._last.delivery > delivered:
            aside = self._file.with_name(f"{self._file.name}.old")
            os.replace(self._file, aside)
            note(f"{aside} has the lines of an earlier chat: this one has another journal")
            self._forget()

    def add(self, message: Message) -> Line | None:
        """The line of a message; None if an earlier session has shown it."""
        if message.number <= self._last.delivery and message.name in self._numbers:
            return None
        said = _read_message(message)
        answers, to = said.get("answers"), said.get("to")
        alone = ""
        if said.get("alone") is True:
            alone = to if message.sender == self._me and isinstance(to, str) else self._me
        line = Line(
            self._last.number + 1,
            message.number,
            message.name,
            message.sender,
            said["text"],
            answers if isinstance(answers, str) else "",
            alone,
        )
        self._remember(line)
        self._write(line)
        return line

    def _remember(self, line: Line) -> None:
        self._last = line._replace(delivery=max(line.delivery, self._last.delivery))
        self._lines[line.number] = line
        self._numbers[line.name] = line.number
        if len(self._lines) > REMEMBERED:
            self._numbers.pop(self._lines.pop(next(iter(self._lines))).name, None)

    def named(self, number: str) -> str | None:
        """The name of the message whose line has this number."""
        return next((line.name for each, line in self._lines.items() if str(each) == number), None)

    def newest(self, count: int) -> list[Line]:
        return list(self._lines.values())[-count:] if count > 0 else []

    def own(self) -> list[str]:
        """What was said here."""
        return [line.text for line in self._lines.values() if line.sender == self._me]

    def shown(self, line: Line) -> str:
        about = alone = ""
        if line.answers:
            number = self._numbers.get(line.answers)
            about = f", to [{number}]" if number else ", to a line you do not have"
        if line.alone:
            alone = f", to {'you' if line.alone == self._me else printable(line.alone)} alone"
        return f"[{line.number}] {line.sender}{about}{alone}: {printable(line.text)}"

    # The file.

    def _write(self, line: Line) -> None:
        if self._file is None or not self._is_writable:
            return
        try:
            if self._written >= 2 * REMEMBERED:
                shorter = self._file.with_name(f"{self._file.name}.new")
                with open(shorter, "w", opener=_private) as out:
                    out.writelines(json.dumps(each._asdict()) + "\n" for each in self._lines.values())
                os.replace(shorter, self._file)
                self._written = len(self._lines)
            with open(self._file, "a", opener=_private) as file:
                file.write(json.dumps(line._asdict()) + "\n")
            self._written += 1
        except OSError as error:
            self._is_writable = False
            note(f"{self._file}: lines are no longer kept for the next start: {error.strerror}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(file: Path) -> Iterator[Line]:
    """The lines of a file; an incomplete last line is cut off."""
    whole = 0
    with open(file, "r+b") as stream:
        for text in stream:
            try:
                line = Line(**json.loads(text)) if text.endswith(b"\n") else None
            except (ValueError, TypeError):
                line = None
            if line is None:
                break
            whole += len(text)
            yield line
        stream.truncate(whole)


def _read_message(message: Message) -> dict[str, Any]:
    """The text of a message; bytes that no chat has sent are shown as their number."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(message.payload)
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            return said
    return {"text": f"({len(message.payload)} bytes that are not of a chat)"}


def printable(text: str) -> str:
    """The text with a mark for every control character: a message must not move our cursor."""
    return "".join(each if each.isprintable() else "�" for each in text)
