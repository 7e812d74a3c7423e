"""Processes for events that have none: cover a partial order with chains.

An event may continue a chain whose last event is in its past, so that process order adds nothing to the
recorded causes. Like vector timestamps, each event's past is a count per chain; a chain can be continued
iff all of it is in the past. Greedy: an event continues its first parent's chain if it can, otherwise the
longest it can. Cost: chains for each event that has several parents or begins a branch. The counts of an
event are dropped with its last effect, or become those of that effect.
"""

from collections.abc import Sequence

import numpy as np

Counts = np.ndarray[tuple[int], np.dtype[np.int32]]

ROOM = 64
"""Chains that counts have room for in the beginning."""


class Chains:
    """place[i] = (chain, seq) of event i; owners[c] is whom chain c belongs to."""

    def __init__(self, owners: Sequence[str]) -> None:
        self.place: list[tuple[int, int]] = [(-1, 0)] * len(owners)
        self.owners: list[str] = []
        self._numbers: list[int] = []  # of each chain among those of its owner, from 1
        self._of_owner: dict[str, int] = {}  # how many chains it has
        self._lengths = np.zeros(ROOM, np.int32)  # of the chains, and room for more

    def name(self, chain: int) -> str:
        """The owner's name for the first of its chains, owner/2, owner/3, … for the others."""
        owner, number = self.owners[chain], self._numbers[chain]
        return owner if number == 1 else f"{owner}/{number}"

    def names(self) -> list[str]:
        return [self.name(chain) for chain in range(len(self.owners))]

    def _start(self, owner: str) -> int:
        chain = len(self.owners)
        self._of_owner[owner] = self._of_owner.get(owner, 0) + 1
        self.owners.append(owner)
        self._numbers.append(self._of_owner[owner])
        if chain == self._lengths.size:
            self._lengths = _roomier(self._lengths, 2 * chain)
        return chain

    def _choose(self, owner: str, past: Counts, parents: Sequence[int]) -> int:
        for parent in parents:
            chain, seq = self.place[parent]
            if self.owners[chain] == owner and self._lengths[chain] == seq:
                return chain
        known = min(past.size, len(self.owners))
        whole = np.flatnonzero(past[:known] == self._lengths[:known])
        if self._of_owner.keys() != {owner}:
            mine = [self.owners[chain] == owner for chain in whole.tolist()]
            whole = whole[np.array(mine, bool)]
        return int(whole[np.argmax(self._lengths[whole])]) if whole.size else self._start(owner)

    def extend(self, i: int, owner: str, past: Counts, parents: Sequence[int]) -> Counts:
        """Put event i, whose causes hold `past`, on a chain; `past` with it included, changed in place if
        it has room."""
        chain = self._choose(owner, past, parents)
        length = int(self._lengths[chain]) + 1
        self._lengths[chain] = length
        self.place[i] = (chain, length)
        if chain >= past.size:
            past = _roomier(past, max(ROOM, chain + chain // 2))
        past[chain] = length
        return past


def find_chains(order: Sequence[int], parents: Sequence[Sequence[int]], owners: Sequence[str]) -> Chains:
    """Chains for events given causes first; events of different owners never share one."""
    chains = Chains(owners)
    awaited = [0] * len(parents)
    for of in parents:
        for parent in of:
            awaited[parent] += 1
    counts: dict[int, Counts] = {}
    for i in order:
        free: Counts | None = None  # counts that nobody else waits for
        pasts = []
        for parent in parents[i]:
            awaited[parent] -= 1
            if awaited[parent]:
                pasts.append(counts[parent])
                continue
            done = counts.pop(parent)
            if free is None or free.size < done.size:
                free, done = done, free
            if done is not None:
                pasts.append(done)
        extended = chains.extend(i, owners[i], _union(free, pasts), parents[i])
        if awaited[i]:
            counts[i] = extended
    return chains


def _union(into: Counts | None, pasts: Sequence[Counts]) -> Counts:
    """The counts of all, in `into` if that is there and has room."""
    size = max((past.size for past in pasts), default=0)
    if into is None:
        into = np.zeros(size, np.int32)
    elif into.size < size:
        into = _roomier(into, size)
    for past in pasts:
        np.maximum(into[: past.size], past, out=into[: past.size])
    return into


def _roomier(held: np.ndarray, size: int) -> np.ndarray:
    roomier = np.zeros(size, held.dtype)
    roomier[: held.size] = held
    return roomier
