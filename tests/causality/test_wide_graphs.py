"""DAGs and wide systems without vectors: bit sets, marks and blocks of columns, against Python integers,
networkx and the vectors themselves."""

import runpy
import sys
import time
from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causality import traces
from causality.dags import SHAPES, apart, dag, trace_of
from effort import samples
from happened import causality, trace
from happened.causality import stamps
from happened.causality.analysis import TABLES, analyse
from happened.causality.predecessors import Way, choose, find_predecessors
from happened.causality.reach import count_ordered, edges_of, levels_of, passes_of
from happened.causality.written import is_wide, sizes_of, too_wide
from happened.trace.importing import import_files
from oracles import bit_sets

commit_graphs = runpy.run_path(str(Path(__file__).resolve().parents[2] / "bench" / "commit_graph.py"))
commit_graph, write_commits = commit_graphs["commit_graph"], commit_graphs["write_commits"]

pytestmark = pytest.mark.sampled


def edges_in(c, found):
    """Edges (cause, effect) by row of the table."""
    effects, causes = found
    rows = [*zip(c.row[causes].tolist(), c.row[effects].tolist(), strict=True)]
    assert len(rows) == len(set(rows))
    assert (np.diff(effects) >= 0).all()
    return set(rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [0, 1, 2, 63, 64, 65, 700, 2500])
def test_every_way_finds_the_reduction(shape, nodes, seed):
    parents = dag(Random(seed), shape, nodes)
    expected = set(bit_sets.reduction(parents))
    for c in causality.encode(trace_of(parents)):
        every = np.ones(c.events, bool)
        for way in Way:
            assert edges_in(c, find_predecessors(c, every, way=way)) == expected, way
        graph = edges_of(c).in_order()
        assert count_ordered(graph) == bit_sets.ordered_pairs(parents)
        assert graph.causes.size == len({*_edges(parents)})
    found = causality.predecessors(trace_of(parents), relevant_only=False)
    assert found.count == len(expected)


def _edges(parents):
    """Chains add no order, but the edge of process order may be one that nobody recorded."""
    (c,) = causality.encode(trace_of(parents))
    for chain in np.split(c.chain, c.chain_offsets[1:-1]):
        yield from zip(c.row[chain[:-1]].tolist(), c.row[chain[1:]].tolist(), strict=True)
    yield from ((p, i) for i, of in enumerate(parents) for p in of)


@settings(max_examples=samples(200))
@given(st.integers(0, 2**32), st.sampled_from(SHAPES))
def test_some_events_of_a_dag(seed, shape):
    """The reduction of the relevant events, against networkx."""
    random = Random(seed)
    parents = dag(random, shape, random.randint(1, 60))
    relevant = [random.random() < 0.4 for _ in parents]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(parents)))
    graph.add_edges_from((p, i) for i, of in enumerate(parents) for p in of)
    closure = nx.transitive_closure_dag(graph).subgraph([i for i, flag in enumerate(relevant) if flag])
    expected = set(nx.transitive_reduction(closure).edges)
    (c,) = causality.encode(trace_of(parents, relevant))
    for way in (Way.VECTORS, Way.MARKS):
        assert edges_in(c, find_predecessors(c, c.relevant, way=way)) == expected


@settings(max_examples=samples(200))
@given(st.integers(0, 2**32))
def test_messages_are_edges_like_others(seed):
    """Computations with messages, one by one and as a union."""
    random = Random(seed)
    table = traces.table([row for name in "ab" for row in traces.wild(random, name)])
    if not table.num_rows:
        return
    for c in (*causality.encode(table), *causality.computation.unite(table)):
        every = np.ones(c.events, bool)
        assert len({frozenset(edges_in(c, find_predecessors(c, every, way=way))) for way in Way}) == 1
        ordered = int(stamps.stamp_computation(c).sum()) - c.events
        assert count_ordered(edges_of(c).in_order()) == ordered


def test_the_cheapest_way_is_chosen():
    random = Random(1)
    every = np.ones(3000, bool)
    few, some = every.copy(), np.arange(3000) % 2 == 0
    (narrow,) = causality.encode(trace_of(dag(random, "chain", 3000)))
    (fans,) = causality.encode(trace_of(dag(random, "forest", 3000)))
    assert choose(narrow, few) is choose(narrow, some) is choose(fans, some) is Way.VECTORS
    assert choose(fans, every) is Way.BIT_SETS
    (wide,) = causality.encode(apart(7100))
    assert choose(wide, np.ones(7100, bool)) is Way.BIT_SETS
    assert choose(wide, np.arange(7100) > 0) is Way.MARKS


def test_the_cost_of_bit_sets_is_known_before():
    """Branches that are merged soon cost little; one that lives long takes one long pass, not all."""
    mainline = [[i - 1, i - 3] if i > 3 else ([i - 1] if i else []) for i in range(64 * 50)]
    (c,) = causality.encode(trace_of(mainline))
    soon = passes_of(edges_of(c).in_order())
    assert soon.steps < 3 * sum(map(len, mainline))
    mainline[-1] = [len(mainline) - 2, 0]
    (c,) = causality.encode(trace_of(mainline))
    late = passes_of(edges_of(c).in_order())
    assert late.steps < 6 * sum(map(len, mainline))


def held(monkeypatch, cells):
    """Let vectors of no more entries be held."""
    for name in ("questions.question", "predecessors", "stamps", "marks"):
        monkeypatch.setattr(sys.modules[f"happened.causality.{name}"], "MOST_CELLS", cells)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("cells", [100, 3000])
def test_all_answers_without_vectors(monkeypatch, seed, share, cells):
    """Those of a computation that is too wide, with logged clocks and times, equal those from vectors."""
    random = Random(seed)
    parents = dag(random, "branches", 300)
    table = trace_of(parents, [random.random() < share for _ in parents])
    stamped = causality.stamp(table)
    clocks = []
    for row in table.to_pylist():
        clock = stamped.vector(row["process"], row["seq"])
        if random.random() < 0.2:
            clock[random.choice([*clock, "nobody"])] = random.randint(0, 3)
        clocks.append([*clock.items()] if random.random() < 0.9 else None)
    columns = {"clock": clocks, "time": [random.randrange(10**6) for _ in parents]}
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array(values, field.type))
    expected = analyse(table, timestamps="predecessors")
    assert expected.totals["clock_mismatches"] and expected.totals["ordered_pairs"]
    with monkeypatch.context() as patch:
        held(patch, cells)
        found = analyse(table, timestamps="full")
    assert found.totals == expected.totals
    for name in TABLES:
        assert comparable(found.table(name)) == comparable(expected.table(name)), name


def comparable(table):
    rows = table.to_pylist()
    for row in rows:
        if row.get("entries"):
            row["entries"] = sorted((entry["p"], entry["seq"]) for entry in row["entries"])
    return sorted(map(repr, rows))


def test_blocks_of_columns_are_the_columns(monkeypatch, seed):
    (c,) = causality.encode(trace_of(dag(Random(seed), "dense", 200)))
    monkeypatch.setattr(stamps, "MOST_CELLS", 200 * 4 * 7)
    blocks = [*stamps.stamp_columns(c)]
    assert [len(columns) for columns, _ in blocks[:-1]] == [7] * (len(blocks) - 1) != []
    assert (np.concatenate([part for _, part in blocks], axis=1) == stamps.stamp_computation(c)).all()


def test_a_commit_graph_in_one_call():
    """7,100 events of as many processes: more entries of vectors than are held, in a second or so."""
    table = apart(7100)
    found = analyse(table)
    assert found.totals["reduction_edges"] == found.totals["ordered_pairs"] == 7099
    assert found.totals["tracker_unjudged"] == 0
    assert found.table("stamps")["clock"].null_count == 7100
    (c,) = causality.encode(table)
    assert levels_of(c).max() == 2


def test_what_is_too_wide_for_a_task():
    """With messages, what exceeds MOST_CELLS; without, only what bit sets could not count in a while."""
    silent, talking = apart(7100, "silent"), apart(7100, "talking", message="m")
    assert not is_wide(silent) and not is_wide(silent, writes_vectors=True)
    assert is_wide(talking) and is_wide(pa.concat_tables([silent, talking]))
    sizes = sizes_of(pa.concat_tables([silent, talking])).sort_by("computation")
    assert sizes["messages"].to_pylist() == [0, 2]
    given = pa.table(
        {
            "events": [200_000, 200_000, 200_000, 5_000_000, 5_000_000],
            "processes": [200, 500, 200_000, 100, 1_000_000],
            "messages": [1, 0, 0, 0, 0],
        }
    )
    assert too_wide(given).to_pylist() == [False, False, False, False, True]
    assert too_wide(given, writes_vectors=True).to_pylist() == [False, True, False, True, True]


@pytest.mark.slow
def test_as_cheap_as_python_integers(tmp_path, seed):
    """160,000 commits, from the Arrow table to the edges, within 3 times the CPU of the bit sets alone."""
    log = tmp_path / "commits.jsonl"
    parents = commit_graph(160_000, seed)
    with log.open("w") as file:
        write_commits(file, parents)
    begin = time.process_time()
    expected = bit_sets.reduction_size(parents)
    bits = time.process_time() - begin
    import_files([log], tmp_path / "run")
    table = trace.read(tmp_path / "run")
    assert causality.predecessors(table, relevant_only=False).count == expected  # compiles the kernels
    begin = time.process_time()
    causality.predecessors(table, relevant_only=False)
    assert time.process_time() - begin < 3 * bits
