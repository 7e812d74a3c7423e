"""Every interleaving of every program of three processes and three messages, for every registered protocol
within its assumptions, judged at every step by a ground truth that does not look at what messages carry."""

import pytest

from contract.runs import check_explored, explored
from happened.ordering import protocols

# Programs and states, where somebody has counted them: a change means that more or less is explored.
COUNTED = {
    "ks": (598, None),
    "bss": (3, 10_942),
    "bss-groups": (598, 141_858),
    "chain-two": (598, None),
    "kim": (3, 10_942),
    "prs": (598, 142_442),
    "pruning": (598, None),
    "rst": (598, 141_858),
    "ses": (598, 141_858),
    "histories": (598, None),
    "zoned-ks": (598, None),
    "acknowledged": (48, 1_666),
    "cbcast": (598, 397_638),
    "phased": (3, 53_670),
    "psync": (3, None),
    "sequencer": (598, None),
}


def takes_minutes(facts):
    """Whether three messages are too many for every day: each is agreed upon by all in three phases."""
    return facts.order.is_total and not facts.relays


@pytest.mark.parametrize("name", [name for name, facts in protocols().items() if not takes_minutes(facts)])
def test_three_processes_and_three_messages(name):
    result = check_explored(protocols()[name], seed=None, messages=3)
    programs, states = COUNTED.get(name, (result.programs, None))
    assert result.programs == programs
    assert result.states == states if states is not None else result.states > 300 * programs // 7


@pytest.mark.parametrize(("name", "states"), [("bss", 981), ("kim", 981), ("psync", 981)])
def test_broadcasts_that_do_not_come_back(name, states):
    result = explored(protocols()[name], 3, self_addressed=False)
    assert (result.programs, result.states, result.violations) == (3, states, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "counted"),
    [
        ("causal-total", {}, (598, 6_525_201)),
        # With self-addressing the largest programs alone have millions of states.
        ("agreed", {"self_addressed": False}, (48, 1_449_034)),
    ],
)
def test_three_messages_that_are_agreed_upon_in_three_phases(name, options, counted):
    assert takes_minutes(protocols()[name])
    result = explored(protocols()[name], 3, workers=2, **options)
    assert (result.programs, result.states) == counted and result.violations == ()
