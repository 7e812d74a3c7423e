"""Which request traces form one computation: traces that name each other's spans or share a channel.

A channel (see span_drafts.py) keeps order across the traces whose messages it carries, so these traces are
judged together. A channel with more than MOST_JOINED traces would make a computation too wide to be stamped:
its order is kept only within each trace, and the summary counts it. On Spark, spark/draft_frames.py joins
traces from the values that `TraceJoins` collected there.
"""

from collections.abc import Iterable, Sequence

from .draft import Draft

MOST_JOINED = 1000


class TraceJoins:
    """Evidence for joins, collected draft by draft.

    named     span id -> the traces other than its own that name it
    carried   channel -> the traces whose messages it carries, up to MOST_JOINED
    """

    def __init__(self) -> None:
        self.named: dict[str, set[str]] = {}
        self.carried: dict[str, set[str]] = {}

    def add(self, draft: Draft) -> None:
        for id in (*draft.parents, *draft.links):
            if id.rpartition(":")[0] != draft.computation:
                self.named.setdefault(id, set()).add(draft.computation)
        if draft.channel is not None:
            traces = self.carried.setdefault(draft.channel, set())
            if len(traces) <= MOST_JOINED:
                traces.add(draft.computation)

    @property
    def too_wide(self) -> int:
        return sum(len(traces) > MOST_JOINED for traces in self.carried.values())

    def leaders(self, drafts: Iterable[Draft]) -> dict[str, str]:
        """For each trace joined with others, the smallest id in its group. `drafts` are all drafts that were
        added; they are read only if some trace names another trace's spans."""
        groups = [traces for traces in self.carried.values() if 1 < len(traces) <= MOST_JOINED]
        if self.named:
            groups += [
                {*self.named[draft.id], draft.computation}
                for draft in drafts
                if not draft.absent and draft.id in self.named
            ]
        return leaders_of(groups)


def leaders_of(groups: Sequence[set[str]]) -> dict[str, str]:
    """For each name in a group with others, directly or through further groups, the smallest name of the
    joined groups; smallest names themselves are left out."""
    leader = {trace: trace for group in groups for trace in group}

    def find(trace: str) -> str:
        while leader[trace] != trace:
            leader[trace] = leader[leader[trace]]
            trace = leader[trace]
        return trace

    for group in groups:
        first = min(group)
        for trace in group:
            a, b = find(first), find(trace)
            leader[max(a, b)] = min(a, b)
    return {trace: found for trace in leader if (found := find(trace)) != trace}
