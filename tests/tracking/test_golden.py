"""What Hélary, Melideo & Raynal (2000) state around their Figure 2, by every protocol that tells it."""

import pytest

from happened.tracking import create, protocols, renumbered, vectors

VECTORS = {
    (1, 1): (1, 0, 0),
    (1, 2): (2, 0, 0),
    (2, 1): (1, 1, 0),
    (2, 2): (2, 2, 0),
    (1, 3): (3, 2, 0),
    (3, 1): (0, 0, 1),
    (2, 3): (2, 3, 1),
    (3, 2): (2, 3, 2),
}
PREDECESSORS = {
    (1, 1): set(),
    (1, 2): {(1, 1)},
    (2, 1): {(1, 1)},
    (2, 2): {(2, 1), (1, 2)},
    (1, 3): {(2, 2)},
    (3, 1): set(),
    (2, 3): {(2, 2), (3, 1)},
    (3, 2): {(2, 3)},
}
TELLS = {name: facts.tells for name, facts in protocols().items()}


def figure_2(name):
    """The timestamps of the figure's events in the order they happen, processes numbered from 0."""
    p1, p2, p3 = (create(name, me, 3) for me in range(3))
    stamps = []

    def event(process):
        stamps.append(process.relevant())

    def send(process, to):
        piggyback = process.on_send(to.me)
        if piggyback.forced is not None:
            stamps.append(piggyback.forced)
        return piggyback

    event(p1)
    a = send(p1, p2)
    event(p1)
    b = send(p1, p2)
    p2.on_receive(p1.me, a)
    event(p2)
    p2.on_receive(p1.me, b)
    event(p2)
    p1.on_receive(p2.me, send(p2, p1))
    event(p1)
    event(p3)
    p2.on_receive(p3.me, send(p3, p2))
    event(p2)
    p3.on_receive(p2.me, send(p2, p3))
    event(p3)
    return stamps


def as_printed(event):
    process, seq = event
    return process + 1, seq


@pytest.mark.parametrize("name", [name for name, tells in TELLS.items() if "vector" in tells])
def test_the_vectors_of_figure_2(name):
    assert {as_printed((t.process, t.seq)): t.vector() for t in figure_2(name)} == VECTORS


@pytest.mark.parametrize("name", [name for name, tells in TELLS.items() if "predecessors" in tells])
def test_the_immediate_predecessors_of_figure_2(name):
    found = {as_printed((t.process, t.seq)): set(map(as_printed, t.predecessors())) for t in figure_2(name)}
    assert found == PREDECESSORS


@pytest.mark.parametrize("name", [name for name, tells in TELLS.items() if "dependencies" in tells])
def test_the_vectors_of_figure_2_are_reconstructed_from_dependencies(name):
    stamps = figure_2(name)
    found = renumbered(stamps, vectors(stamps))
    assert {as_printed(event): vector for event, vector in found.items()} == VECTORS


def test_the_scalars_of_figure_2_are_the_lengths_of_the_longest_chains():
    scalars = {as_printed((t.process, t.seq)): t.scalar for t in figure_2("lamport")}
    longest = {(1, 1): 1, (1, 2): 2, (2, 1): 2, (2, 2): 3, (1, 3): 4, (3, 1): 1, (2, 3): 4, (3, 2): 5}
    assert scalars == longest


def test_what_a_protocol_does_not_tell_is_none():
    for name, tells in TELLS.items():
        stamp = create(name, 0, 2).relevant()
        told = {
            "vector": stamp.vector(),
            "predecessors": stamp.predecessors(),
            "dependencies": stamp.dependencies,
            "scalar": stamp.scalar,
        }
        assert {what for what, value in told.items() if value is not None} == tells, name
