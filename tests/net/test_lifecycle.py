"""The states of a node: every pair of them is either a transition or refused."""

import re
from itertools import product
from pathlib import Path

import pytest

from happened.core.errors import LocalProtocolError
from happened.net import NodeClosed
from happened.net.lifecycle import TRANSITIONS, Lifecycle, State

WAYS = {  # the shortest way to each state
    State.NEW: (),
    State.REPLAYING: (State.REPLAYING,),
    State.RUNNING: (State.REPLAYING, State.RUNNING),
    State.CLOSING: (State.REPLAYING, State.RUNNING, State.CLOSING),
    State.SAVING: (State.REPLAYING, State.RUNNING, State.CLOSING, State.SAVING),
    State.FAILED: (State.REPLAYING, State.RUNNING, State.FAILED),
    State.CLOSED: (State.CLOSED,),
}
ALLOWED = {  # written out by hand, beside the table in the source
    ("new", "replaying"),
    ("new", "closed"),
    ("replaying", "running"),
    ("replaying", "closed"),
    ("running", "closing"),
    ("running", "failed"),
    ("running", "closed"),
    ("closing", "saving"),
    ("closing", "failed"),
    ("closing", "closed"),
    ("saving", "failed"),
    ("saving", "closed"),
    ("failed", "closed"),
}


def at(state):
    life = Lifecycle("alice")
    for each in WAYS[state]:
        life.move(each)
    assert life.state is state
    return life


@pytest.mark.parametrize("before, after", list(product(State, State)))
def test_each_pair_of_states_is_a_transition_or_refused(before, after):
    life = at(before)
    if (before.value, after.value) in ALLOWED:
        life.move(after)
        assert life.state is after
    else:
        with pytest.raises(LocalProtocolError, match=f"'alice' is {before.value} and cannot become"):
            life.move(after)
        assert life.state is before
    assert life.is_running == (life.state is State.RUNNING)
    assert life.takes_input == (life.state in (State.RUNNING, State.CLOSING))


def test_every_state_is_reached_and_only_the_end_has_no_way_out():
    reached, stack = set(), [State.NEW]
    while stack:
        state = stack.pop()
        if state not in reached:
            reached.add(state)
            stack += TRANSITIONS[state]
    assert reached == set(State) == set(TRANSITIONS)
    assert [state for state in State if not TRANSITIONS[state]] == [State.CLOSED]


@pytest.mark.parametrize("state", State)
def test_what_the_application_may_do_in_each_state(state):
    life = at(state)
    for check, may in ((life.check_running, life.is_running), (life.check_takes_input, life.takes_input)):
        if may:
            check()
        else:
            is_early = state in (State.NEW, State.REPLAYING)
            with pytest.raises(NodeClosed, match="not started" if is_early else "is closed"):
                check()


@pytest.mark.parametrize("state", [State.RUNNING, State.CLOSING, State.SAVING])
def test_the_first_failure_is_kept_and_told_as_the_cause(state):
    life, first = at(state), OSError("the disk is on fire")
    assert life.fail(first) and life.state is State.FAILED
    assert not life.fail(OSError("and the house too")) and life.failure is first
    with pytest.raises(NodeClosed, match="'alice' has stopped: the disk is on fire") as caught:
        life.check_takes_input()
    assert caught.value.__cause__ is first
    life.move(State.CLOSED)
    assert not life.fail(first) and life.failure is first and life.state is State.CLOSED


def test_what_has_ended_does_not_fail():
    life = at(State.CLOSED)
    assert not life.fail(OSError("too late")) and life.failure is None


def test_the_table_in_the_documentation_is_the_one_of_the_source():
    text = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    for state in State:
        (row,) = re.findall(rf"^\| `{state.value}` \|.*\|(.*)\|$", text, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == {after.value for after in TRANSITIONS[state]}
