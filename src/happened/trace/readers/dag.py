"""Bare DAGs: records with an id and parents, such as commits, blocks and editing histories.

JSON lines or a JSON list of {"id", "parents", …}; block DAGs {"GenesisID", "Blocks": [{"ID", "Parents"}]};
editing histories {"txns": [{"parents", "agent", …}]}, where a transaction's id is its index and its agent is
the process. Other DAGs have no processes: the reader covers them with chains that add nothing to the recorded
order (an agent that edited in two places at once becomes two processes). Recorded parents are kept, even
redundant ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from .cycles import Parentage, trace_parents
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation
from .json_documents import document_or_lines
from .source import Source

CHAIN = "chain"
TIMES = ("time", "commit_time", "timestamp")


def parse(source: Source, options: Options) -> Parsed:
    number = 0
    for line, document in document_or_lines(source):
        if isinstance(document, QuarantinedRecord):
            yield document
            continue
        for record in _records(document):
            number += 1
            yield drafted(source, line or number, number - 1, record)


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    result = Assembly()
    for group in by_computation(drafts).values():
        distinct, parentage = _trace(group, result.quarantined)
        chains = find_chains(parentage.order, parentage.parents, [draft.process for draft in distinct])
        place = [(chains.names[chain], seq) for chain, seq in chains.place]
        for i, draft in enumerate(distinct):
            causes = [place[parent] for parent in parentage.parents[i]]
            result.rows.append(draft.row(*place[i], causes))
    return result


def counts(drafts: list[Draft]) -> dict[str, int | bool]:
    """Counts of the recorded graph; `edges` counts distinct parents that exist."""
    distinct, parentage = _trace(drafts, [])
    degrees = [len(of) for of in parentage.parents]
    has_child = {parent for of in parentage.parents for parent in of}
    return {
        "nodes": len(distinct),
        "edges": sum(degrees),
        "roots": degrees.count(0),
        "heads": len(distinct) - len(has_child),
        "merges": sum(degree > 1 for degree in degrees),
        "maxpar": max(degrees, default=0),
        "missing_parent_refs": parentage.missing,
        "file_order_topological": all(p < i for i, of in enumerate(parentage.parents) for p in of),
        "cyclic": parentage.cyclic,
        "dup_parent": sum(len(draft.parents) - len(set(draft.parents)) for draft in drafts),
        "agents": len({draft.process for draft in drafts if draft.process != CHAIN}),
    }


def _trace(drafts: list[Draft], quarantined: list[QuarantinedRecord]) -> tuple[list[Draft], Parentage]:
    """The records by id, each once, and their parents."""
    place: dict[str | None, int] = {}
    distinct: list[Draft] = []
    for draft in drafts:
        if draft.id in place:
            first = distinct[place[draft.id]].line
            reason = f"{draft.id} is the id of record {first} too; the first is imported"
            quarantined.append(draft.quarantined("id", reason, imported=False))
        else:
            place[draft.id] = len(distinct)
            distinct.append(draft)
    parentage = trace_parents(distinct, lambda draft, id: place.get(id))
    quarantined += parentage.quarantined
    return distinct, parentage


def _records(document: Any) -> Iterator[Any]:
    if isinstance(document, list):
        yield from document
    elif isinstance(document, dict) and isinstance(document.get("txns"), list):
        yield from document["txns"]
    elif isinstance(document, dict) and isinstance(document.get("Blocks"), list):
        blocks = document["Blocks"]
        known = [block.get("ID") for block in blocks if isinstance(block, dict)]
        if document.get("GenesisID") not in (None, *known):
            yield {"id": document["GenesisID"], "parents": []}
        yield from blocks
    else:
        yield document


def drafted(source: Source, line: int, index: int, record: Any) -> Draft | QuarantinedRecord:
    """The draft of a record; `index` is the id of a transaction."""

    rejected = partial(source.quarantined, line, record)
    if not isinstance(record, dict):
        return rejected(None, "is not an object with an id and parents")
    is_transaction = "patches" in record and "id" not in record
    id = index if is_transaction else record.get("id", record.get("ID"))
    if not isinstance(id, str | int):
        return rejected("id", "is missing; every record needs one")
    parents = record.get("parents", record.get("Parents"))
    if not isinstance(parents, list) or not all(isinstance(parent, str | int) for parent in parents):
        return rejected("parents", "is not a list of ids")
    agent = record.get("agent")
    # Short values become attributes.
    facts = {name: str(value) for name, value in record.items() if isinstance(value, str | int | float)}
    return Draft(
        source.file,
        line,
        source.computation,
        str(agent) if agent is not None else CHAIN,
        label=str(id),
        time=_time(record),
        attributes={"id": str(id)} | facts,
        id=str(id),
        parents=tuple(map(str, parents)),
    )


def _time(record: dict[str, Any]) -> int | None:
    """Seconds since 1970 or an ISO date, in nanoseconds."""
    value = next((record[name] for name in TIMES if name in record), None)
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value).timestamp()) * 1_000_000_000
        except ValueError:
            return None
    return int(value) * 1_000_000_000 if isinstance(value, int | float) and abs(value) < 1 << 63 else None


Counts = np.ndarray[tuple[int], np.dtype[np.int32]]

ROOM = 64
"""Initial capacity, in chains, of an event's counts."""


class Chains:
    """Processes for events that have none: a partial order covered with chains.

    place[i] = (chain, seq) of event i; owners[c] is the owner of chain c. An event may continue a chain whose
    last event is in its past, so that process order adds nothing to the recorded causes. Each event's past is
    a count per chain, as in vector timestamps; a chain can be continued iff all of it is in the past. The
    choice is greedy: an event continues its first parent's chain if possible, otherwise the longest possible
    one. Cost: chains for each event that has several parents or begins a branch.
    """

    def __init__(self, owners: Sequence[str]) -> None:
        self.place: list[tuple[int, int]] = [(-1, 0)] * len(owners)
        self.owners: list[str] = []
        self.names: list[str] = []  # an owner's first chain has the owner's name, others owner/2, …
        self._of_owner: Counter[str] = Counter()  # the number of chains of each owner
        self._lengths = np.zeros(ROOM, np.int32)  # lengths of the chains, with spare capacity

    def _start(self, owner: str) -> int:
        chain = len(self.owners)
        self._of_owner[owner] += 1
        number = self._of_owner[owner]
        self.owners.append(owner)
        self.names.append(owner if number == 1 else f"{owner}/{number}")
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
        """Put event i, with the past `past`, on a chain; return `past` with the event added, changed in place
        if its capacity suffices."""
        chain = self._choose(owner, past, parents)
        length = int(self._lengths[chain]) + 1
        self._lengths[chain] = length
        self.place[i] = (chain, length)
        if chain >= past.size:
            past = _roomier(past, max(ROOM, chain + chain // 2))
        past[chain] = length
        return past


def find_chains(order: Sequence[int], parents: Sequence[Sequence[int]], owners: Sequence[str]) -> Chains:
    """Chains for events given causes first; events of different owners never share one. The counts of an
    event are dropped after its last effect, or reused for that effect."""
    chains = Chains(owners)
    awaited = [0] * len(parents)
    for of in parents:
        for parent in of:
            awaited[parent] += 1
    counts: dict[int, Counts] = {}
    for i in order:
        free: Counts | None = None  # counts that no other event needs
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
    """The maximum of all counts, in `into` if it exists and is large enough."""
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
