"""Immediate predecessors against networkx: the reduction of the edges as recorded."""

from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causality.traces import number, table, wild
from effort import samples
from happened import causality
from oracles.closure import by_computation

pytestmark = pytest.mark.sampled


def rows_with_relevance(seed):
    random = Random(seed)
    rows = [row for name in ("c0", "c1")[: random.randint(1, 2)] for row in wild(random, name)]
    share = random.choice((0.2, 0.6, 1.0))
    return [row | {"relevant": random.random() < share} for row in rows]


def edges(found):
    columns = ("computation", "process", "seq", "cause_process", "cause_seq")
    rows = [tuple(row[name] for name in columns) for row in found.table().to_pylist()]
    assert len(rows) == len(set(rows)) == found.count
    return set(rows)


def reduction(rows, names):
    """The transitive reduction of happened-before restricted to the named events."""
    expected = set()
    for computation, closure in by_computation(rows).items():
        graph = nx.DiGraph()
        chosen = {name for name in closure.event if (computation, *name) in names}
        graph.add_nodes_from(chosen)
        graph.add_edges_from((e, f) for f in chosen for e in closure.past[f] & chosen)
        expected |= {(computation, *f, *e) for e, f in nx.transitive_reduction(graph).edges}
    return expected


@settings(max_examples=samples(300))
@given(st.integers(0, 2**32).map(rows_with_relevance))
def test_the_reduction_of_the_relevant_events(rows):
    relevant = {(row["computation"], row["process"], row["seq"]) for row in rows if row["relevant"]}
    assert edges(causality.predecessors(table(rows))) == reduction(rows, relevant)


@settings(max_examples=samples(300))
@given(st.integers(0, 2**32).map(rows_with_relevance))
def test_the_reduction_of_all_events(rows):
    everything = {(row["computation"], row["process"], row["seq"]) for row in rows}
    found = causality.predecessors(causality.encode(table(rows)), relevant_only=False)
    assert edges(found) == reduction(rows, everything)


def test_a_redundant_cause_is_no_immediate_predecessor():
    rows = number(
        {
            "p": [{"kind": "internal"}],
            "q": [{"kind": "internal", "causes": [{"process": "p", "seq": 1}]}],
            "r": [{"kind": "internal", "causes": [{"process": "p", "seq": 1}, {"process": "q", "seq": 1}]}],
        }
    )
    found = causality.predecessors(table(rows), relevant_only=False)
    assert edges(found) == {("", "q", 1, "p", 1), ("", "r", 1, "q", 1)}


@pytest.mark.parametrize("relevant_only", [True, False])
def test_nothing_precedes_in_an_empty_trace(relevant_only):
    found = causality.predecessors(table([]), relevant_only)
    assert (found.count, found.table().num_rows) == (0, 0)


def test_many_candidates_at_once():
    """One event that learns of every process at a time; more edges than twice the events."""
    width = 60
    causes = [{"process": f"p{i}", "seq": 1} for i in range(width)]
    chains = {f"p{i}": [{"kind": "internal"}] for i in range(width)}
    chains |= {f"q{i}": [{"kind": "internal", "causes": causes}] for i in range(width)}
    assert causality.predecessors(table(number(chains)), relevant_only=False).count == width * width
