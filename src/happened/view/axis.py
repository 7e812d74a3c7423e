"""The logical time axis: where events stand from left to right when no clock is trusted.

Happened-before leads from a send to a delivery. An arrival that is recorded before its delivery has no such
edge, and neither has a delivery that is repeated or of an unordered message; yet none of them came before its
message was sent, and a picture in which it stands to the left of the send would say so.
"""

import numpy as np

from ..causality.computation import DELIVER, RECEIVE, Computation
from ..causality.linearization import Ints, linearize
from ..causality.reach import level_rows, levels_of


def logical_axis(c: Computation) -> Ints:
    """The place of every event, 1 or more: beyond those of all that happened before it and, if it is the
    arrival or delivery of a message, beyond that of its send.

    A trace may have a message arrive before something that its send waited for. Where that leads round in a
    circle, happened-before alone decides.
    """
    came = (c.source < 0) & (c.message >= 0) & ((c.kind == RECEIVE) | (c.kind == DELIVER))
    source = c.source.astype(np.int64)
    source[came] = c.send[c.message[came]]
    if np.array_equal(source, c.source):
        return levels_of(c)
    place = c.chain_offsets[c.process] + c.seq - 1  # in the order of chains, which `linearize` takes
    lengths = np.diff(c.cause_offsets)[c.chain]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    picked = np.repeat(c.cause_offsets[:-1][c.chain] - offsets[:-1], lengths) + np.arange(c.causes.size)
    sources = source[c.chain]
    sources = np.where(sources >= 0, place[sources], -1)
    causes = place[c.causes[picked]].astype(np.int64)
    process = c.process[c.chain]
    begins = np.array([0, c.processes], np.int64)
    order, _ = linearize(begins, c.chain_offsets, process, sources, offsets, causes)
    return (
        levels_of(c) if order.size < c.events else _longest(order, process, sources, offsets, causes)[place]
    )


def _longest(order: Ints, process: Ints, source: Ints, cause_offsets: Ints, causes: Ints) -> Ints:
    """The longest chains that end with the events, which `order` puts into a topological order."""
    position = np.empty(order.size, np.int64)
    position[order] = np.arange(order.size)
    own = (source[order] >= 0).astype(np.int64)
    lengths = np.diff(cause_offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(own + lengths)]).astype(np.int64)
    edges = np.empty(offsets[-1], np.int64)
    edges[offsets[:-1][own > 0]] = position[source[order][own > 0]]
    starts = np.cumsum(lengths) - lengths
    within = np.arange(causes.size) - np.repeat(starts, lengths)
    edges[np.repeat(offsets[:-1] + own, lengths) + within] = position[
        causes[np.repeat(cause_offsets[:-1][order], lengths) + within]
    ]
    levels = np.empty(order.size, np.int64)
    level_rows(levels, 0, np.full(int(process.max()) + 1, -1, np.int64), process[order], offsets, edges)
    return levels[position]
