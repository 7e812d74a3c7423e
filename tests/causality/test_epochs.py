"""Epoch by epoch gives what looking at the whole gives, however the computation is cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from causality import traces
from effort import samples
from happened.causality import encode
from happened.causality.computation import SEND
from happened.causality.epochs import Frontier, arrange, complete, stamp, stamp_epoch
from happened.causality.linearization import FIRST
from happened.causality.marks import UnitState, count_units, mark_epoch, no_marks
from happened.causality.necessary import NecessaryUnits
from happened.causality.questions.question import blocks_of
from happened.causality.stamps import stamp_computation
from happened.core.errors import TraceFormatError
from oracles import epochs as cutting

pytestmark = pytest.mark.sampled


def computations(dice):
    try:
        return encode(traces.table(traces.wild(dice, steps=60)))
    except TraceFormatError:  # a cycle: no computation
        return []


@settings(max_examples=samples(400))
@given(st.randoms(use_true_random=False))
def test_a_frontier_is_all_that_the_future_needs(dice):
    for c in computations(dice):
        whole = stamp_computation(c)
        frontier = Frontier.beginning(c.processes)
        columns = dice.sample(range(c.processes), dice.randint(0, c.processes))
        some = Frontier.beginning(c.processes, len(columns) + 1)
        at = cutting.cuts(c, dice)
        for start, end in pairwise(at):
            epoch, events = cutting.epoch(c, start, end)
            arranged = arrange(epoch, frontier)
            stamped, frontier = stamp(epoch, frontier, *cutting.kept(c, end), arranged)
            assert np.array_equal(stamped.event_vectors(), whole[events])
            stamped, some = stamp(epoch, some, *cutting.kept(c, end), arranged, columns)
            assert np.array_equal(stamped.event_vectors()[:, :-1], whole[events][:, columns])


@settings(max_examples=samples(400))
@given(st.randoms(use_true_random=False))
def test_summaries_made_apart_compose_to_the_exact_frontiers(dice):
    """Two passes and no iteration: nothing is stamped before the scan, and nothing in the scan is."""
    for c in computations(dice):
        whole = stamp_computation(c)
        at = cutting.cuts(c, dice)
        parts = [cutting.epoch(c, start, end) for start, end in pairwise(at)]
        # What a layout knows of each frontier without stamping: which events are in it.
        names, summaries = Frontier.beginning(c.processes), []
        for (epoch, _), end in zip(parts, at[1:], strict=True):
            _, summary = stamp(epoch, names, *cutting.kept(c, end))
            summaries.append(summary)
            names = summary.names_only()
        frontier = Frontier.beginning(c.processes)
        for (epoch, events), summary in zip(parts, summaries, strict=True):
            assert np.array_equal(stamp_epoch(epoch, frontier).event_vectors(), whole[events])
            frontier = complete(summary, frontier)
        # Completing is associative: stretches of epochs can be composed apart.
        while len(summaries) > 1:
            k = dice.randrange(len(summaries) - 1)
            summaries[k : k + 2] = [complete(summaries[k + 1], summaries[k])]
        assert np.array_equal(complete(*summaries, Frontier.beginning(c.processes)).vectors, frontier.vectors)


@settings(max_examples=samples(300))
@given(st.randoms(use_true_random=False))
def test_marks_fold_to_the_transitive_reduction_of_the_relevant_events(dice):
    for c in computations(dice):
        relevant = np.array([dice.random() < 0.6 for _ in range(c.events)], bool)
        blocks = blocks_of(c.processes, dice.randint(1, c.processes))
        states, found = [no_marks(c.processes, columns) for columns in blocks], set()
        at = cutting.cuts(c, dice)
        for start, end in pairwise(at):
            epoch, events = cutting.epoch(c, start, end)
            for k, columns in enumerate(blocks):
                (effects, process, seq), states[k] = mark_epoch(
                    epoch, relevant[events], states[k], *cutting.kept(c, end), columns=columns
                )
                found |= {
                    (events[e], int(c.chain[c.chain_offsets[p] + s - 1]))
                    for e, p, s in zip(effects, process, seq, strict=True)
                }
        vectors = stamp_computation(c)

        def before(a, b, c=c, vectors=vectors):
            return a != b and vectors[b, c.process[a]] >= c.seq[a]

        chosen = np.flatnonzero(relevant)
        expected = {
            (int(f), int(e))
            for f in chosen
            for e in chosen
            if before(e, f) and not any(before(e, g) and before(g, f) for g in chosen)
        }
        assert found == expected


def test_an_event_out_of_place_or_forgotten_is_refused():
    rows = traces.number(
        {
            "p": [{"kind": "send", "message": "m", "to": ["q"]}, {"kind": "internal"}],
            "q": [{"kind": "deliver", "message": "m"}],
        }
    )
    (c,) = encode(traces.table(rows))
    first, _ = cutting.epoch(c, 0, 2)
    last, _ = cutting.epoch(c, 2, 3)
    with pytest.raises(TraceFormatError, match=r"from where the frontier ends|lies in no epoch"):
        stamp_epoch(last, Frontier.beginning(2))
    _, frontier = stamp(first, Frontier.beginning(2))
    if last.process[0] == 1:
        with pytest.raises(TraceFormatError, match="forgotten"):
            stamp_epoch(last, frontier)


@settings(max_examples=samples(300))
@given(st.randoms(use_true_random=False))
def test_units_fold_to_the_necessary_information_of_every_edge(dice):
    seen = 0
    for c in computations(dice):
        expected = NecessaryUnits(c).edge_counts
        blocks = blocks_of(c.processes, dice.randint(1, c.processes))
        states = [UnitState.beginning(c.processes, columns) for columns in blocks]
        at = cutting.cuts(c, dice)
        for start, end in pairwise(at):
            epoch, events = cutting.epoch(c, start, end)
            slots = [
                u == c.source[e] and c.fate[e] == FIRST for e in events for u in cutting.predecessors(c, e)
            ]
            sent = [c.message[e] if c.kind[e] == SEND else -1 for e in events]
            slot_of = [range(c.dest_offsets[m], c.dest_offsets[m + 1]) if m >= 0 else () for m in sent]
            flat = [slot for of in slot_of for slot in of]
            counts = np.zeros(len(flat), np.int64)
            for k, columns in enumerate(blocks):
                some, states[k] = count_units(
                    epoch,
                    np.array(slots, bool),
                    np.concatenate([[0], np.cumsum([len(of) for of in slot_of])]).astype(np.int64),
                    c.slot_dest[flat].astype(np.int64),
                    states[k],
                    cutting.kept(c, end),
                    columns=columns,
                )
                counts += some
            assert np.array_equal(counts, expected[flat])
            seen += counts.sum()
    target(float(seen))


def test_an_epoch_that_was_arranged_for_another_frontier_is_refused():
    (c,) = encode(traces.table(traces.number({"p": [{"kind": "internal"}] * 2})))
    first, _ = cutting.epoch(c, 0, 1)
    last, _ = cutting.epoch(c, 1, 2)
    beginning = Frontier.beginning(1)
    arranged = arrange(first, beginning)
    _, frontier = stamp(first, beginning, arranged=arranged)
    with pytest.raises(ValueError, match="another frontier"):
        stamp(last, frontier, arranged=arranged)
