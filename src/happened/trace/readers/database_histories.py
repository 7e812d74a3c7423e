"""Histories of databases: reads happen after the writes whose values they return.

AWDIT's text: `w key value` and `r key value`, `-----` ends a transaction, `=====` a session. A transaction
is one event of its session.

Jepsen's JSON: operations {"process", "type", "f", "value"}, in a list or one per line. An operation that was
invoked and completed is two events of its process. Writes are the steps `w`, `write`, `append` and `add`,
reads are `r` and `read`; a step is [step, key, value], or an operation by itself with the value [key, value].
With a single register or set, and so no key, the value stands alone, or is a list of all values read; the
first element of a list of two counts as a key.

An event that read a value has the write of that value in its past: the transaction, or the invocation of
the operation. A value that several events wrote, or none, gives no cause; an attribute of the reading event
lists it. Events that read from one another in a cycle cannot have happened, and are reported.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from .cycles import break_circles
from .draft import Assembly, Draft, Options, Parsed, QuarantinedRecord, by_computation
from .json_documents import as_object, records
from .source import Source

WRITES, READS = ("w", "write", "append", "add"), ("r", "read")
REGISTER = ""
"""The key of values without a key."""
UNKNOWN = "reads_of_unknown_writes"
"""Name of an event's attribute and of an import's count: values read that no event, or several, wrote."""
ENDS = ("ok", "fail", "info")


def parse_awdit(source: Source, options: Options) -> Parsed:
    session, first = 1, 0
    steps: list[tuple[str, str, str]] = []
    for number, text in [*source.lines(), (0, "=====")]:
        mark = text.strip()
        if (mark and set(mark) <= {"-"}) or set(mark) == {"="}:
            if steps:
                yield transaction(source, first, session, steps)
            steps = []
            session += mark[0] == "="
            continue
        parts = mark.split()
        if len(parts) != 3 or parts[0] not in ("r", "w"):
            yield source.quarantined(number, text, None, "is no `r key value` or `w key value`")
            continue
        first = first if steps else number
        steps.append((parts[0], parts[1], parts[2]))


def transaction(source: Source, line: int, session: object, steps: list[tuple[str, str, str]]) -> Draft:
    label = "; ".join(" ".join(step) for step in steps)
    written = [f"{key}={value}" for what, key, value in steps if what == "w"]
    own = set(written)
    read = [f"{key}={value}" for what, key, value in steps if what == "r" and f"{key}={value}" not in own]
    draft = Draft(source.file, line, source.computation, f"session {session}", label)
    draft.links, draft.parents = tuple(written), tuple(read)
    return draft


def parse_jepsen(source: Source, options: Options) -> Parsed:
    for number, operation, _ in records(source, ("history", "ops")):
        if isinstance(operation, QuarantinedRecord):
            yield operation
            continue
        kind = as_object(operation).get("type")
        if (kind != "invoke" and kind not in ENDS) or "process" not in operation:
            reason = "is no operation with a process and a type (invoke, ok, fail, info)"
            yield source.quarantined(number, operation, "type", reason)
            continue
        time, value = operation.get("time"), json.dumps(operation.get("value"))
        process, label = f"process {operation['process']}", f"{kind} {operation.get('f', value)}"
        draft = Draft(source.file, number, source.computation, process, label, attributes={"value": value})
        draft.time = time if isinstance(time, int) else None
        if kind == "invoke":
            draft.links = tuple(name for is_write, name in _steps(operation) if is_write)
        elif kind == "ok":
            draft.parents = tuple(name for is_write, name in _steps(operation) if not is_write)
        yield draft


def _steps(operation: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """(whether it is a write, `key=value`) for every value that was written or read."""
    value, f = operation.get("value"), operation.get("f")
    steps = value if isinstance(value, list) else []
    if isinstance(value, list) and len(value) == 2 and (f in WRITES or f in READS):
        steps = [[f, *value]]
    elif f in (*WRITES, *READS) and not any(isinstance(each, list | dict) for each in steps):
        steps = [[f, REGISTER, value]]
    for step in steps:
        if isinstance(step, list) and len(step) == 3 and step[0] in (*WRITES, *READS):
            values = step[2] if isinstance(step[2], list) else [step[2]]
            yield from ((step[0] in WRITES, f"{step[1]}={each}") for each in values if each is not None)


def assemble(drafts: Iterable[Draft], options: Options) -> Assembly:
    """Assemble drafts whose `links` are the values they wrote and whose `parents` are those they read."""
    result = Assembly()
    for group in by_computation(drafts).values():
        seq: Counter[str] = Counter()
        names: list[tuple[str, int]] = []
        wrote: dict[str, list[int]] = {}
        for i, draft in enumerate(group):
            seq[draft.process] += 1
            names.append((draft.process, seq[draft.process]))
            for value in draft.links:
                wrote.setdefault(value, []).append(i)
        rows = []
        for i, draft in enumerate(group):
            writers = [wrote[value][0] for value in draft.parents if len(wrote.get(value, ())) == 1]
            unknown = [value for value in draft.parents if len(wrote.get(value, ())) != 1]
            if unknown:
                draft.attributes[UNKNOWN] = ", ".join(unknown)
            result.facts[UNKNOWN] += len(unknown)
            causes = dict.fromkeys(names[writer] for writer in writers if writer != i)
            rows.append(draft.row(*names[i], causes))
        break_circles(rows, group, result)
        result.rows += rows
    return result


def counts(drafts: list[Draft]) -> dict[str, int | set[str]]:
    return {
        "sessions": {draft.process for draft in drafts},
        "writes": sum(len(draft.links) for draft in drafts),
        "reads": sum(len(draft.parents) for draft in drafts),
    }
