"""Adelstein & Singhal: chains of two messages are ordered, chains of three are not."""

import pytest

import effort
from happened.ordering import create, protocols
from happened.sim.explore import explore
from oracles.history import History


def test_the_registry_does_not_call_it_causal():
    facts = protocols()["chain-two"]
    assert facts.order == "fifo" and "length three" in facts.description


def relay(n, path):
    """0 sends x to the last of `path`, where it is slow; does what then goes along the path overtake it?"""
    machines = [create("chain-two", p, n) for p in range(n)]
    target = path[-1]
    machines[0].multicast([target], b"x")
    holder = 0
    for hop in path:
        (packet,) = machines[holder].multicast([hop], b"hop").effects
        effects = machines[hop].receive(packet.message)
        if hop == target:
            return bool(effects)
        assert effects
        holder = hop
    raise AssertionError


@pytest.mark.parametrize(
    ("path", "overtakes"),
    [((3,), False), ((1, 3), False), ((1, 2, 3), True), ((1, 2, 1, 3), False), ((1, 2, 4, 3), True)],
    ids=["one message", "two", "three", "back on a chain of two", "four"],
)
def test_order_is_kept_over_two_messages_and_broken_from_three_on(path, overtakes):
    assert relay(5, path) is overtakes


@pytest.mark.sampled
@pytest.mark.long
def test_three_processes_and_three_messages_only_violate_along_a_chain_of_three(some_programs):
    """With three processes it takes a message to oneself: the sender of x is also where x is overtaken."""
    result = explore("chain-two", 3, 3, order="causal")
    assert result.counts() == {"safety": 7 if effort.THOROUGH else 1, "liveness": 0, "error": 0}
    assert result.programs == effort.count(598) and result.states > (140_000 if effort.THOROUGH else 30_000)
    for violation in result.violations:
        assert chain_of(violation.schedule) == 3
    assert explore("chain-two", 3, 3, order="causal", self_addressed=False).violations == ()


@pytest.mark.sampled
@pytest.mark.long
def test_four_processes_violate_exactly_along_chains_of_three(some_programs):
    result = explore("chain-two", 4, 3, order="causal", self_addressed=False)
    assert result.programs == effort.count(326)
    assert result.counts() == {"safety": 8 if effort.THOROUGH else 3, "liveness": 0, "error": 0}
    assert {chain_of(violation.schedule) for violation in result.violations} == {3}


def chain_of(schedule):
    """Messages on the shortest causal chain between the two that a schedule ends with out of order."""
    history, target = History(), None
    for line in schedule:
        process, verb, message, *rest = line.split()
        name = tuple(map(int, message[2:-1].split(",")))
        if verb == "sends":
            history.send(int(process), name, eval(rest[-1]))
        elif verb == "delivers":
            overtaken = history.overtaken_by(int(process), name)
            if overtaken:
                target = min(history.chain_length(other, name) for other in overtaken)
            history.deliver(int(process), name)
    return target
