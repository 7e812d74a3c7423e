"""The explorer of computations: what it counts, what it finds, and what it says."""

import pytest

from happened.sim.explore_tracking import explore_tracking
from happened.tracking import create


class Silent:
    """Tells nobody anything."""

    def __init__(self, me, n):
        self._inner = create("vector", me, n)
        self._mute = create("vector", me, n)
        self.me, self.n = me, n

    def relevant(self):
        return self._inner.relevant()

    def on_send(self, to):
        return self._mute.on_send(to)

    def on_receive(self, sender, piggyback):
        self._inner.on_receive(sender, piggyback)

    def snapshot(self):
        return self._inner.snapshot()

    def restore(self, data):
        self._inner.restore(data)


class Fragile(Silent):
    def on_receive(self, sender, piggyback):
        raise RuntimeError("no news is welcome")


def test_the_states_of_two_processes_one_message_and_one_event_counted_by_hand():
    """Nothing; a message on its way from 0 to 1; that message received: the asked-for event is not a state.

    Received and never sent differ only in how many messages are left.
    """
    result = explore_tracking("vector", 2, 1, 1)
    assert (result.states, result.transitions, result.violations) == (3, 2, ())


def test_the_first_failure_is_as_short_as_any():
    (violation,) = explore_tracking(Silent, 3, 3, 3).violations
    assert violation.schedule == ("event at 0", "0 sends to 1", "1 receives from 0")
    assert violation.reason == "1's next event has the vector (1, 1, 0), not (0, 1, 0)"


def test_an_exception_is_a_failure():
    (violation,) = explore_tracking(Fragile, 2, 1, 1).violations
    assert "RuntimeError: no news is welcome" in violation.reason


def test_more_failures_on_request():
    assert len(explore_tracking(Silent, 3, 3, 3, limit=5).violations) == 5


def test_a_message_can_overtake_another_only_without_fifo_links():
    """Singhal and Kshemkalyani's differences need FIFO links: without them an entry is lost."""
    assert explore_tracking("differential", 3, 3, 3, fifo=True).violations == ()
    (violation,) = explore_tracking("differential", 3, 3, 3, fifo=False).violations
    assert "vector" in violation.reason and "number 2 in flight" in "".join(violation.schedule)


@pytest.mark.parametrize("name", ["p1-fifo", "p1-prime-fifo", "p2-fifo", "p3-reduced-fifo"])
def test_fifo_improvements_need_fifo_links(name):
    assert explore_tracking(name, 3, 3, 3, fifo=False).violations


def test_a_bound_is_judged():
    assert explore_tracking("p2:2", 3, 3, 3, bound=2).violations == ()
    (violation,) = explore_tracking("p1", 3, 3, 3, bound=1).violations
    assert violation.reason == "1 sends more than 1 entries"


def test_sends_that_a_tracker_forbids_are_counted():
    result = explore_tracking("direct", 3, 3, 3)
    assert result.refused > 0 and result.violations == ()
