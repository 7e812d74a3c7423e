"""Which request traces are one computation: those that name spans of one another or share a channel.

A channel (see span_drafts.py) is in order across the traces whose messages it carries, so that these are
judged together. One that carries more than MOST_JOINED traces would make a computation too wide to be
stamped: its order is kept within each trace only, and the summary counts it. spark/linked_traces.py does
the same on Spark.
"""

from collections import Counter
from collections.abc import Sequence

from .draft import Draft

MOST_JOINED = 1000


def join_traces(spans: Sequence[Draft]) -> Counter[str]:
    """Set the computation of all traces that belong together to the smallest of their ids."""
    trace_of = {span.id: span.computation for span in spans}
    leader = {span.computation: span.computation for span in spans}

    def find(trace: str) -> str:
        while leader[trace] != trace:
            leader[trace] = leader[leader[trace]]
            trace = leader[trace]
        return trace

    def join(a: str, b: str) -> None:
        a, b = find(a), find(b)
        leader[max(a, b)] = min(a, b)

    carried: dict[str, set[str]] = {}
    for span in spans:
        for id in (*span.parents, *span.links):
            join(span.computation, trace_of.get(id, span.computation))
        if span.channel is not None:
            carried.setdefault(span.channel, set()).add(span.computation)
    for traces in carried.values():
        if len(traces) <= MOST_JOINED:
            first = min(traces)
            for trace in traces:
                join(first, trace)
    for span in spans:
        span.computation = find(span.computation)
    return Counter(channels_not_joined=sum(len(traces) > MOST_JOINED for traces in carried.values()))
