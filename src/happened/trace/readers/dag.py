"""Bare DAGs: records with an id and parents, such as commits, blocks and editing histories.

JSON lines or a JSON list of {"id", "parents", …}; block DAGs {"GenesisID", "Blocks": [{"ID", "Parents"}]};
editing histories {"txns": [{"parents", "agent", …}]}, where a transaction's id is its index and its agent
the process. Others have no processes: chains are found, so that process order adds nothing to what was
recorded (an agent that edited in two places at once becomes two processes). Recorded parents are kept,
redundant or not.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from .chains import find_chains
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation, excerpt
from .json_documents import document_or_lines
from .parentage import Parentage, trace_parents
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
        names = chains.names()
        place = [(names[chain], seq) for chain, seq in chains.place]
        for i, draft in enumerate(distinct):
            causes = [place[parent] for parent in parentage.parents[i]]
            result.rows.append(draft.row(*place[i], causes))
    return result


def counts(drafts: list[Draft]) -> dict[str, int | bool]:
    """The graph as recorded; `edges` counts distinct parents that are there."""
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
        known = {block.get("ID") for block in blocks if isinstance(block, dict)}
        if document.get("GenesisID") not in (None, *known):
            yield {"id": document["GenesisID"], "parents": []}
        yield from blocks
    else:
        yield document


def drafted(source: Source, line: int, index: int, record: Any) -> Draft | QuarantinedRecord:
    """The draft of a record; `index` is the id of a transaction."""

    def rejected(field: str | None, reason: str) -> QuarantinedRecord:
        return QuarantinedRecord(source.file, line, field, reason, excerpt(json.dumps(record)))

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
    return Draft(
        source.file,
        line,
        source.computation,
        str(agent) if agent is not None else CHAIN,
        label=str(id),
        time=_time(record),
        attributes={"id": str(id)} | _facts(record),
        id=str(id),
        parents=tuple(map(str, parents)),
    )


def _facts(record: dict[str, Any]) -> dict[str, str]:
    """The fields of a record that are short enough to become attributes of its event."""
    return {name: str(value) for name, value in record.items() if isinstance(value, str | int | float)}


def _time(record: dict[str, Any]) -> int | None:
    """Seconds since 1970 or an ISO date, in nanoseconds."""
    for name in TIMES:
        if name in record:
            value = record[name]
            break
    else:
        return None
    if isinstance(value, str):
        try:
            return int(datetime.fromisoformat(value).timestamp()) * 1_000_000_000
        except ValueError:
            return None
    return int(value) * 1_000_000_000 if isinstance(value, int | float) and abs(value) < 1 << 63 else None
