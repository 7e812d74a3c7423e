"""Resolve causes that records name by id, and break cycles among causes.

It is unknown which edge of a cycle is wrong, so all causes among the events of a cycle are left out and
reported; so is a parent that is not among the drafts. The remaining causes are acyclic. Cost: linear in
events and edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .draft import Assembly, Draft, QuarantinedRecord, Row

Edges = Sequence[Sequence[int]]


def circles(predecessors: Edges) -> list[list[int]]:
    """The strongly connected components that contain a cycle (Tarjan 1972, without recursion)."""
    number: list[int] = [0] * len(predecessors)  # in order of discovery, from 1
    low = [0] * len(predecessors)
    on_stack = [False] * len(predecessors)
    stack: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in range(len(predecessors)):
        work = [(root, 0)] if not number[root] else []
        while work:
            v, at = work.pop()
            if at == 0:
                count += 1
                number[v] = low[v] = count
                stack.append(v)
                on_stack[v] = True
            else:
                low[v] = min(low[v], low[predecessors[v][at - 1]])
            for k in range(at, len(predecessors[v])):
                w = predecessors[v][k]
                if not number[w]:
                    work += [(v, k + 1), (w, 0)]
                    break
                if on_stack[w]:
                    low[v] = min(low[v], number[w])
            else:
                if low[v] == number[v]:
                    component = _pop_until(v, stack, on_stack)
                    if len(component) > 1 or v in predecessors[v]:
                        found.append(sorted(component))
    return found


def _pop_until(v: int, stack: list[int], on_stack: list[bool]) -> list[int]:
    component: list[int] = []
    while not component or component[-1] != v:
        component.append(stack.pop())
        on_stack[component[-1]] = False
    return component


def describe(names: Sequence[str]) -> str:
    """The sentence that names the events of a cycle."""
    if len(names) == 1:
        return f"{names[0]} is its own cause"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{shown} are causes of one another, in a circle"


def break_circles(rows: Sequence[Row], drafts: Sequence[Draft], into: Assembly) -> None:
    """Leave out the causes, and then the message edges, that close a cycle with process order.

    rows[i] was made from drafts[i].
    """
    for circle in circles(_predecessors(rows)):
        members = {_name(rows[i]): i for i in circle}
        for i in circle:
            kept = [c for c in rows[i]["causes"] or () if (c["process"], c["seq"]) not in members]
            if len(kept) < len(rows[i]["causes"] or ()):
                rows[i]["causes"] = kept or None
                into.quarantined.append(_without(rows, drafts, circle, i, "causes"))
    for circle in circles(_predecessors(rows)):
        sent = {rows[i]["message"] for i in circle if rows[i]["kind"] == "send"}
        for i in circle:
            if rows[i]["kind"] in ("receive", "deliver") and rows[i]["message"] in sent:
                into.quarantined.append(_without(rows, drafts, circle, i, "message"))
                attributes = (rows[i]["attributes"] or {}) | {"circular_message": rows[i]["message"]}
                rows[i] |= {"kind": "internal", "message": None, "attributes": attributes}


def _without(
    rows: Sequence[Row], drafts: Sequence[Draft], circle: list[int], i: int, field: str
) -> QuarantinedRecord:
    names = ["#".join(map(str, _name(rows[j]))) for j in circle]
    return drafts[i].quarantined(field, f"{describe(names)}; imported without")


def _name(row: Row) -> tuple[str, int]:
    return row["process"], row["seq"]


def _predecessors(rows: Sequence[Row]) -> Edges:
    """Process order, message edges and causes, of the rows of one computation."""
    place = {_name(row): i for i, row in enumerate(rows)}
    sends = {row["message"]: i for i, row in enumerate(rows) if row["kind"] == "send"}
    edges: list[list[int]] = []
    for row in rows:
        process, seq = _name(row)
        before = [place[c["process"], c["seq"]] for c in row["causes"] or ()]
        if seq > 1:
            before.append(place[process, seq - 1])
        if row["kind"] in ("receive", "deliver") and row["message"] in sends:
            before.append(sends[row["message"]])
        edges.append(before)
    return edges


@dataclass(slots=True)
class Parentage:
    parents: list[list[int]]  # parents of each draft: distinct, in recorded order, links last
    linked: list[set[int]] = field(default_factory=list)  # for each draft, the parents that are links only
    order: list[int] = field(default_factory=list)  # causes before effects; otherwise as recorded
    missing: int = 0
    cyclic: int = 0  # number of events on a cycle
    quarantined: list[QuarantinedRecord] = field(default_factory=list)


def trace_parents(drafts: Sequence[Draft], find: Callable[[Draft, str], int | None]) -> Parentage:
    """The causes of each draft; `find` resolves an id that a draft names to a draft."""
    result = Parentage([])
    for draft in drafts:
        found: dict[int, str] = {}
        named = [("parents", id) for id in draft.parents] + [("links", id) for id in draft.links]
        for name, id in named:
            parent = find(draft, id)
            if parent is None:
                result.missing += 1
                reason = f"{id} is not among the records read; imported without"
                result.quarantined.append(draft.quarantined(name, reason))
            else:
                found.setdefault(parent, name)
        result.parents.append(list(found))
        result.linked.append({parent for parent, name in found.items() if name == "links"})
    if all(parent < i for i, of in enumerate(result.parents) for parent in of):
        result.order = [*range(len(drafts))]
        return result
    for circle in circles(result.parents):
        members = set(circle)
        reason = f"{describe([drafts[i].id or '' for i in circle])}; imported without"
        result.cyclic += len(circle)
        for i in circle:
            result.parents[i] = [parent for parent in result.parents[i] if parent not in members]
            result.quarantined.append(drafts[i].quarantined("parents", reason))
    result.order = _causes_first(result.parents)
    return result


def _causes_first(parents: list[list[int]]) -> list[int]:
    """A depth-first order over parents; a file that is already in causal order keeps its order."""
    placed = [False] * len(parents)
    order: list[int] = []
    for root in range(len(parents)):
        stack = [root]
        while stack:
            i = stack[-1]
            unplaced = [parent for parent in parents[i] if not placed[parent]]
            if placed[i] or not unplaced:
                stack.pop()
                if not placed[i]:
                    placed[i] = True
                    order.append(i)
            else:
                stack += reversed(unplaced)
    return order
