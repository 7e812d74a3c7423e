"""One process is expelled at every step of every interleaving of small programs, for every protocol that
takes expulsions; and of programs in which a successor of `sequencer` must find lost places."""

import pytest

from contract.changes import Changes
from contract.drive import Dice, destinations
from happened.ordering import protocols

EXPELLING = [name for name, facts in protocols().items() if facts.departures and facts.expulsions]
N = 3


def some_program(facts, dice, messages):
    """Who sends what to whom, three processes, so many messages."""
    program = [[] for _ in range(N)]
    for _ in range(messages):
        sender = dice.randrange(N)
        program[sender].append(frozenset(destinations(facts, dice, sender, range(N), range(N))))
    return program


@pytest.mark.long
@pytest.mark.parametrize("name", EXPELLING)
def test_an_expulsion_at_every_step_of_a_program_of_two_messages(name, seed):
    facts, dice = protocols()[name], Dice(seed)
    found = Changes(facts, some_program(facts, dice, 2)).explore()
    assert found.states > 50 and found.ends > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPELLING)
def test_an_expulsion_at_every_step_of_many_programs(name, seed):
    facts, dice = protocols()[name], Dice(seed)
    for messages in (*[2] * 12, *[3] * 2):
        Changes(facts, some_program(facts, dice, messages)).explore(most=100_000)


CHAINS = {
    "a message to one, then one to another who answers to both": [[], [{2}, {1}], []],
    "the coordinator's own, and an answer": [[{1, 2}], [{2}], []],
    "two who send to each other and to themselves": [[], [{1, 2}], [{1, 2}]],
}


@pytest.mark.parametrize("program", CHAINS.values(), ids=CHAINS)
def test_a_successor_orders_as_every_survivor_has_seen(program):
    facts = protocols()["sequencer"]
    found = Changes(facts, [[frozenset(to) for to in sends] for sends in program]).explore()
    assert found.states > 300 and found.ends > 10
