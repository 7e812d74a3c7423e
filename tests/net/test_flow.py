"""Back-pressure as a function of numbers: each limit alone, just at it and one above."""

import pytest

from happened.net import Limits
from happened.net.limits import Flow
from happened.net.sending import lacks_room

LIMITS = Limits(
    payload=10, frame=100, outbox=1000, held=20, undelivered=30, undelivered_bytes=4000, staged=500
)
CALM = {
    "undelivered": 30,
    "undelivered_bytes": 4000,
    "staged": 500,
    "outbox_bytes": [2100, 0],
    "held_on_link": {0: 0, 1: 20, 3: 0},
}


def paused(relays=True, **changed):
    numbers = {**CALM, **changed}
    held = sum(numbers["held_on_link"].values())
    return Flow(LIMITS, relays=relays).links_to_pause(held=held, **numbers)


def test_at_the_limits_every_link_is_read():
    assert paused() == set()


@pytest.mark.parametrize(
    "changed",
    [{"undelivered": 31}, {"undelivered_bytes": 4001}, {"staged": 501}, {"outbox_bytes": [0, 2101]}],
    ids=lambda changed: next(iter(changed)),
)
def test_above_any_of_them_no_link_is_read(changed):
    assert paused(**changed) == {0, 1, 3}


def test_full_outboxes_stop_the_links_only_of_those_who_relay():
    """Twice the limit and a frame: our own multicasts wait at the limit, so they never pause a link."""
    assert paused(relays=False, outbox_bytes=[10**9]) == set()
    assert paused(relays=True, outbox_bytes=[1001]) == set()


def test_too_many_held_stop_the_links_that_have_some():
    assert paused(held_on_link={0: 0, 1: 20, 3: 1}) == {1, 3}
    assert paused(held_on_link={0: 0, 1: 20, 3: 1}, staged=501) == {0, 1, 3}


def test_too_many_bytes_held_do_the_same():
    most = LIMITS.held_bytes
    assert paused(held_bytes=most) == set()
    assert paused(held_bytes=most + 1) == {1}


def test_a_node_without_links_pauses_nothing():
    assert paused(held_on_link={}, staged=501) == set()


@pytest.mark.parametrize(
    "staged, queued, expected", [(0, 0, True), (500, 1000, True), (501, 0, False), (0, 1001, False)]
)
def test_there_is_room_up_to_the_limits(staged, queued, expected):
    assert (lacks_room(LIMITS, staged, queued) is None) is expected
