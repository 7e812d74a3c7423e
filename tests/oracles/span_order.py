"""What happened before what among spans, from the sentences of docs/spans.md taken one by one.

A relation on (span, "start") and (span, "end"), closed by brute force. It knows no lanes, messages, sweeps or
reductions. Spans are dicts: name, at (instance), kind, start, end, parent, links, task, key, and half:
whether it is the server's half of the span that is its parent.
"""

from itertools import product


def order_of(spans):
    """The set of pairs (earlier, later)."""
    by_name = {span["name"]: span for span in spans}
    pairs = {((span["name"], "start"), (span["name"], "end")) for span in spans}
    for span in spans:
        parent = by_name.get(span.get("parent"))
        if parent is not None:
            pairs.add(((parent["name"], "start"), (span["name"], "start")))
            if waits_for(parent, span):
                pairs.add(((span["name"], "end"), (parent["name"], "end")))
        for link in span.get("links", ()):
            pairs.add(((link, "start"), (span["name"], "start")))
    recorded = closure(pairs)
    return closure(pairs | without_contradictions(recorded, by_clocks(spans, by_name)))


def timed(span):
    return span.get("start") is not None and span.get("end") is not None and span["start"] <= span["end"]


def is_queued(parent, child):
    """Whether a message through a queue is between them."""
    if parent["at"] == child["at"]:
        return parent.get("kind") == "producer" and child.get("kind") == "consumer"
    return parent.get("kind") == "producer" or child.get("kind") == "consumer"


def waits_for(parent, child):
    if is_queued(parent, child) or not timed(parent) or not timed(child):
        return False
    if parent["at"] == child["at"]:
        return child["end"] <= parent["end"]
    return child["end"] - child["start"] <= parent["end"] - parent["start"]


def is_call(parent, child):
    kinds = (parent.get("kind"), child.get("kind"))
    return parent["at"] != child["at"] or kinds == ("client", "server") or child.get("half", False)


def by_clocks(spans, by_name):
    """Pairs that only a clock tells: one after the other for one parent or in one task."""
    pairs = set()
    for a, b in product(spans, spans):
        if not timed(a) or b.get("start") is None or a["end"] >= b["start"]:
            continue
        same_task = a.get("task") is not None and (a["at"], a["task"]) == (b["at"], b.get("task"))
        siblings = a.get("parent") == b.get("parent") and is_step(a, by_name) and is_step(b, by_name)
        if same_task or siblings:
            pairs.add(((a["name"], "end"), (b["name"], "start")))
    return pairs


def is_step(span, by_name):
    """Whether its parent's own lane ran it, and waited for it."""
    parent = by_name.get(span.get("parent"))
    if parent is None or is_call(parent, span) or is_queued(parent, span):
        return False
    return waits_for(parent, span)


def without_contradictions(recorded, pairs):
    """Those of the pairs that are on no cycle with the others and what is recorded."""
    whole = closure(recorded | pairs)
    return {(a, b) for a, b in pairs if (b, a) not in whole}


def closure(pairs):
    after = {}
    for a, b in pairs:
        after.setdefault(a, set()).add(b)
    grown = True
    while grown:
        grown = False
        for reached in after.values():
            more = set().union(*(after.get(b, ()) for b in reached)) - reached
            if more:
                reached |= more
                grown = True
    return {(a, b) for a, reached in after.items() for b in reached}
