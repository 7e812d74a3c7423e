"""Total order: no two processes deliver two messages in opposite orders.

For each pair of processes, walk the deliveries of one and remember which of the common messages so far
comes last at the other: a later delivery that comes before it there is a disagreement.
Cost: deliveries x processes.
"""

from typing import Any

import numpy as np

from .compiled import compiled
from .computation import Computation
from .linearization import Ints
from .verdict import Disagreement, Verdict


@compiled
def disagreements(message, dest_ends, first, chosen, messages, limit):  # type: ignore[no-untyped-def]
    """Whether two processes share two messages, how many deliveries disagree, and the first `limit` pairs.

    message lists what each process delivered, in order; process p's deliveries end at dest_ends[p]. Only
    the processes from first[q] on share anything with q. Each q `chosen` is compared with those before it.
    A pair is two positions in it, both of the process with the smaller index: the other one delivered
    the second message first.
    """
    witnesses = np.empty((limit, 3), np.int64)
    comparable = False
    count = 0
    place = np.full(messages, -1, np.int64)  # of each message in q's order
    for q in chosen:
        q_start = dest_ends[q - 1] if q > 0 else 0
        for d in range(q_start, dest_ends[q]):
            place[message[d]] = d
        for p in range(first[q], q):
            newest = -1
            for d in range(dest_ends[p - 1] if p > 0 else 0, dest_ends[p]):
                there = place[message[d]]
                if there < 0:
                    continue
                if newest >= 0:
                    comparable = True
                if newest >= 0 and there < place[message[newest]]:
                    if count < limit:
                        witnesses[count, 0] = newest
                        witnesses[count, 1] = d
                        witnesses[count, 2] = q
                    count += 1
                else:
                    newest = d
        for d in range(q_start, dest_ends[q]):
            place[message[d]] = -1
    return comparable, count, witnesses[: min(count, limit)]


def total_order(c: Computation, limit: int) -> Verdict:
    """Total order of one computation, or of a union."""
    slots = np.flatnonzero(c.slot_delivery >= 0)
    judged = slots.size
    slots = slots[np.diff(c.dest_offsets)[c.slot_message[slots]] > 1]
    dest = c.slot_dest[slots]
    order = np.lexsort((c.slot_delivery[slots], dest))
    slots = slots[order]
    dest_ends = np.cumsum(np.bincount(dest, minlength=c.processes))
    everyone = np.arange(c.processes)
    comparable, count, pairs = disagreements(
        c.slot_message[slots].astype(np.int64), dest_ends, c.first, everyone, c.send.size, max(limit, 0)
    )
    witnesses = tuple(_disagreement(c, slots, *pair) for pair in pairs)
    return Verdict("total", count == 0 if comparable else None, judged, int(count), witnesses)


def _disagreement(c: Computation, slots: Ints, first: Any, second: Any, other: Any) -> Disagreement:
    messages = c.slot_message[slots[[first, second]]]
    one = c.slot_delivery[slots[[first, second]]]
    there = [_delivery_at(c, int(m), int(other)) for m in messages]
    return Disagreement(
        c.computation_names[c.owner[other]],
        (c.message_name(messages[0]), c.message_name(messages[1])),
        (c.event(one[0]), c.event(one[1])),
        (c.event(there[1]), c.event(there[0])),
    )


def _delivery_at(c: Computation, message: int, process: int) -> int:
    start, end = c.dest_offsets[message : message + 2]
    return int(c.slot_delivery[start + np.searchsorted(c.slot_dest[start:end], process)])
