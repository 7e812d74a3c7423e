"""Vectors from dependency vectors: against the paper's loop, and what cannot be reconstructed."""

import pytest

from happened.core.errors import LocalProtocolError
from happened.tracking import Timestamp, create, renumbered, vectors
from tracking.computations import Computation


def as_printed(event, dependencies):
    """Section 5.2's procedure as docs/papers.md corrects it: zeros are skipped, e itself is included."""
    vector = list(dependencies[event])
    while True:
        old = list(vector)
        for x, count in enumerate(old):
            if count:
                vector = [max(pair) for pair in zip(vector, dependencies[x, count], strict=True)]
        if vector == old:
            return tuple(vector)


@pytest.mark.parametrize("name", ["p2:1", "p2:2", "incremental"])
def test_the_fixed_point_is_the_papers(name, dice):
    made = Computation([create(name, me, 6) for me in range(6)]).run(dice, 400)
    found = vectors(made.stamps.values())
    dependencies = {event: stamp.dependencies for event, stamp in made.stamps.items()}
    assert found == {event: as_printed(event, dependencies) for event in made.stamps}
    assert any(found[event] != dependencies[event] for event in found)


def test_long_chains_need_no_recursion():
    stamps = [Timestamp(0, seq, dependencies=(seq,)) for seq in range(1, 5001)]
    assert vectors(reversed(stamps))[0, 5000] == (5000,)


def test_a_missing_event_is_named():
    with pytest.raises(LocalProtocolError, match=r"event \(1, 3\) is named as a cause"):
        vectors([Timestamp(0, 1, dependencies=(1, 3))])


def test_a_circle_is_refused():
    stamps = [Timestamp(0, 1, dependencies=(1, 1)), Timestamp(1, 1, dependencies=(1, 1))]
    with pytest.raises(LocalProtocolError, match="depends on itself"):
        vectors(stamps)


def test_vectors_need_no_reconstruction():
    with pytest.raises(LocalProtocolError, match="no dependency vector"):
        vectors([Timestamp(0, 1, (1, 0))])


def test_renumbering_skips_null_events():
    stamps = [
        Timestamp(0, 1, dependencies=(1, 0), null=True),
        Timestamp(0, 2, dependencies=(2, 0)),
        Timestamp(1, 1, dependencies=(1, 1)),
        Timestamp(1, 2, dependencies=(2, 2)),
    ]
    found = renumbered(stamps, vectors(stamps))
    assert found == {(0, 1): (1, 0), (1, 1): (0, 1), (1, 2): (1, 2)}
