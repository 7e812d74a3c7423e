"""DAGs by Python integers as bit sets: all ancestors of a node are one number."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path


def parents_in(log: str | Path) -> list[list[int]]:
    """The parents of each record of JSON lines with an id and parents, by place; parents come first."""
    place: dict[str, int] = {}
    parents = []
    with open(log) as lines:
        for line in lines:
            record = json.loads(line)
            parents.append([place[parent] for parent in record["parents"] if parent in place])
            place[record["id"]] = len(place)
    return parents


def reduction(parents: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """(parent, node) of each edge that no other path makes redundant; parents have smaller numbers.

    The ancestors of a node are dropped with its last child.
    """
    awaited = [0] * len(parents)
    for of in parents:
        for parent in set(of):
            awaited[parent] += 1
    past: dict[int, int] = {}
    for node, of in enumerate(parents):
        distinct = set(of)
        mine = 1 << node
        for parent in distinct:
            mine |= past[parent]
            if not any(past[other] >> parent & 1 for other in distinct if other != parent):
                yield parent, node
        for parent in distinct:
            awaited[parent] -= 1
            if not awaited[parent]:
                del past[parent]
        if awaited[node]:
            past[node] = mine


def reduction_size(parents: Sequence[Sequence[int]]) -> int:
    return sum(1 for _ in reduction(parents))


def ordered_pairs(parents: Sequence[Sequence[int]]) -> int:
    """How many pairs of nodes are an ancestor and a descendant."""
    past: list[int] = []
    for of in parents:
        mine = 0
        for parent in of:
            mine |= past[parent] | 1 << parent
        past.append(mine)
    return sum(each.bit_count() for each in past)
