"""Programs up to renaming, against the orbits computed one by one."""

from itertools import permutations, product

import pytest

from happened.core.destinations import pack, unpack
from happened.core.errors import LocalProtocolError
from happened.sim.programs import Program, programs


def renamed(sends, order):
    place = {old: new for new, old in enumerate(order)}
    return tuple(tuple(pack(place[d] for d in unpack(to)) for to in sends[old]) for old in order)


def orbits(processes, messages, allowed):
    """The classes of programs, found by listing every program and every renaming of it."""
    every = set()
    for senders in product(range(processes), repeat=messages):
        for to in product(range(1, 1 << processes), repeat=messages):
            if all(allowed(sender, bits) for sender, bits in zip(senders, to, strict=True)):
                every.add(
                    tuple(
                        tuple(b for s, b in zip(senders, to, strict=True) if s == p) for p in range(processes)
                    )
                )
    return {frozenset(renamed(sends, order) for order in permutations(range(processes))) for sends in every}


CASES = {
    "multicast": ({}, lambda sender, to: True),
    "multicast to others only": ({"self_addressed": False}, lambda sender, to: not to >> sender & 1),
    "unicast": ({"casts": "unicast"}, lambda sender, to: to.bit_count() == 1),
    "broadcast": ({"casts": "broadcast"}, lambda sender, to: to == 0b111),
}


@pytest.mark.parametrize("case", CASES)
def test_one_program_of_each_class_and_no_more(case):
    options, allowed = CASES[case]
    found = [program.sends for program in programs(3, 2, **options)]
    classes = orbits(3, 2, allowed)
    assert len(found) == len(set(found)) == len(classes)
    assert {next(c for c in classes if sends in c) for sends in found} == classes


def test_three_processes_and_three_multicasts_make_598_programs():
    """An independent prototype enumerated as many (docs/papers.md counts faults among them)."""
    found = programs(3, 3)
    assert len(found) == 598
    assert [program.packets for program in found] == sorted(program.packets for program in found)


def test_a_program_reads_as_who_sends_what_to_whom():
    assert str(Program(((0b110, 0b001), (), (0b010,)))) == "0: {1,2} {0}; 2: {1}"


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((0, 1), {}, "needs processes and messages"),
        ((1, 1), {"self_addressed": False}, "only send to itself"),
        ((2, 1), {"casts": "anycast"}, "multicast, unicast, broadcast"),
    ],
)
def test_senseless_sizes_are_refused(arguments, options, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        programs(*arguments, **options)


def test_all_renamings_on_request():
    """Every sequence of destination sets: 7 sets, two sends by one of three processes or one each of two."""
    every = programs(3, 2, renamed=True)
    assert len(every) == len(set(every)) == 3 * 7**2 + 3 * 7**2
    assert set(programs(3, 2)) < set(every)
