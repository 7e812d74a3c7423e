"""Cut a computation into epochs: any prefix of a topological order is a consistent cut."""

import numpy as np

from happened.causality.epochs import Epoch


def cuts(computation, dice, most=6):
    """Positions in the computation's own order, the ends included; epochs may be empty."""
    inner = sorted(dice.randint(0, computation.events) for _ in range(dice.randint(0, most)))
    return [0, *inner, computation.events]


def epoch(c, start, end):
    """The events start:end of the computation's order as an epoch, and their indices there."""
    events = sorted(range(start, end), key=lambda e: (c.process[e], c.seq[e]))
    edges = [predecessors(c, e) for e in events]
    flat = [u for of in edges for u in of]
    return (
        Epoch(
            c.processes,
            c.process[events].astype(np.int64),
            c.seq[events].astype(np.int64),
            np.concatenate([[0], np.cumsum([len(of) for of in edges])]).astype(np.int64),
            c.process[flat].astype(np.int64),
            c.seq[flat].astype(np.int64),
        ),
        events,
    )


def predecessors(c, e):
    causes = c.causes[c.cause_offsets[e] : c.cause_offsets[e + 1]]
    return [int(u) for u in (c.source[e], *causes) if u >= 0]


def kept(c, cut):
    """The (process, seq) of events before the cut that an event after it follows directly."""
    events = sorted({u for e in range(cut, c.events) for u in predecessors(c, e) if u < cut})
    return c.process[events].astype(np.int64), c.seq[events].astype(np.int64)
