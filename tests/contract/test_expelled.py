"""One process is expelled, leaves or joins at every step of every interleaving of small programs, for every
protocol that takes that; two are expelled; and programs in which a successor of `sequencer` must find lost
places."""

import pytest

from contract.changes import Changes
from contract.drive import Dice, System, destinations
from happened.ordering import protocols
from happened.ordering.facts import MULTICAST, UNICAST

EXPELLING = [
    name for name, facts in protocols().items() if facts.membership.departures and facts.membership.expulsions
]
N = 3
MOST = 30_000
"""States of one program: a minute or less. Every run draws other programs."""


TOGETHER = [
    name
    for name in EXPELLING
    if not protocols()[name].membership.expels_one and protocols()[name].assumes.casts != {UNICAST}
]
LEAVING = [(name, "leave") for name, facts in protocols().items() if facts.membership.departures]
JOINING = [(name, "join") for name, facts in protocols().items() if facts.membership.joins]


def some_program(facts, dice, messages):
    """Who sends what to whom, three processes, so many messages; one sender, if sends are serialized."""
    program = [[] for _ in range(N)]
    sender = dice.randrange(N)
    for _ in range(messages):
        sender = sender if facts.assumes.serialized else dice.randrange(N)
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
    for messages in (2, 2, 2, 2, 3):
        Changes(facts, some_program(facts, dice, messages)).explore(most=MOST)


@pytest.mark.long
@pytest.mark.parametrize(("name", "kind"), LEAVING + JOINING)
def test_a_departure_and_a_newcomer_at_every_step_of_a_program_of_two_messages(name, kind, seed):
    facts, dice = protocols()[name], Dice(seed)
    found = Changes(facts, some_program(facts, dice, 2), [kind]).explore(most=800)
    assert found.states > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), LEAVING + JOINING)
def test_a_departure_and_a_newcomer_at_every_step_of_many_programs(name, kind, seed):
    facts, dice = protocols()[name], Dice(seed)
    for kinds in (*[[kind]] * 4, *[[kind, "expel"]] * (2 * facts.membership.expulsions)):
        Changes(facts, some_program(facts, dice, 2), kinds).explore(most=MOST)


def two_expelled(name, most=None):
    """1 sends x to 2 and 3; 2 answers with a to 0 and 3; 0 with y to 2 and 3; 2 with b to 3. When 0 and 1 are
    expelled, x and y may be lost on the way to 3, where a waits for x and b for y, which alone follows a."""
    facts, everybody = protocols()[name], set(range(4))
    to, after = [[{2, 3}], [{2, 3}], [{0, 3}, {3}], []], [[1], [0], [1, 2], []]
    if MULTICAST not in facts.assumes.casts or facts.assumes.fixed_groups:
        to = [[everybody - {p}] * len(sets) for p, sets in enumerate(to)]
        after[0] = [2]
    program = [[frozenset(each) for each in sets] for sets in to]
    return Changes(facts, program, ("expel", "expel"), whom=(0, 1), after=after).explore(most)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_two_are_expelled_at_every_step_for_every_protocol_that_takes_it(name):
    two_expelled(name, most=100_000)


@pytest.mark.parametrize("name", [name for name in EXPELLING if protocols()[name].membership.expels_one])
def test_with_two_at_once_the_order_is_lost_where_one_at_a_time_may_be_expelled(name):
    with pytest.raises(AssertionError, match=r"overtakes"):
        two_expelled(name)


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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("flooding", "phased") else ())  # n² frames each
        for name in EXPELLING
    ],
)
def test_an_expulsion_among_many(name, seed):
    """Sets of more processes than a number of a frame has bits."""
    dice, system = Dice(seed), System(protocols()[name], 85, act=3)
    for _ in range(6):
        system.multicast(dice)
        if any(system.channels.values()):  # it is not, if all went to their senders alone
            system.arrive(dice)
    system.expel(dice, system.active[0])
    system.multicast(dice)
    system.drain(dice)
    assert system.lost == {82} and len(system.departed) == 1
