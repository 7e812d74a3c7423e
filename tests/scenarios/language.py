"""Scenario files: what happens, `----`, and what is expected to be seen, in lines a person can read.

A file is a sequence of blocks. A block is one or more command lines, a line `----`, and the transcript of
these commands up to the next empty line. Lines that begin with `#` are comments. README.md beside this file
lists the commands; `pytest tests/scenarios --rewrite` writes the transcripts anew.

After the data-driven tests of etcd's raft library.
"""

import re
from dataclasses import dataclass
from pathlib import Path

RULE = "----"


class ScenarioError(Exception):
    """A scenario that cannot be played; says the file, the line and what is wrong there."""


@dataclass
class Block:
    commands: list[tuple[int, str]]  # line number and text
    expected: list[str]
    first: int  # line number of the first expected line


def parse(path: Path) -> list[Block]:
    blocks: list[Block] = []
    commands: list[tuple[int, str]] = []
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line == RULE:
            if not commands:
                raise ScenarioError(
                    f"{path}:{number}: {RULE} comes after the commands of a block; here are none"
                )
            first = number + 1
            expected = []
            while number < len(lines) and lines[number]:
                expected.append(lines[number])
                number += 1
            blocks.append(Block(commands, expected, first))
            commands = []
        elif line.strip() and not line.startswith("#"):
            commands.append((number, line.strip()))
    if commands:
        raise ScenarioError(f"{path}:{commands[0][0]}: no {RULE} follows this command")
    return blocks


def rewritten(path: Path, blocks: list[Block], transcripts: list[list[str]]) -> str:
    """The text of the file with these transcripts; everything else stays as it is."""
    lines = path.read_text().splitlines()
    for block, transcript in reversed(list(zip(blocks, transcripts, strict=True))):
        start = block.first - 1
        lines[start : start + len(block.expected)] = transcript
    return "\n".join(lines) + "\n"


def play(path: Path, blocks: list[Block], player) -> list[list[str]]:
    """The transcript of each block. `player.COMMANDS` pairs patterns with the methods that perform them."""
    transcripts = []
    for block in blocks:
        seen: list[str] = []
        for number, line in block.commands:
            try:
                seen += perform(player, line)
            except ScenarioError as error:
                raise ScenarioError(f"{path}:{number}: {error}") from None
        transcripts.append(seen)
    return transcripts


def perform(player, line: str) -> list[str]:
    for pattern, method in player.COMMANDS:
        found = re.fullmatch(pattern, line)
        if found is not None:
            return list(getattr(player, method)(**found.groupdict()))
    raise ScenarioError(f"{line!r} is no command; README.md beside the scenarios lists them")


def names(text: str) -> list[str]:
    """`a, b and c`, `a b c` or `a`."""
    return re.split(r",? and |, | ", text)
