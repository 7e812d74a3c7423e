"""A program of a few processes, and the schedules that play it: at random, as written down, or in order.

A program says what each process does, in order: 0: {1,2} e; 2: {1} lets process 0 send to 1 and 2 and then
have a relevant event (which only trackers know of), and process 2 send to 1. A schedule says when that
happens and when a copy arrives, a step a line: `0 sends`, `event at 0`, `2 receives M(0,1)`, `2 receives
M(0,1) from 1`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple, Self

from ..core.destinations import pack
from ..core.errors import LocalProtocolError
from .programs import EVENT, Program
from .scenes import NOT_DELIVERED, Scene

NUMBERED = r"(?:\d+\.\s*)?"
WHEN = r"(?:\s+\[[\d.]+ s\])?"  # as the story of a simulated run has it
SENDS = re.compile(rf"{NUMBERED}(\d+) (?:sends|would send)\b.*")
HAPPENS = re.compile(rf"{NUMBERED}event (?:\(\d+,\d+\) )?at (\d+){WHEN}")
RECEIVES = re.compile(
    rf"{NUMBERED}(\d+) (?:receives|would receive) (.+?)(?: from (\d+))?(?: in h\(\d+,\d+\))?"
    rf"(?:, again|, and refuses it: .*)?{WHEN}"
)
PASSED_OVER = re.compile(  # comments, what a step led to, and what stands above a story
    r"\s.*|#.*|\d+ delivers .*|[\w:-]+: \d+: .*|where .*|null event .*|"
    rf"{NOT_DELIVERED}.*|"
)
MOST_PROCESSES = 64
ACTION = r"\{\s*\d+(?:\s*,\s*\d+)*\s*\}|e\b"


class PacketInFlight(NamedTuple):
    source: int
    to: int
    names: tuple[str, ...]  # the first as a story tells it, others as `explore` does
    message: Any


class Play(ABC):
    """What the processes of a program have yet to do, and what is on its way. With `fifo`, copies on one link
    arrive in the order sent."""

    def __init__(self, program: Program, *, fifo: bool) -> None:
        self.program = program
        self._fifo = fifo
        self._ahead = [list(actions) for actions in program.sends]
        self._packets: list[PacketInFlight] = []

    @property
    @abstractmethod
    def scenes(self) -> list[Scene]: ...

    @abstractmethod
    def act(self, process: int, action: int) -> None:
        """Let a process send to this set, or have an event."""

    @abstractmethod
    def take_in(self, packet: PacketInFlight) -> None:
        """Let a copy arrive."""

    def play(self, seed: int) -> Self:
        """Take steps at random until nothing is left to do."""
        dice = Random(seed)
        while choices := self._choices():
            self._take(dice.choice(choices))
        return self

    def drain(self) -> Self:
        """Let everything that is left happen, oldest first."""
        while choices := self._choices():
            self._take(choices[0])
        return self

    def follow(self, lines: Iterable[str]) -> list[str]:
        """Take the steps that these lines name, as `happened explore` or a story prints them. Returns those
        lines that are neither steps nor comments. LocalProtocolError if a step is not possible, or if
        no line is one."""
        others, before = [], len(self.scenes)
        for line in map(str.rstrip, lines):
            if not self._step(line) and not PASSED_OVER.fullmatch(line):
                others.append(line)
        if len(self.scenes) == before:
            first = f": {others[0]!r} is none" if others else ""
            raise LocalProtocolError(
                f"no line is a step of this program{first}. Write one step a line, such as `0 sends` and "
                "`2 receives M(0,1)`"
            )
        return others

    def _step(self, line: str) -> bool:
        """Take the step that a line names; False if it names none."""
        text = line.strip()
        if found := SENDS.fullmatch(text):
            self._act_next(line, int(found[1]), event=False)
        elif found := HAPPENS.fullmatch(text):
            self._act_next(line, int(found[1]), event=True)
        elif found := RECEIVES.fullmatch(text):
            to, name, source = found.groups()
            self._take(self._packet(line, int(to), name.replace(", ", ","), int(source) if source else None))
        return found is not None

    def _act_next(self, line: str, process: int, *, event: bool) -> None:
        if process not in self._active():
            raise LocalProtocolError(f"{line!r}: {process} has nothing more to {'do' if event else 'send'}")
        following = self._ahead[process][0]
        if (following == EVENT) is not event:
            due = "has an event" if following == EVENT else "sends"
            raise LocalProtocolError(f"{line!r}: what {process} does next in the program is that it {due}")
        self._take(process)

    def _choices(self) -> list[int | PacketInFlight]:
        """What may happen next: a copy arrives, or a process goes on."""
        return [*self._arrivals(), *self._active()]

    def _take(self, choice: int | PacketInFlight) -> None:
        if isinstance(choice, int):
            self.act(choice, self._ahead[choice].pop(0))
        else:
            self._packets.remove(choice)
            self.take_in(choice)

    def _active(self) -> list[int]:
        return [process for process, actions in enumerate(self._ahead) if actions]

    def _arrivals(self) -> list[PacketInFlight]:
        """What may arrive next. Of control messages that have the same name and link, the first: a schedule
        could not tell them apart."""
        heads: dict[tuple[Any, ...], PacketInFlight] = {}
        for packet in self._packets:
            link = packet.source, packet.to
            heads.setdefault(link if self._fifo else (*link, packet.names), packet)
        return list(heads.values())

    def _packet(self, line: str, to: int, name: str, source: int | None) -> PacketInFlight:
        for packet in self._arrivals():
            if packet.to == to and name in packet.names and source in (None, packet.source):
                return packet
        under_way = (
            ", ".join(f"{p.names[0]} from {p.source} to {p.to}" for p in self._arrivals()) or "nothing"
        )
        raise LocalProtocolError(f"{line!r}: that is not on its way; what is: {under_way}")


def read_program(text: str, *, events: bool = False) -> Program:
    """A program as `explore` prints it: `0: {1,2} {0}; 2: {1}`; with `events`, `e` is a relevant event.
    LocalProtocolError says what is wrong."""
    example = "0: e {1,2}; 1: e {2}" if events else "0: {1,2}; 1: {2}"
    sends: dict[int, list[int]] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        found = re.fullmatch(rf"(\d+)\s*:((?:\s*(?:{ACTION}))+)", part)
        if not found or ("e" in found[2] and not events):
            raise LocalProtocolError(
                f"{part!r} is no part of a program: write who sends to whom, as in `{example}`"
            )
        sets = [pack(map(int, re.findall(r"\d+", each))) for each in re.findall(ACTION, found[2])]
        sends.setdefault(int(found[1]), []).extend(sets)
    if not sends:
        raise LocalProtocolError(f"an empty program: write who sends to whom, as in `{example}`")
    n = max(*sends, *(to.bit_length() - 1 for sets in sends.values() for to in sets)) + 1
    if n > MOST_PROCESSES:
        raise LocalProtocolError(f"process {n - 1} is beyond the {MOST_PROCESSES} that a story can show")
    return Program(tuple(tuple(sends.get(process, ())) for process in range(n)))
