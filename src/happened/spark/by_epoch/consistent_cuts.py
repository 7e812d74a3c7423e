"""Consistent cuts: where one epoch ends and the next begins.

A cut is a number of events per process; cuts[k] is where epoch k ends. Cuts are proposed where a corrected
time reaches a value, or without times where a fraction of each process's events is reached. They are then
made consistent: an event that would precede its cause moves, with all that follows it on its process, to a
later epoch, until no edge leads backwards. Each round looks at every edge once, in parallel; what reaches the
driver is a table of processes x epochs. A message that goes backwards over few epochs is mended in few
rounds. Every round but the last moves at least one cut back by an event, so it ends; a cycle ends too, with
both its events in one epoch.
"""

import numpy as np

from ...causality.linearization import Ints

MOST_IN_16_BITS = 1 << 16


def by_share(counts: Ints, epochs: int) -> Ints:
    """Cuts after the same fraction of each process's events."""
    shares = [counts * k // epochs for k in range(1, epochs)]
    return _distinct(np.array([*shares, counts], np.int64))


def by_time(process: Ints, seq: Ints, time: Ints, counts: Ints, epochs: int) -> Ints:
    """Cuts of about equal size at the same times everywhere, from a sample of the events with their times.

    Between two events of the sample, events are assumed to be evenly spaced; a clock that goes back is
    treated as standing still.
    """
    order = np.lexsort((seq, process))
    process, seq, time = process[order], seq[order], time[order]
    at = np.searchsorted(process, np.arange(len(counts) + 1))
    ends = np.quantile(time, np.arange(1, epochs) / epochs) if time.size else np.empty(0)
    cuts = np.zeros((len(ends) + 1, len(counts)), np.int64)
    cuts[-1] = counts
    for p in np.flatnonzero(np.diff(at)):
        of = slice(at[p], at[p + 1])
        shown = np.maximum.accumulate(time[of]).astype(float)
        # Of events at one time the last counts: none of them comes after the cut.
        last = np.append(np.diff(shown) != 0, True)
        before = np.interp(ends, shown[last], seq[of][last], left=0)
        cuts[:-1, p] = np.minimum(np.maximum.accumulate(before.astype(np.int64)), counts[p])
    return _distinct(cuts)


def _distinct(cuts: Ints) -> Ints:
    cuts = np.unique(cuts, axis=0)
    ordered: Ints = cuts[np.argsort(cuts.sum(axis=1), kind="stable")]
    return ordered


def epoch_of(cuts: Ints, process: Ints, seq: Ints) -> Ints:
    """The epoch of each event: the first whose cut includes it."""
    epoch = np.empty(len(process), np.int64)
    few = (
        cuts.shape[1] <= MOST_IN_16_BITS
    )  # numbers of 16 bits are sorted by their digits, several times faster
    order = np.argsort(process.astype(np.uint16) if few else process, kind="stable")
    at = np.searchsorted(process[order], np.arange(cuts.shape[1] + 1))
    for p in range(cuts.shape[1]):
        of = order[at[p] : at[p + 1]]
        epoch[of] = np.searchsorted(cuts[:, p], seq[of])
    return epoch


def backward(cuts: Ints, source: Ints, source_seq: Ints, target: Ints, target_seq: Ints) -> Ints:
    """Cuts no larger than these, such that none of the given backward edges is cut wrongly.

    An edge from epoch a to an earlier epoch b: the cuts b, …, a - 1 must end before its target.
    """
    from_epoch = epoch_of(cuts, source, source_seq)
    to_epoch = epoch_of(cuts, target, target_seq)
    wrong = np.flatnonzero(from_epoch > to_epoch)
    bound = cuts.copy()
    if wrong.size:
        lengths = (from_epoch - to_epoch)[wrong]
        edge = np.repeat(wrong, lengths)
        start = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        k = np.repeat(to_epoch[wrong] - start, lengths) + np.arange(edge.size)
        np.minimum.at(bound, (k, target[edge]), target_seq[edge] - 1)
    return bound


def settled(cuts: Ints) -> Ints:
    """Consistent cuts without those that end an empty epoch."""
    kept: Ints = _distinct(cuts)
    held: Ints = kept[kept.sum(axis=1) > 0]
    return held
