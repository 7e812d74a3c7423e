"""Every protocol is exact on every small computation: sets of events are the judge."""

import pytest

from happened.sim.explore_tracking import explore_tracking
from happened.tracking import protocols

PROTOCOLS = [name for name in protocols() if not name.startswith("p2")]
PROTOCOLS += [f"{name}:{b}" for name in protocols() if name.startswith("p2") for b in (1, 2)]


def exact(name, processes, messages, relevant, *, fifo):
    base, _, bound = name.partition(":")
    result = explore_tracking(
        name, processes, messages, relevant, fifo=fifo, bound=int(bound) if bound else None
    )
    assert result.violations == ()
    assert (result.refused > 0) == (base == "direct")
    return result


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if i % 3 else []) for i, name in enumerate(PROTOCOLS)],
)
def test_exact_with_three_processes_four_messages_and_three_events(name):
    fifo = protocols()[name.partition(":")[0]].fifo_links
    assert exact(name, 3, 4, 3, fifo=fifo).states > 15_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p1", "p3-reduced"])
def test_exact_with_three_processes_four_messages_and_four_events(name):
    fifo = protocols()[name].fifo_links if name in protocols() else False
    assert exact(name, 3, 4, 4, fifo=fifo).states > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("fifo", [False, True], ids=["any links", "FIFO links"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_exact_with_three_processes_four_messages_and_four_events_everywhere(name, fifo):
    if fifo or not protocols()[name.partition(":")[0]].fifo_links:
        assert exact(name, 3, 4, 4, fifo=fifo).states > 60_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["p1", "p1-prime", "p1-prime-fifo", "p2:2", "p2-prime:2", "p3-reduced", "p3-reduced-prime"]
)
def test_exact_with_four_processes(name):
    fifo = name in protocols() and protocols()[name].fifo_links
    assert exact(name, 4, 3, 4, fifo=fifo).states > 60_000
    assert exact(name, 4, 4, 3, fifo=fifo).states > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p1", "p1-prime", "p2:1", "p3-reduced", "p3-reduced-prime"])
def test_exact_with_three_processes_five_messages_and_four_events(name):
    assert exact(name, 3, 5, 4, fifo=False).states > 500_000
