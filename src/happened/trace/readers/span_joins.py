"""Which request traces are one computation: those that name spans of one another or share a channel.

A channel (see span_drafts.py) is in order across the traces whose messages it carries, so that these are
judged together. One that carries more than MOST_JOINED traces would make a computation too wide to be
stamped: its order is kept within each trace only, and the summary counts it. spark/draft_frames.py joins
on Spark what `TraceJoins` collected there.
"""

from collections.abc import Iterable, Sequence

from .draft import Draft

MOST_JOINED = 1000


class TraceJoins:
    """What is seen of drafts one by one.

    named     by id of a span, the traces other than its own in which it is named
    carried   by channel, the traces whose messages it carries, as far as there are MOST_JOINED
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
        """Of each trace that belongs to others, the smallest id among them. `drafts` are all that were added;
        they are looked at only if some trace names another's spans."""
        groups = [traces for traces in self.carried.values() if 1 < len(traces) <= MOST_JOINED]
        if self.named:
            groups += [
                {*self.named[draft.id], draft.computation}
                for draft in drafts
                if not draft.absent and draft.id in self.named
            ]
        return leaders_of(groups)


def leaders_of(groups: Sequence[set[str]]) -> dict[str, str]:
    """Of each name that is in a group with others, directly or through further groups, the smallest of them;
    without those that are themselves the smallest."""
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
