"""Convert rows of tables of commits, messages and transactions with the readers of the file formats.

Records use our names for their fields (DAG, LOG, HISTORY). A table has no order, so a column must give the
order of a process's events: `position` of a log, `transaction` of a history.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from . import dag, database_histories, mapped
from .draft import Assembly, Draft, Options, QuarantinedRecord, left_out
from .source import Source
from .table_spans import FILE, ROW, Nanoseconds, Record

DAG = ("id", "parents", "computation", "author", "time", "label")
LOG = tuple("position" if name == "seq" else name for name in mapped.EVENT_FIELDS)
HISTORY = ("session", "transaction", "operations", "computation", "time")

EVENT = mapped.Mapping(",".join(f"{name}={name}" for name in mapped.EVENT_FIELDS))
PARTITION = "partition"
"""Field of a row whose position is an offset: its topic and partition, within which offsets are ordered."""


def dag_drafts(record: Record) -> Iterator[Draft | QuarantinedRecord]:
    """A record with an id and parents; a missing list of parents is an empty one."""
    taken = {"parents": [], **record}
    time, label = taken.pop("time", None), taken.pop("label", None)
    computation = str(taken.pop("computation", ""))
    if "author" in taken:
        taken["agent"] = str(taken.pop("author"))
    if not isinstance(time, Nanoseconds | None):
        taken["time"] = time
    draft = dag.drafted(Source(FILE, (), computation), ROW, ROW, taken)
    if isinstance(draft, Draft):
        draft.time = int(time) if isinstance(time, Nanoseconds) else draft.time
        draft.label = str(label) if label is not None else draft.label
    yield draft


def log_drafts(record: Record) -> Iterator[Draft | QuarantinedRecord]:
    """An event of a log: what a process did with a message, at a position of its own."""
    position, partition = record.pop("position", None), record.pop(PARTITION, None)
    try:
        if position is None:
            raise ValueError("has no position; events of a process have no order without")
        draft = mapped.event(EVENT, Source(FILE, ()), ROW, record | {"seq": position})
    except (ValueError, TypeError, OverflowError) as error:
        yield left_out(FILE, ROW, record, None, str(error))
        return
    if partition is not None:
        draft.attributes[PARTITION] = str(partition)
    yield draft


def history_drafts(record: Record) -> Iterator[Draft | QuarantinedRecord]:
    """A transaction of a session: [(r or w, key, value), …], or the same as text."""

    rejected = partial(left_out, FILE, ROW, record)
    session, number = record.get("session"), record.get("transaction")
    if session is None:
        yield rejected("session", "is missing; it names the process")
        return
    if not isinstance(number, int):
        yield rejected("transaction", "is no whole number; it is the place of the transaction in its session")
        return
    operations = record.get("operations") or []
    steps = [_step(each) for each in (operations if isinstance(operations, list) else [operations])]
    if None in steps:
        yield rejected("operations", "are no list of `r key value` and `w key value`")
        return
    source = Source(FILE, (), str(record.get("computation", "")))
    draft = database_histories.transaction(source, ROW, session, [step for step in steps if step])
    time = record.get("time")
    draft.seq, draft.id = number, f"{draft.process}#{number}"
    draft.time = int(time) if isinstance(time, int) else None
    draft.attributes["transaction"] = str(number)
    yield draft


def _step(operation: Any) -> tuple[str, str, str] | None:
    """An operation, as (r or w, key, value)."""
    if isinstance(operation, dict):
        operation = [*operation.values()]
    parts = operation.split() if isinstance(operation, str) else operation
    if not isinstance(parts, list) or len(parts) != 3:
        return None
    what, key, value = map(str, parts)
    if what in database_histories.WRITES or what in database_histories.READS:
        return ("w" if what in database_histories.WRITES else "r"), key, value
    return None


def assemble_dag(drafts: Iterable[Draft], options: Options) -> Assembly:
    return dag.assemble(_sorted(drafts), options)


def assemble_log(drafts: Iterable[Draft], options: Options) -> Assembly:
    """Rows of a log. If a process's positions are offsets of several partitions, the order of its events is
    unknown, and they are left out."""
    every = _sorted(drafts)
    partitions: dict[str, set[str]] = {}
    for draft in every:
        partitions.setdefault(draft.process, set()).add(draft.attributes.get(PARTITION, ""))
    ordered = {process for process, of in partitions.items() if len(of) == 1}
    assembly = mapped.assemble([draft for draft in every if draft.process in ordered], options)
    for draft in every:
        if draft.process not in ordered:
            where = ", ".join(sorted(partitions[draft.process])[:3])
            reason = (
                f"{draft.process} has events in several partitions ({where}), and offsets order one alone; "
                'name a column that orders them, columns={"position": "…"}'
            )
            assembly.quarantined.append(draft.quarantined("position", reason, imported=False))
    return assembly


def assemble_history(drafts: Iterable[Draft], options: Options) -> Assembly:
    kept: dict[str | None, Draft] = {}
    every = _sorted(drafts)
    for draft in every:
        kept.setdefault(draft.id, draft)
    assembly = database_histories.assemble(kept.values(), options)
    for draft in every:
        if kept[draft.id] is not draft:
            reason = f"{draft.id} is there twice; one of them is taken"
            assembly.quarantined.append(draft.quarantined("transaction", reason, imported=False))
    return assembly


def _sorted(drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts sorted by process, position, time and the rest of their content."""

    def key(draft: Draft) -> tuple[Any, ...]:
        return (
            *(draft.process, draft.seq is None, draft.seq or 0, draft.time is None, draft.time or 0),
            *(draft.id or "", draft.kind, draft.message or "", draft.label or "", draft.parents, draft.links),
            *(draft.to or [], sorted(draft.attributes.items()), sorted(draft.carried.items())),
        )

    return sorted(drafts, key=key)
