"""Processes for events that have none: cover a partial order with chains.

An event may continue a chain whose last event is in its past, so that process order adds nothing to the
recorded causes. Like vector timestamps, each event's past is a count per chain; a chain can be continued
iff all of it is in the past. Greedy: an event continues its first parent's chain if it can, otherwise the
longest it can. Cost: events x chains; counts of an event are dropped with its last effect.
"""

from collections.abc import Sequence

import numpy as np

Counts = np.ndarray[tuple[int], np.dtype[np.int64]]


class Chains:
    """place[i] = (chain, seq) of event i; owners[c] is whom chain c belongs to."""

    def __init__(self, owners: Sequence[str]) -> None:
        self.place: list[tuple[int, int]] = [(-1, 0)] * len(owners)
        self.owners: list[str] = []
        self._lengths = np.zeros(64, np.int64)  # of the chains, and room for more
        self._of_owner: dict[str, list[int]] = {}

    def name(self, chain: int) -> str:
        """The owner's name for the first of its chains, owner/2, owner/3, … for the others."""
        owner = self.owners[chain]
        number = self._of_owner[owner].index(chain) + 1
        return owner if number == 1 else f"{owner}/{number}"

    def names(self) -> list[str]:
        return [self.name(chain) for chain in range(len(self.owners))]

    def _start(self, owner: str) -> int:
        chain = len(self.owners)
        self.owners.append(owner)
        self._of_owner.setdefault(owner, []).append(chain)
        if chain == self._lengths.size:
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        return chain

    def _choose(self, owner: str, past: Counts, parents: Sequence[int]) -> int:
        for parent in parents:
            chain, seq = self.place[parent]
            if self.owners[chain] == owner and self._lengths[chain] == seq:
                return chain
        own = np.array(self._of_owner.get(owner, ()), np.int64)
        known = own[own < past.size]
        whole = known[past[known] == self._lengths[known]]
        return int(whole[np.argmax(self._lengths[whole])]) if whole.size else self._start(owner)

    def extend(self, i: int, owner: str, past: Counts, parents: Sequence[int]) -> Counts:
        """Put event i, whose causes hold `past`, on a chain; returns the counts with it included."""
        chain = self._choose(owner, past, parents)
        self._lengths[chain] += 1
        self.place[i] = (chain, int(self._lengths[chain]))
        counts = np.zeros(len(self.owners), np.int64)
        counts[: past.size] = past
        counts[chain] = self._lengths[chain]
        return counts


def find_chains(order: Sequence[int], parents: Sequence[Sequence[int]], owners: Sequence[str]) -> Chains:
    """Chains for events given causes first; events of different owners never share one."""
    chains = Chains(owners)
    awaited = [0] * len(parents)
    for of in parents:
        for parent in of:
            awaited[parent] += 1
    counts: dict[int, Counts] = {}
    for i in order:
        past = _union([counts[parent] for parent in parents[i]])
        counts[i] = chains.extend(i, owners[i], past, parents[i])
        for done in (i, *parents[i]):
            awaited[done] -= done != i
            if awaited[done] == 0:
                del counts[done]
    return chains


def _union(pasts: Sequence[Counts]) -> Counts:
    union = np.zeros(max((past.size for past in pasts), default=0), np.int64)
    for past in pasts:
        np.maximum(union[: past.size], past, out=union[: past.size])
    return union
