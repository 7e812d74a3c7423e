"""The kernels give what the definitions give, on random traces that break every rule."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causality.traces import table, wild
from effort import samples
from happened import causality
from happened.causality.verdict import Disagreement
from oracles.closure import by_computation

pytestmark = pytest.mark.sampled

TRACES = samples(400)


def traces(seed):
    random = Random(seed)
    rows = [row for number in range(random.randint(1, 3)) for row in wild(random, f"c{number}")]
    if random.random() < 0.5:
        random.shuffle(rows)
    return rows


def judged(test):
    """Run a property over many traces; a failure names the seed of its trace."""
    return settings(max_examples=TRACES, deadline=None)(given(st.integers(0, 2**32).map(traces))(test))


def name(event):
    return (event.process, event.seq)


@judged
def test_vectors_count_the_causal_past(rows):
    stamps = causality.stamp(table(rows))
    ordered = pairs = 0
    for computation, closure in by_computation(rows).items():
        pairs += len(closure.event) * (len(closure.event) - 1) // 2
        for e in closure.event:
            assert stamps.vector(*e, computation) == Counter(p for p, _ in closure.past[e] | {e})
            for f in closure.event:
                before = closure.happened_before(e, f)
                ordered += before
                assert stamps.happened_before(e, f, computation) == before
    assert (stamps.ordered_pairs, stamps.concurrent_pairs) == (ordered, pairs - ordered)


@pytest.mark.parametrize("order", ["causal", "fifo"])
@judged
def test_early_deliveries(order, rows):
    verdict = causality.check_order(table(rows), order, limit=10**6)
    closures = by_computation(rows)
    early = {(c, m, x) for c, closure in closures.items() for m, x in closure.early_deliveries(order)}
    assert {(w.computation, w.early, w.process) for w in verdict.witnesses} == early
    assert verdict.violations == len(verdict.witnesses) == len(early)
    examined = sum(len(closure.delivered_where_sent()) for closure in closures.values())
    assert verdict.deliveries == examined
    assert verdict.holds is (None if examined == 0 else not early)
    for witness in verdict.witnesses:
        closures[witness.computation].confirm(witness)


@judged
def test_total_order_disagreements(rows):
    verdict = causality.check_order(table(rows), "total", limit=10**6)
    witnesses = [w for w in verdict.witnesses if isinstance(w, Disagreement)]  # see also test_total_cycles
    comparable, inverted = False, set()
    for computation, closure in by_computation(rows).items():
        able, found = closure.disagreements()
        comparable = comparable or able
        inverted |= {(computation, *each) for each in found}
    if comparable:
        assert verdict.holds is (verdict.violations == 0)
    assert not inverted or verdict.holds is False
    # Which of two processes counts as the first is the judge's choice; a pair disagrees either way.
    pairs = {(c, frozenset((p, q))) for c, p, q, _, _ in inverted}
    assert {(w.computation, frozenset((w.one[0].process, w.other[0].process))) for w in witnesses} == pairs
    assert verdict.violations == len(verdict.witnesses)
    for w in witnesses:
        a, b = w.messages
        assert [e.message for e in (*w.one, *w.other)] == [a, b, b, a]
        assert w.one[0].seq < w.one[1].seq and w.other[0].seq < w.other[1].seq
        p, q = w.one[0].process, w.other[0].process
        assert (w.computation, p, q, b, a) in inverted or (w.computation, q, p, a, b) in inverted


@judged
def test_delivery_fates(rows):
    found = causality.check_delivery(table(rows), examples=10**6)
    closures = by_computation(rows)
    lost = {(c, m, x) for c, closure in closures.items() for m, x in closure.lost()}
    assert {(e.send.computation, e.send.message, e.destination) for e in found.lost_examples} == lost
    assert found.lost == len(lost)
    for fate in ("duplicated", "misdelivered", "never_sent"):
        expected = {(c, *event) for c, closure in closures.items() for event in closure.fates()[fate]}
        examples = getattr(found, f"{fate}_examples")
        assert {(e.computation, e.process, e.seq) for e in examples} == expected
        assert getattr(found, fate) == len(expected)
    assert found.deliveries == sum(len(closure.deliveries) for closure in closures.values())
    assert found.messages == sum(len(closure.send) for closure in closures.values())
    assert found.events == len(rows)


@judged
def test_necessary_units_of_every_edge(rows):
    found = causality.necessary(table(rows))
    expected = {
        (computation, *closure.send[m], m, d): closure.necessary_on_edge(m, d)
        for computation, closure in by_computation(rows).items()
        for m in closure.send
        for d in closure.dests[m]
    }
    counts = {tuple(row.values())[:5]: row["units"] for row in found.edge_counts().to_pylist()}
    assert counts == {edge: len(units) for edge, units in expected.items()}
    units = [tuple(row.values()) for row in found.edge_units().to_pylist()]
    assert len(units) == len(set(units))
    assert set(units) == {(*edge, *unit) for edge, units in expected.items() for unit in units}


@judged
def test_necessary_units_of_every_log(rows):
    found = causality.necessary(table(rows))
    closures = by_computation(rows)
    logs = {(event.computation, *name(event)): units for event, units in found.logs()}
    expected = {
        (c, *e): closure.necessary_in_log(e) for c, closure in closures.items() for e in closure.event
    }
    assert logs == expected
    for computation, process, seq in expected:
        assert found.in_log(process, seq, computation) == expected[computation, process, seq]


@judged
def test_audit_finds_exactly_what_was_added_or_left_out(rows):
    """Record the necessary units of some arrivals, then tamper with them by a rule of the test's own."""
    missing, redundant, recorded, equal = set(), set(), 0, 0
    closures = by_computation(rows)
    for i, row in enumerate(rows):
        closure = closures[row["computation"]]
        sent_here = row["process"] in closure.dests.get(row.get("message"), ())
        if row["kind"] != "receive" or not sent_here or i % 5 == 0:
            continue
        units = closure.necessary_on_edge(row["message"], row["process"])
        arrival = (row["computation"], row["process"], row["seq"])
        left_out = {min(units)} if units and i % 3 == 0 else set()
        added = {("p:0", "absent"), ("nothing", "nobody")} - units if i % 4 == 0 else set()
        recorded += 1
        equal += not left_out and not added
        missing |= {(*arrival, *unit) for unit in left_out}
        redundant |= {(*arrival, *unit) for unit in added}
        carried = sorted((units - left_out) | added)
        row["attributes"] = {"units": " ".join(f"{m}>{x}" for m, x in carried)}
    audit = causality.audit_units(table(rows), examples=10**6)
    assert (audit.recorded, audit.equal) == (recorded, equal)
    assert audit.holds is (None if recorded == 0 else equal == recorded)
    for found, expected in ((audit.missing_examples, missing), (audit.redundant_examples, redundant)):
        assert {(*e.receive[:3], *e.unit) for e in found} == expected
        assert len(found) == len(expected)
    assert (audit.missing, audit.redundant) == (len(missing), len(redundant))


def test_the_random_traces_are_not_trivial():
    """What the properties above quantify over does contain what they are about."""
    seen = Counter()
    for seed in range(200):
        rows = wild(Random(seed))
        for closure in by_computation(rows).values():
            seen["early"] += bool(closure.early_deliveries("causal"))
            seen["fifo"] += bool(closure.early_deliveries("fifo"))
            seen["disagreement"] += bool(closure.disagreements()[1])
            seen["lost"] += bool(closure.lost())
            seen.update(fate for fate, events in closure.fates().items() if events)
            seen["receives stand in"] += bool(closure.first) and all(r["kind"] != "deliver" for r in rows)
            seen["self-addressed"] += any(closure.send[m][0] in to for m, to in closure.dests.items())
            edges = [closure.necessary_on_edge(m, d) for m, to in closure.dests.items() for d in to]
            seen["units"] += any(edges)
            seen["silent edge after units"] += any(edges) and not all(edges)
    assert min(seen[key] for key in (
        "early", "fifo", "disagreement", "lost", "duplicated", "misdelivered", "never_sent",
        "receives stand in", "self-addressed", "units", "silent edge after units",
    )) >= 20, seen  # fmt: skip
