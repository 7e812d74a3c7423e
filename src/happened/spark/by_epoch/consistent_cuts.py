"""Consistent cuts: where one epoch ends and the next begins.

A cut is a number of events per process; cuts[k] is where epoch k ends. They are proposed where a corrected
time, or failing times the fraction of each process's events, reaches a value; and then made consistent:
an event that would precede its cause moves, with all that follows it on its process, to a later epoch,
until no edge leads backwards. Each round looks at every edge once, in parallel; what reaches the driver is
a table of processes x epochs. A message that goes backwards over few epochs is mended in few rounds.
"""

from collections.abc import Callable

import numpy as np

from ...causality.linearization import Ints


def propose(fine_first: Ints, fine_count: Ints, counts: Ints, epochs: int) -> Ints:
    """Cuts of about equal size, from the events of each process in each of many fine slots of time.

    fine_first[p, f]   the smallest seq of p in slot f (or a large number), fine_count[f] the events in it
    counts[p]          how many events p has
    """
    after = np.minimum.accumulate(fine_first[:, ::-1], axis=1)[:, ::-1]  # smallest seq from slot f on
    filled = np.cumsum(fine_count)
    wanted = filled[-1] * np.arange(1, epochs) / epochs
    ends = np.searchsorted(filled, wanted) + 1  # first slot beyond each cut
    padded = np.concatenate([after, np.full((len(counts), 1), np.iinfo(np.int64).max)], axis=1)
    cuts = np.minimum(padded[:, np.minimum(ends, after.shape[1])].T - 1, counts)
    cuts = np.unique(np.concatenate([cuts, counts[None]]), axis=0)
    return cuts[np.argsort(cuts.sum(axis=1), kind="stable")]


def epoch_of(cuts: Ints, process: Ints, seq: Ints) -> Ints:
    """The epoch of each event: the first whose cut includes it."""
    epoch = np.empty(len(process), np.int64)
    order = np.argsort(process, kind="stable")
    at = np.searchsorted(process[order], np.arange(cuts.shape[1] + 1))
    for p in range(cuts.shape[1]):
        of = order[at[p] : at[p + 1]]
        epoch[of] = np.searchsorted(cuts[:, p], seq[of])
    return epoch


def backward(cuts: Ints, source: Ints, source_seq: Ints, target: Ints, target_seq: Ints) -> Ints:
    """Cuts no larger than these, in which none of the edges that lead backwards here is cut wrongly.

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


def make_consistent(cuts: Ints, look: Callable[[Ints], list[Ints]]) -> tuple[Ints, int]:
    """The largest consistent cuts within these, and how many rounds it took.

    `look` gives the bounds that each share of the edges puts on the cuts. Every round but the last moves
    at least one cut back by an event, so it ends; a cycle ends too, with both its events in one epoch.
    """
    rounds = 0
    while True:
        rounds += 1
        bound = np.minimum.reduce([cuts, *look(cuts)])
        if np.array_equal(bound, cuts):
            break
        cuts = bound
    kept = np.unique(cuts, axis=0)
    kept = kept[np.argsort(kept.sum(axis=1), kind="stable")]
    return kept[kept.sum(axis=1) > 0], rounds
