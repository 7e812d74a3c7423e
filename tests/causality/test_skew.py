"""Offsets and drifts of clocks that really have them."""

import numpy as np
import pytest

from happened.causality.analysis import analyse
from happened.causality.skew import WINDOWS, correct, estimate, tightest, window_of
from happened.trace.writer import table_from_rows

MS = 1_000_000


def conversation(dice, n, edges, *, offsets, drifts, one_way=False):
    """Messages over ten minutes with 1 to 3 ms of delay, told on clocks that are ahead and drift."""
    sent = np.sort(dice.integers(0, 600_000 * MS, edges))
    given = sent + dice.integers(1 * MS, 3 * MS, edges)
    source = dice.integers(0, n, edges)
    target = (source + dice.integers(1, n, edges)) % n
    if one_way:
        source, target = np.minimum(source, target), np.maximum(source, target)

    def told(process, time):
        return time + offsets[process] + np.rint(drifts[process] * time).astype(np.int64)

    here, there = told(source, sent), told(target, given)
    return source, target, here - here.min(), there - here


@pytest.mark.parametrize("one_way", [False, True])
def test_drifting_clocks_are_put_right(seed, one_way):
    dice = np.random.default_rng(seed)
    n, edges = 6, 20_000
    offsets = dice.integers(-50 * MS, 50 * MS, n)
    drifts = dice.uniform(-1e-4, 1e-4, n)  # 100 ppm: 60 ms in ten minutes
    source, target, sent, gap = conversation(dice, n, edges, offsets=offsets, drifts=drifts, one_way=one_way)
    owner = np.zeros(n, np.int64)
    by_offsets = correct(owner, *tightest(source, target, gap))
    skew = estimate(owner, source, target, sent, gap)
    left = gap - skew.ahead(target, sent + gap) + skew.ahead(source, sent)
    backwards = (gap - by_offsets.offsets[target] + by_offsets.offsets[source] < 0).sum()
    if one_way:  # nothing forces clocks that only receive to be early
        assert (left < 0).sum() <= (gap < 0).sum()
        return
    assert not by_offsets.feasible.any()
    assert backwards > 100
    assert (left < 0).sum() < backwards / 20
    assert np.abs((skew.drifts - skew.drifts.mean()) - (drifts - drifts.mean())).max() < 5e-6


def test_without_drift_offsets_alone_explain_the_times(seed):
    dice = np.random.default_rng(seed)
    offsets = dice.integers(-50 * MS, 50 * MS, 6)
    source, target, sent, gap = conversation(dice, 6, 2000, offsets=offsets, drifts=np.zeros(6))
    assert (gap < 0).sum() > 100
    skew = estimate(np.zeros(6, np.int64), source, target, sent, gap)
    assert skew.feasible.all()
    assert (skew.drifts == 0).all()
    assert (gap - skew.offsets[target] + skew.offsets[source] >= 0).all()


def test_computations_of_a_union_do_not_touch_each_other(seed):
    """One contradicts itself, the other does not."""
    source, target = np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])
    gap = np.array([-5, 3, -5, 7])
    owner = np.array([0, 0, 1, 1])
    skew = correct(owner, source, target, gap)
    assert skew.feasible.tolist() == [False, False, True, True]
    alone = correct(np.zeros(2, np.int64), source[:2], target[:2], gap[:2])
    assert skew.offsets[:2].tolist() == alone.offsets.tolist()


@pytest.mark.parametrize("last", [0, 1, WINDOWS - 1, WINDOWS, 1000, 2**62 - 1, 2**62, 2**63 - 1])
def test_windows_part_all_times_that_64_bits_hold(last):
    """In order, none beyond the last, and of equal width as far as whole numbers allow."""
    sent = np.array([last * k // 64 for k in range(65)], np.int64)
    windows = window_of(sent, last)
    assert windows[0] == 0
    assert (np.diff(windows) >= 0).all()
    assert windows.max() <= WINDOWS - 1
    if last >= 1000:
        assert np.unique(windows).tolist() == list(range(WINDOWS))
        assert np.bincount(windows).max() <= 2 * 64 // WINDOWS


def test_lanes_of_one_process_have_one_clock():
    """The request and the answer of a call on different lanes bound one offset; other names are other
    clocks.
    """

    def event(process, seq, time, kind, message, *to):
        named = {"process": process, "seq": seq, "time": time, "kind": kind, "message": message}
        return named | ({"to": list(to)} if kind == "send" else {})

    rows = [
        event("a", 1, 1000, "send", "request", "b~[q/1]"),
        event("b~[q/1]", 1, 400, "deliver", "request"),
        event("b~2", 1, 450, "send", "answer", "a~2"),
        event("a~2", 1, 1100, "deliver", "answer"),
        event("bb", 1, 5, "internal", None),
    ]
    table = table_from_rows([{"computation": "", "relevant": False, **row} for row in rows])
    found = {row["process"]: row["clock_offset"] for row in analyse(table).table("skew").to_pylist()}
    assert found["a"] == found["a~2"] and found["b~2"] == found["b~[q/1]"]
    assert -650 <= found["b~2"] - found["a"] <= -600
    assert found["bb"] == 0


def untimed_conversation(dice):
    """(rows, bounds): messages among four clocks that are ahead, half of their sends and deliveries without a
    time; and pairs of events with one, the first before a send by its clock, the second after its delivery.
    """
    ahead = dice.integers(-500, 500, 4)
    rows, bounds = [], []
    seqs, last, waiting = [0] * 4, [None] * 4, [[], [], [], []]

    def event(p, now, kind, message=None, to=None):
        seqs[p] += 1
        name, timed = (f"p{p}", seqs[p]), kind == "internal" or dice.random() < 0.5
        time = int(now + ahead[p]) if timed else None
        row = {"computation": "", "process": name[0], "seq": name[1], "kind": kind, "message": message}
        rows.append(row | {"time": time, "to": to, "relevant": False})
        if timed:
            bounds.extend((earlier, name) for earlier in waiting[p])
            waiting[p], last[p] = [], name

    for number, now in enumerate(range(0, 400, 20)):
        p, q = dice.choice(4, 2, replace=False).tolist()
        event(p, now, "internal")
        event(p, now + int(dice.integers(10)), "send", f"m{number}", [f"p{q}"])
        waiting[q].append(last[p])
        event(q, now + 10 + int(dice.integers(10)), "deliver", f"m{number}")
    return rows, bounds


def test_a_message_without_times_is_bounded_by_what_its_clocks_show_around_it(seed):
    dice = np.random.default_rng(seed)
    for _ in range(20):
        rows, bounds = untimed_conversation(dice)
        found = analyse(table_from_rows(rows))
        assert all(row["feasible"] for row in found.table("skew").to_pylist())
        times = {(row["process"], row["seq"]): row["corrected"] for row in found.table("times").to_pylist()}
        assert len(bounds) > 5
        assert all(times[earlier] <= times[later] for earlier, later in bounds)
