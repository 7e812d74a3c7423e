"""Kernels that match deliveries with messages and sort events topologically; and arrays of runs.

Events come in chain order (by process, then seq); an event's predecessors are the one before it on its
process, its `source` (the send of the message it delivers) and its `causes`. Index -1 means none.
"""

from typing import Any

import numpy as np

from .compiled import compiled

Ints = np.ndarray[Any, np.dtype[Any]]

# The fate of a delivery: exactly one of these; other events have NO_DELIVERY.
NO_DELIVERY, FIRST, REPEATED, MISDELIVERED, NEVER_SENT, FIRST_UNORDERED, SENT_OUTSIDE = range(7)


def offsets_of(counts: Ints) -> Ints:
    """The start of each of the consecutive runs with these lengths, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def members(starts: Ints, lengths: Ints) -> Ints:
    """The members of runs, run after run: run i is starts[i], starts[i] + 1, …, lengths[i] numbers in all."""
    return np.repeat(starts - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


def find(keys: Ints, wanted: Ints) -> Ints:
    """The index of each wanted number among the sorted keys, -1 if it is not among them."""
    if not keys.size:
        return np.full(wanted.size, -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, at, -1)


@compiled
def first_deliveries(deliveries, process, message, send, dest_offsets, slot_dest, slot_delivery, fate):  # type: ignore[no-untyped-def]
    """Fill slot_delivery and fate; deliveries must be in chain order: the first of each process is first."""
    for e in deliveries:
        m = message[e]
        if send[m] < 0:
            fate[e] = NEVER_SENT
            continue
        end = dest_offsets[m + 1]
        slot = dest_offsets[m] + np.searchsorted(slot_dest[dest_offsets[m] : end], process[e])
        if slot == end or slot_dest[slot] != process[e]:
            fate[e] = MISDELIVERED
        elif slot_delivery[slot] >= 0:
            fate[e] = REPEATED
        else:
            fate[e] = FIRST
            slot_delivery[slot] = e


@compiled
def _unmet(e, position, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    """A predecessor of event e on another process that has no position yet; -1 if all have one."""
    if source[e] >= 0 and position[source[e]] < 0:
        return source[e]
    for k in range(cause_offsets[e], cause_offsets[e + 1]):
        if position[causes[k]] < 0:
            return causes[k]
    return -1


@compiled
def linearize(process_offsets, chain_offsets, process, source, cause_offsets, causes):  # type: ignore[no-untyped-def]
    """A topological order, computation by computation, and the position of each event in that order.

    Each process advances until its next event has an unplaced predecessor, and is parked at that predecessor;
    placing the predecessor wakes the process. There is at most one parking per edge, so the cost is linear.
    If there is a cycle, the order is shorter than the events, and the events left over have position -1.
    """
    order = np.empty(process.size, np.int64)
    position = np.full(process.size, -1, np.int64)
    placed = 0
    following = chain_offsets[:-1].copy()
    parked_at = np.full(process.size, -1, np.int64)  # the first process waiting for this event
    parked_next = np.full(following.size, -1, np.int64)
    runnable = np.empty(following.size, np.int64)
    for c in range(process_offsets.size - 1):
        count = 0
        for p in range(process_offsets[c + 1] - 1, process_offsets[c] - 1, -1):
            runnable[count] = p
            count += 1
        while count > 0:
            count -= 1
            p = runnable[count]
            while following[p] < chain_offsets[p + 1]:
                e = following[p]
                unmet = _unmet(e, position, source, cause_offsets, causes)
                if unmet >= 0:
                    parked_next[p] = parked_at[unmet]
                    parked_at[unmet] = p
                    break
                order[placed] = e
                position[e] = placed
                placed += 1
                following[p] = e + 1
                while parked_at[e] >= 0:
                    runnable[count] = parked_at[e]
                    count += 1
                    parked_at[e] = parked_next[parked_at[e]]
    return order[:placed], position


def admissible(
    chain_offsets: Ints, process: Ints, source: Ints, effects: Ints, causes: Ints, blocked: Ints
) -> Ints:
    """Whether each event, in chain order, can be admitted: it is not blocked, and the previous event on its
    process, its source, and the causes of these effects are admitted."""
    stuck = np.flatnonzero(blocked)  # a blocked event gets itself as a predecessor
    effects, causes = np.concatenate([effects, stuck]), np.concatenate([causes, stuck]).astype(np.int64)
    order = np.argsort(effects, kind="stable")
    offsets = offsets_of(np.bincount(effects, minlength=process.size))
    chain_offsets = chain_offsets.astype(np.int64)
    all_chains = np.array([0, chain_offsets.size - 1])
    _, position = linearize(all_chains, chain_offsets, process, source, offsets, causes[order])
    admitted: Ints = position >= 0
    return admitted


def cycle(
    position: Ints, chain_offsets: Ints, process: Ints, source: Ints, cause_offsets: Ints, causes: Ints
) -> list[int]:
    """Events each of which happened before the next, the last of them before the first.

    Every chain with unplaced events is stuck at its first unplaced event, which lacks a predecessor on
    another stuck chain: following these predecessors must lead around a cycle.
    """
    at = int(np.argmax(position < 0))
    seen: dict[int, int] = {}
    path: list[int] = []  # backwards in happened-before
    while True:
        p = int(process[at])
        chain = slice(int(chain_offsets[p]), int(chain_offsets[p + 1]))
        stuck = chain.start + int(np.argmax(position[chain] < 0))
        if p in seen:
            path = path[seen[p] :]
            break
        seen[p] = len(path)
        path += [stuck]
        at = int(_unmet(stuck, position, source, cause_offsets, causes))
        path += [at]
    # Adjacent equal events (the path enters a chain exactly where it is stuck) are one event of the cycle.
    events = [event for i, event in enumerate(path) if event != path[i - 1] or len(path) == 1]
    return events[::-1] or path[:1]
