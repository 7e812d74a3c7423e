"""Bare DAGs: chains stand in for processes and add no order of their own."""

import json
from itertools import pairwise
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from happened import causality
from happened.trace.readers.cycles import circles
from happened.trace.readers.dag import find_chains


def commits(**parents):
    return "".join(json.dumps({"id": id, "parents": of}) + "\n" for id, of in parents.items())


def test_commits_with_a_redundant_parent(read, fixture_text):
    found = read("dag", fixture_text("commits.jsonl"))
    assert found.causes() == {"r": set(), "a": {"r"}, "b": {"r"}, "m": {"a", "b", "r"}}
    assert {row["process"] for row in found.rows} == {"chain", "chain/2"}
    assert found.stamps.concurrent_pairs == 1
    assert causality.predecessors(found.table).count == 4
    assert found.rows[1]["time"] == 20_000_000_000
    assert found.rows[1]["attributes"] == {"id": "a", "author": "1", "commit_time": "20"}
    assert found.counts == [
        {
            "nodes": 4,
            "edges": 5,
            "roots": 1,
            "heads": 1,
            "merges": 1,
            "maxpar": 3,
            "missing_parent_refs": 0,
            "file_order_topological": True,
            "cyclic": 0,
            "dup_parent": 0,
            "agents": 0,
        }
    ]


def test_a_block_dag_has_its_genesis(read, fixture_text):
    found = read("dag", fixture_text("blocks.json"))
    assert found.causes() == {"g": set(), "x": {"g"}, "y": {"g"}, "z": {"x", "y"}}


def test_a_list_of_records_is_a_dag_too(read):
    found = read("dag", json.dumps([{"id": 0, "parents": []}, {"id": 1, "parents": [0]}], indent=1))
    assert found.causes() == {"0": set(), "1": {"0"}}


def test_agents_of_an_editing_history_are_processes(read, fixture_text):
    found = read("dag", fixture_text("editing.json"))
    assert [(row["process"], row["seq"]) for row in found.rows] == [("0", 1), ("1", 1), ("0", 2), ("0", 3)]
    assert found.rows[1]["time"] == 1_704_067_201_000_000_000
    assert found.counts[0]["agents"] == 2


def test_an_agent_in_two_places_at_once_is_two_processes(read):
    transactions = [{"parents": of, "agent": 0, "patches": []} for of in ([], [0], [0])]
    found = read("dag", json.dumps({"txns": transactions}))
    assert {row["process"] for row in found.rows} == {"0", "0/2"}
    assert found.stamps.concurrent_pairs == 1


def test_children_may_come_before_their_parents(read):
    found = read("dag", commits(c=["b"], b=["a"], a=[]))
    assert [(row["label"], row["seq"]) for row in found.rows] == [("c", 3), ("b", 2), ("a", 1)]
    assert found.counts[0]["file_order_topological"] is False


def test_a_missing_parent_is_left_out_and_named(read):
    found = read("dag", commits(a=["gone"], b=["a", "a"]))
    assert found.counts[0]["missing_parent_refs"] == 1
    assert found.counts[0]["dup_parent"] == 1
    assert found.causes() == {"a": set(), "b": {"a"}}
    assert found.reasons() == [
        "log0:1: field 'parents': gone is not among the records read; imported without"
    ]


def test_a_circle_of_parents_is_left_out_and_named(read):
    found = read("dag", commits(a=["c", "r"], b=["a"], c=["b"], r=[], s=["s"]))
    assert found.causes() == {"a": {"r"}, "b": set(), "c": set(), "r": set(), "s": set()}
    assert found.counts[0]["cyclic"] == 4
    assert sum("a, b, c are causes of one another, in a circle" in reason for reason in found.reasons()) == 3
    assert sum("s is its own cause" in reason for reason in found.reasons()) == 1


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"parents": []}', "id"),
        ('{"id": "a", "parents": "b"}', "parents"),
        ('{"id": "a"}', "parents"),
        ("[3]", None),
        ('{"id": "a", "parents": [', None),
    ],
)
def test_a_record_that_is_none_is_quarantined_with_its_field(read, text, field):
    found = read("dag", text)
    assert found.rows == []
    assert [(q.field, q.imported) for q in found.quarantined] == [(field, False)]


def test_an_id_used_twice_is_named(read):
    found = read("dag", commits(a=[]) + commits(a=[], b=["a"]))
    assert len(found.rows) == 2
    assert "a is the id of record 1 too" in found.reasons()[0]


def random_dag(seed):
    random = Random(seed)
    count = random.randint(0, 40)
    width = random.choice((2, 5, 40))
    parents = []
    for i in range(count):
        recent = range(max(0, i - width), i)
        parents.append(random.sample(recent, min(len(recent), random.choice((0, 1, 1, 2, 3)))))
    return parents, [random.choice("xy") for _ in range(count)]


def graph_of(parents):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(parents)))
    graph.add_edges_from((parent, i) for i, of in enumerate(parents) for parent in of)
    return graph


@settings(max_examples=200)
@given(st.integers(0, 2**32).map(random_dag))
def test_chains_hold_what_was_ordered_already(case):
    parents, owners = case
    graph = graph_of(parents)
    chains = find_chains(range(len(parents)), parents, owners)
    members = {}
    for i, (chain, seq) in enumerate(chains.place):
        assert chains.owners[chain] == owners[i]
        members.setdefault(chain, {})[seq] = i
    assert len(set(chains.names)) == len(members) == len(chains.owners)
    for chain in members.values():
        events = [chain[seq] for seq in range(1, len(chain) + 1)]
        assert all(a in nx.ancestors(graph, b) for a, b in pairwise(events))


def test_parallel_chains_are_found_again_after_a_merge():
    """Lanes that merge and part again reuse the chains: as many as the width, not as the branchings."""
    parents = [[]]
    for _ in range(50):
        root = len(parents) - 1
        parents += [[root], [root], [root], [root + 1, root + 2, root + 3]]
    chains = find_chains(range(len(parents)), parents, ["chain"] * len(parents))
    assert len(chains.owners) == 3


@settings(max_examples=200)
@given(st.lists(st.lists(st.integers(0, 11), max_size=3), min_size=12, max_size=12))
def test_circles_are_the_strongly_connected_components(predecessors):
    graph = nx.DiGraph([(p, i) for i, of in enumerate(predecessors) for p in of])
    expected = {
        frozenset(component)
        for component in nx.strongly_connected_components(graph)
        if len(component) > 1 or graph.has_edge(*(2 * list(component)))
    }
    assert {frozenset(circle) for circle in circles(predecessors)} == expected
