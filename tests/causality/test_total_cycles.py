"""Total order over all processes: by brute force on random deliveries, and the smallest cycle of three."""

from itertools import combinations, pairwise
from random import Random

import networkx as nx
import pytest

from causality.traces import number, table, wild
from effort import samples
from happened import causality
from happened.causality import total_order
from happened.causality.verdict import Cycle, Disagreement
from oracles.closure import by_computation

pytestmark = pytest.mark.sampled

TRACES = samples(2000)


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


THREE = {
    "s": [send("A", "p", "q"), send("B", "q", "r"), send("C", "r", "p")],
    "p": [deliver("A"), deliver("C")],
    "q": [deliver("B"), deliver("A")],
    "r": [deliver("C"), deliver("B")],
}


def test_three_processes_no_two_of_which_disagree():
    verdict = causality.check_order(table(number(THREE)), "total")
    assert (verdict.holds, verdict.violations) == (False, 1)
    assert str(verdict.witness).splitlines() == [
        "no one order fits all processes: A before C before B before A:",
        "  p#1  deliver A",
        "  p#2  deliver C",
        "  r#1  deliver C",
        "  r#2  deliver B",
        "  q#1  deliver B",
        "  q#2  deliver A",
    ]


def test_the_same_deliveries_in_one_order_hold():
    chains = THREE | {"r": [deliver("B"), deliver("C")]}
    assert causality.check_order(table(number(chains)), "total").holds is True


def test_deliveries_that_could_not_contradict_one_another_decide_nothing():
    chains = THREE | {"r": [deliver("C")]}
    assert causality.check_order(table(number(chains)), "total").holds is None


def sparse(random):
    """Every process delivers a few messages, half the time around a ring, so that long cycles are common."""
    processes = [f"p{p}" for p in range(random.randint(3, 7))]
    messages = [f"m{m}" for m in range(random.randint(3, 6))]
    order = {p: random.sample(messages, random.choice((2, 2, 2, 3))) for p in processes}
    if random.random() < 0.5 and len(processes) >= len(messages):
        ring = random.sample(messages, len(messages))
        order |= {p: [ring[k - 1], ring[k]] for k, p in enumerate(processes[: len(ring)])}
    to = {m: [p for p in processes if m in order[p]] for m in messages}
    return number(
        {
            "s": [send(m, *to[m]) for m in messages if to[m]],
            **{p: [deliver(m) for m in order[p]] for p in processes},
        }
    )


def judged(closure):
    """(decided, acyclic, components without a disagreement as {messages: fewest legs}), from all pairs."""
    first = closure.delivered_where_sent()
    both, before = nx.Graph(), nx.DiGraph()
    for (m, x), event in first.items():
        both.add_edge(("message", m), ("process", x))
        before.add_edges_from((m, n) for (n, y), later in first.items() if y == x and event[1] < later[1])
    decided = bool(nx.cycle_basis(both))
    _, inverted = closure.disagreements()
    disputed = {m for _, _, *pair in inverted for m in pair}
    cycles = {}
    for component in nx.strongly_connected_components(before):
        if len(component) > 1 and not component & disputed:
            inside = before.subgraph(component)
            back = [
                1 + nx.shortest_path_length(inside, n, m) for m in component for n in inside.successors(m)
            ]
            cycles[frozenset(component)] = min(back)
    return decided, bool(nx.is_directed_acyclic_graph(before)), cycles


@pytest.mark.parametrize("make", [sparse, wild], ids=["sparse", "wild"])
def test_cycles_by_definition(make, seed):
    dice = Random(seed)
    longer = 0
    for batch in range(TRACES // 50):
        named = {f"c{number}": make(dice) for number in range(50)}
        rows = [row | {"computation": name} for name, some in named.items() for row in some]
        closures = by_computation(rows)
        computations = causality.encode(table(rows, chunk=500))
        for c in computations:
            verdict = causality.check_order([c], "total", limit=10**6)
            longer += same(verdict, closures[c.name], (batch, c.name))
        together = causality.check_order(computations, "total", limit=10**6)
        alone = [causality.check_order([c], "total") for c in computations]
        assert together.violations == sum(each.violations for each in alone), batch
    assert make is wild or longer > TRACES // 100


def same(verdict, closure, trial):
    """How many cycles of more than three legs there are; fails unless the verdict is the definition's."""
    decided, acyclic, cycles = judged(closure)
    assert verdict.holds is (acyclic if decided else None), trial
    assert acyclic or decided, trial
    found = [w for w in verdict.witnesses if isinstance(w, Cycle)]
    pairs = [w for w in verdict.witnesses if isinstance(w, Disagreement)]
    assert verdict.violations == len(found) + len(pairs), trial
    assert len(found) == len(cycles), trial
    for w in found:
        (fewest,) = (legs for messages, legs in cycles.items() if set(w.messages) <= messages)
        assert len(w.legs) == len(w.messages) == fewest > 2, trial
        for (a, b), (c, _) in pairwise([*w.legs, w.legs[0]]):
            assert (a.process, b.message) == (b.process, c.message), trial
            assert a.seq < b.seq and closure.first[a.message, a.process] == (a.process, a.seq), trial
    return sum(legs > 3 for legs in cycles.values())


def test_the_search_for_a_shortest_cycle_is_bounded(monkeypatch):
    """With steps for one source only, some cycle is still shown."""
    monkeypatch.setattr(total_order, "MOST_STEPS", 1)
    ring = [f"m{m}" for m in range(40)]
    chains = {"s": [send(m, f"p{k}", f"p{(k + 1) % 40}") for k, m in enumerate(ring)]}
    for k in range(40):
        chains[f"p{k}"] = [deliver(ring[k - 1]), deliver(ring[k])]
    verdict = causality.check_order(table(number(chains)), "total")
    assert (verdict.violations, len(verdict.witness.legs)) == (1, 40)
    assert {frozenset(pair) for pair in combinations(verdict.witness.messages, 2)} == {
        frozenset(pair) for pair in combinations(ring, 2)
    }
