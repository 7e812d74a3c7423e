"""For each destination, the sends inside a cut that no later send to it inside the cut follows.

A cut is a count of events per process, closed under happened-before: the vector of an event is the cut
of its past and itself. Of each sender, only its last message to x within the cut can be such a maximal
send, so per destination there is one candidate per sender, and only those not delivered within the cut are
compared with the others. Cost per cut: processes² + undelivered candidates x processes.
"""

from typing import NamedTuple

import numpy as np

from .compiled import compiled
from .computation import SEND, Computation
from .linearization import Ints

NEVER = np.iinfo(np.int32).max


class Sends(NamedTuple):
    """All that a cut needs to know of a computation. Index -1 means none."""

    vectors: Ints
    first: Ints  # of each process, the first of its computation
    chain_offsets: Ints
    chain: Ints
    newest: Ints  # of each event, the last row of `latest` made by its process by then
    latest: Ints  # sends x width: the slot of the last message to each, that send included
    slot_send: Ints
    slot_sender: Ints  # its entry in vectors
    slot_dest: Ints  # likewise
    slot_seq: Ints  # of its send
    slot_done: Ints  # the seq of its delivery, or NEVER


@compiled
def last_sends(process, processes, sends, message, dest_offsets, slot_dest, width):  # type: ignore[no-untyped-def]
    """The columns `latest` and `newest` of Sends; sends are the send events in topological order."""
    latest = np.full((sends.size, width), -1, np.int32)
    newest = np.full(process.size, -1, np.int32)
    current = np.full(processes, -1, np.int32)
    row = 0
    for e in range(process.size):
        p = process[e]
        if row < sends.size and sends[row] == e:
            if current[p] >= 0:
                latest[row] = latest[current[p]]
            m = message[e]
            for slot in range(dest_offsets[m], dest_offsets[m + 1]):
                latest[row, slot_dest[slot]] = slot
            current[p] = row
            row += 1
        newest[e] = current[p]
    return latest, newest


def index_sends(c: Computation, vectors: Ints) -> Sends:
    sends = np.flatnonzero(c.kind == SEND)
    slot_dest = c.slot_dest - c.first[c.slot_dest]
    latest, newest = last_sends(c.process, c.processes, sends, c.message, c.dest_offsets, slot_dest, c.width)
    sender = c.process[c.slot_send]
    done = np.where(c.slot_delivery >= 0, c.seq[c.slot_delivery], NEVER) if c.events else c.slot_delivery
    return Sends(
        vectors,
        c.first,
        c.chain_offsets,
        c.chain,
        newest,
        latest,
        c.slot_send,
        sender - c.first[sender],
        slot_dest,
        c.seq[c.slot_send],
        done.astype(np.int32),
    )


@compiled
def units_of_cut(cut, first_process, s, units):  # type: ignore[no-untyped-def]
    """Write the maximal slots not delivered within the cut to units, by destination; returns how many.

    Entry k of the cut is about process first_process + k.
    """
    n = cut.size
    rows = np.empty(n, np.int64)
    sends = np.empty(n, np.int64)
    senders = 0
    for p in range(n):
        if cut[p] > 0:
            row = s.newest[s.chain[s.chain_offsets[first_process + p] + cut[p] - 1]]
            if row >= 0:
                rows[senders] = row
                senders += 1
    count = 0
    for x in range(n):
        first, candidates = count, 0
        for r in range(senders):
            slot = s.latest[rows[r], x]
            if slot >= 0:
                sends[candidates] = s.slot_send[slot]
                candidates += 1
                if s.slot_done[slot] > cut[x]:
                    units[count] = slot
                    count += 1
        kept = first
        for k in range(first, count):
            if not _is_covered(units[k], sends[:candidates], s):
                units[kept] = units[k]
                kept += 1
        count = kept
    return count


@compiled
def _is_covered(slot, sends, s):  # type: ignore[no-untyped-def]
    """Whether the slot's send happened before another of these sends."""
    for send in sends:
        if send != s.slot_send[slot] and s.vectors[send, s.slot_sender[slot]] >= s.slot_seq[slot]:
            return True
    return False


@compiled
def _units_before(e, process, s, units):  # type: ignore[no-untyped-def]
    """The units necessary after everything that happened before e, e itself left out."""
    first = s.first[process]
    cut = s.vectors[e].copy()
    cut[process - first] -= 1
    return units_of_cut(cut, first, s, units)


@compiled
def count_edge_units(message_send, process, dest_offsets, s):  # type: ignore[no-untyped-def]
    """How many units each slot's edge must carry."""
    n = s.vectors.shape[1]
    units = np.empty(n * n, np.int64)
    slot_dest = s.slot_dest
    counts = np.zeros(slot_dest.size, np.int64)
    about = np.zeros(n, np.int64)
    for m in range(message_send.size):
        if message_send[m] < 0:
            continue
        found = _units_before(message_send[m], process[message_send[m]], s, units)
        about[:] = 0
        for k in range(found):
            about[slot_dest[units[k]]] += 1
        common = found
        for slot in range(dest_offsets[m], dest_offsets[m + 1]):
            common -= about[slot_dest[slot]]
        for slot in range(dest_offsets[m], dest_offsets[m + 1]):
            counts[slot] = common + about[slot_dest[slot]]
    return counts


@compiled
def fill_edge_units(message_send, process, dest_offsets, s, offsets):  # type: ignore[no-untyped-def]
    """The units of each slot's edge, at offsets[slot]:offsets[slot + 1]."""
    n = s.vectors.shape[1]
    units = np.empty(n * n, np.int64)
    slot_dest = s.slot_dest
    carried = np.empty(offsets[-1], np.int64)
    addressed = np.zeros(n, np.bool_)
    for m in range(message_send.size):
        if message_send[m] < 0:
            continue
        found = _units_before(message_send[m], process[message_send[m]], s, units)
        edges = range(dest_offsets[m], dest_offsets[m + 1])
        for slot in edges:
            addressed[slot_dest[slot]] = True
        for slot in edges:
            at = offsets[slot]
            for k in range(found):
                x = slot_dest[units[k]]
                if x == slot_dest[slot] or not addressed[x]:
                    carried[at] = units[k]
                    at += 1
        for slot in edges:
            addressed[slot_dest[slot]] = False
    return carried
