"""Break a correct trace in one place: the judge finds every break that the definitions call one."""

from copy import deepcopy
from graphlib import CycleError
from random import Random

import pytest

from causality.traces import causal, number, table
from effort import samples
from happened import causality
from happened.core.errors import TraceFormatError
from oracles.closure import Closure

pytestmark = pytest.mark.sampled

SWAPS = samples(1000)
DROPS = samples(300)
SEED = 2


def deliveries(chains):
    return [
        (p, i) for p, events in chains.items() for i, event in enumerate(events) if event["kind"] == "deliver"
    ]


def swapped(random, chains):
    """Two deliveries of one process exchanged, or None where no process has two."""
    mutant = deepcopy(chains)
    p, i = random.choice(deliveries(chains))
    others = [j for q, j in deliveries(chains) if q == p and j != i]
    if not others:
        return None
    j = random.choice(others)
    mutant[p][i], mutant[p][j] = mutant[p][j], mutant[p][i]
    return mutant


def test_unbroken_traces_hold():
    random = Random(SEED)
    for _ in range(50):
        rows = number(causal(random))
        assert not Closure(rows).early_deliveries("causal"), SEED
        verdict = causality.check_order(table(rows), "causal")
        found = causality.check_delivery(table(rows))
        assert verdict.holds is True
        assert verdict.deliveries == found.deliveries > 0
        assert (found.lost, found.duplicated, found.misdelivered, found.never_sent) == (0, 0, 0, 0)


def test_every_violating_swap_is_found():
    violating = cyclic = 0
    for seed in range(SEED, SEED + 50 * SWAPS):
        random = Random(seed)
        mutant = swapped(random, causal(random))
        if mutant is None:
            continue
        rows = number(mutant)
        try:
            closure = Closure(rows)
        except CycleError:
            # The swap put a delivery before a send that depends on it: no computation at all.
            cyclic += 1
            with pytest.raises(TraceFormatError, match="cycle"):
                causality.check_order(table(rows), "causal")
            continue
        early = closure.early_deliveries("causal")
        verdict = causality.check_order(table(rows), "causal", limit=10**6)
        assert verdict.holds is (not early), f"seed {seed}"
        assert {(w.early, w.process) for w in verdict.witnesses} == early, f"seed {seed}"
        for witness in verdict.witnesses:
            closure.confirm(witness)
        violating += bool(early)
        if violating == SWAPS:
            break
    assert violating == SWAPS
    assert cyclic > 0


def test_every_dropped_delivery_is_found_lost():
    for seed in range(SEED, SEED + DROPS):
        random = Random(seed)
        mutant = causal(random)
        process, i = random.choice(deliveries(mutant))
        message = mutant[process].pop(i)["message"]
        found = causality.check_delivery(table(number(mutant)))
        assert [(e.send.message, e.destination) for e in found.lost_examples] == [(message, process)], seed
        assert found.lost == 1, f"seed {seed}"
        assert (found.duplicated, found.misdelivered, found.never_sent) == (0, 0, 0), f"seed {seed}"


def test_every_repeated_or_astray_delivery_is_found():
    for seed in range(SEED, SEED + DROPS):
        random = Random(seed)
        chains = causal(random, messages=4)
        process, i = random.choice(deliveries(chains))
        message = chains[process][i]["message"]
        chains[process].append({"kind": "deliver", "message": message})
        chains["stranger"] = [{"kind": "deliver", "message": message}]
        found = causality.check_delivery(table(number(chains)))
        assert (found.duplicated, found.misdelivered, found.lost, found.never_sent) == (1, 1, 0, 0), seed
        assert found.duplicated_examples[0][1:3] == (process, len(chains[process])), seed
        assert found.misdelivered_examples[0].process == "stranger", seed
