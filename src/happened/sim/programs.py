"""Every small program: which process multicasts what to which destinations, up to renaming the processes.

A program gives each process a sequence of destination sets. The explorer chooses when the sends happen, and
in which order their packets arrive. Two programs that differ only by a permutation of the processes behave
alike under a protocol that treats processes alike, so one of each class is kept."""

import re
from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import NamedTuple

from ..core.destinations import pack, unpack
from ..core.errors import LocalProtocolError, require

CASTS = ("multicast", "unicast", "broadcast")
EVENT = 0
"""Stands for a relevant event in the programs of trackers, in place of a destination set."""
MOST_PROCESSES = 64
"""The largest number of processes that a story can show."""
ACTION = r"\{\s*\d+(?:\s*,\s*\d+)*\s*\}|e\b"


class Program(NamedTuple):
    """For each process, the destination sets (bit sets) of its sends, in order."""

    sends: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        """Prints a program like `0: {1,2} {0}; 2: {1}`."""
        return "; ".join(
            f"{process}: " + " ".join("e" if to == EVENT else set_text(to) for to in sends)
            for process, sends in enumerate(self.sends)
            if sends
        )

    @property
    def packets(self) -> int:
        return sum(to.bit_count() for sends in self.sends for to in sends)


def set_text(bits: int) -> str:
    return "{" + ",".join(map(str, unpack(bits))) + "}"


def programs(
    processes: int,
    messages: int,
    *,
    casts: str = "multicast",
    self_addressed: bool = True,
    renamed: bool = False,
) -> list[Program]:
    """One program of each class with `messages` sends in all, smallest first; if `renamed`, all programs."""
    enough = processes >= 1 and messages >= 1
    require(enough, f"a program needs processes and messages, not {processes} and {messages}")
    possible = processes > 1 or self_addressed
    require(possible, "a single process can only send to itself; allow that, or add a process")
    renamings = [] if renamed else [_Renaming(p, processes) for p in permutations(range(processes))]
    choices = [_destination_sets(p, processes, casts, self_addressed) for p in range(processes)]
    kept = []
    for lengths in _compositions(messages, processes):
        if not renamed and any(a < b for a, b in pairwise(lengths)):
            continue  # some renaming puts the longer sequences first
        slots = [product(choices[p], repeat=length) for p, length in enumerate(lengths)]
        for sends in product(*slots):
            if all(sends >= renaming.apply(sends) for renaming in renamings if renaming.keeps(lengths)):
                kept.append(Program(sends))
    return sorted(kept, key=lambda program: (program.packets, program))


class _Renaming:
    def __init__(self, order: tuple[int, ...], processes: int) -> None:
        self._order = order  # order[p] is the process that takes the place of p
        place = [order.index(p) for p in range(processes)]
        self._sets = [pack(place[d] for d in unpack(bits)) for bits in range(1 << processes)]

    def keeps(self, lengths: tuple[int, ...]) -> bool:
        return all(lengths[source] == length for source, length in zip(self._order, lengths, strict=True))

    def apply(self, sends: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._sets[to] for to in sends[source]) for source in self._order)


def _destination_sets(process: int, processes: int, casts: str, self_addressed: bool) -> list[int]:
    everyone = (1 << processes) - 1
    allowed = everyone if self_addressed else everyone ^ 1 << process
    if casts == "broadcast":
        return [allowed]
    if casts == "unicast":
        return [1 << d for d in unpack(allowed)]
    if casts == "multicast":
        return [bits for bits in range(1, everyone + 1) if not bits & ~allowed]
    raise LocalProtocolError(f"casts are {', '.join(CASTS)}, not {casts!r}")


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield first, *rest


def read_program(text: str, *, events: bool = False) -> Program:
    """A program from the text that `explore` prints: `0: {1,2} {0}; 2: {1}`; with `events`, `e` is a relevant
    event. The LocalProtocolError says what is wrong."""
    example = "0: e {1,2}; 1: e {2}" if events else "0: {1,2}; 1: {2}"
    sends: dict[int, list[int]] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        found = re.fullmatch(rf"(\d+)\s*:((?:\s*(?:{ACTION}))+)", part)
        if not found or ("e" in found[2] and not events):
            why = f"{part!r} is no part of a program: write who sends to whom, as in `{example}`"
            raise LocalProtocolError(why)
        sets = [pack(map(int, re.findall(r"\d+", each))) for each in re.findall(ACTION, found[2])]
        sends.setdefault(int(found[1]), []).extend(sets)
    require(sends, f"an empty program: write who sends to whom, as in `{example}`")
    n = max(*sends, *(to.bit_length() - 1 for sets in sends.values() for to in sets)) + 1
    why = f"process {n - 1} is beyond the {MOST_PROCESSES} that a story can show"
    require(n <= MOST_PROCESSES, why)
    return Program(tuple(tuple(sends.get(process, ())) for process in range(n)))
