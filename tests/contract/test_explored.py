"""Every interleaving of every program of three processes and three messages, for every registered protocol
within its assumptions, judged at every step by a ground truth that does not look at what messages carry.
In `make test` of every fourth program, where there are many."""

import pytest

import effort
from contract.runs import check_explored, explored
from happened.ordering import protocols

# Programs and states of our own protocols: other numbers mean that more or less is explored than was.
COUNTED = {
    "ks": (598, 141_858),
    "bss": (3, 10_942),
    "bss-groups": (598, 141_858),
    "chain-two": (598, 141_858),
    "kim": (3, 10_942),
    "prs": (598, 142_442),
    "pruning": (598, 142_961),
    "rst": (598, 141_858),
    "serialized-broadcast": (3, 5_095),
    "serialized-multicast": (598, 80_995),
    "ses": (598, 141_858),
    "histories": (598, 34_061),
    "topological": (598, 34_057),
    "zoned-ks": (598, 34_033),
    "acknowledged": (48, 1_666),
    "cbcast": (598, 397_638),
    "flooding": (3, 17_947),
    "phased": (3, 53_670),
    "psync": (3, 981),
    "sequencer": (598, 68_830),
}


def takes_minutes(facts):
    """Whether three messages are too many for every day: each is agreed upon by all in three phases."""
    return facts.order.is_total and not facts.copies.relays


@pytest.mark.sampled
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, facts in protocols().items() if not takes_minutes(facts)])
def test_three_processes_and_three_messages(name, some_programs):
    result = check_explored(protocols()[name], seed=None, messages=3)
    assert result.programs
    if name in COUNTED:
        programs, states = COUNTED[name]
        assert result.programs == effort.count(programs)
        if result.programs == programs:
            assert result.states == states


@pytest.mark.parametrize(("name", "states"), [("bss", 981), ("kim", 981), ("psync", 981)])
def test_broadcasts_that_do_not_come_back(name, states):
    result = explored(protocols()[name], 3, self_addressed=False)
    assert (result.programs, result.states, result.violations) == (3, states, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "counted"),
    [
        ("causal-total", {}, (598, 6_536_135)),
        # With self-addressing the largest programs alone have millions of states.
        ("agreed", {"self_addressed": False}, (48, 1_449_617)),
    ],
)
def test_three_messages_that_are_agreed_upon_in_three_phases(name, options, counted):
    assert takes_minutes(protocols()[name])
    result = explored(protocols()[name], 3, workers=2, **options)
    assert (result.programs, result.states) == counted and result.violations == ()
