"""Causes of records that name them by id, and the names that lead nowhere or in a cycle.

Events are indices of drafts. A parent that is not among the drafts is left out and reported; so are all
causes within a cycle. What remains is acyclic, and `order` lists it causes first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .cycles import circles, describe
from .draft import Draft, QuarantinedRecord

Find = Callable[[Draft, str], int | None]
"""The draft an id means to the one that names it, or None."""


@dataclass(slots=True)
class Parentage:
    parents: list[list[int]]  # of each draft: distinct, in the order recorded, links last
    linked: list[set[int]] = field(default_factory=list)  # of each draft: those of them that are links only
    order: list[int] = field(default_factory=list)  # causes before effects; otherwise as recorded
    missing: int = 0
    cyclic: int = 0  # events on a circle
    quarantined: list[QuarantinedRecord] = field(default_factory=list)


def trace_parents(drafts: Sequence[Draft], find: Find) -> Parentage:
    result = Parentage([])
    for draft in drafts:
        found: dict[int, str] = {}
        for name, ids in (("parents", draft.parents), *((("links", draft.links),) if draft.links else ())):
            for id in ids:
                parent = find(draft, id)
                if parent is None:
                    result.missing += 1
                    reason = f"{id} is not among the records read; imported without"
                    result.quarantined.append(draft.quarantined(name, reason))
                else:
                    found.setdefault(parent, name)
        result.parents.append(list(found))
        links = {parent for parent, name in found.items() if name == "links"} if draft.links else set()
        result.linked.append(links)
    if all(parent < i for i, of in enumerate(result.parents) for parent in of):
        result.order = [*range(len(drafts))]
        return result
    _leave_out_circles(drafts, result)
    result.order = _causes_first(result.parents)
    return result


def _leave_out_circles(drafts: Sequence[Draft], result: Parentage) -> None:
    for circle in circles(result.parents):
        members = set(circle)
        reason = f"{describe([drafts[i].id or '' for i in circle])}; imported without"
        result.cyclic += len(circle)
        for i in circle:
            result.parents[i] = [parent for parent in result.parents[i] if parent not in members]
            result.quarantined.append(drafts[i].quarantined("parents", reason))


def _causes_first(parents: list[list[int]]) -> list[int]:
    """Depth-first over parents, so that a file that is in such an order already stays in it."""
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
