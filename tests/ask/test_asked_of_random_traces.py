"""why, path, past, future, influenced, against sets of all pairs, on thousands of random traces."""

from itertools import pairwise
from random import Random

import pytest
from brute import Brute

from ask.worlds import rows_of
from causality.traces import table
from effort import samples
from happened import ask
from happened.ask.causes import ABOVE, DEEP, ELSEWHERE, FIRST, RELEVANT

NAME = ["computation", "process", "seq"]
pytestmark = pytest.mark.sampled

WORLDS = samples(500)
"""Each has several computations, each of which is a random trace of its own: some 3,000 in all."""


def worlds(seed):
    """(random, history, brute) of so many traces that have an event."""
    for number in range(WORLDS):
        random = Random(seed * 100_003 + number)
        rows = rows_of(random)
        if rows:
            told = [row | {"attributes": dict(row["attributes"])} for row in rows]
            yield random, ask.load(table(rows)), Brute(told)


def chosen(random, brute):
    """An event of each computation."""
    for computation in brute.closures:
        yield random.choice([name for name in brute.rows if name[0] == computation])


def text(name):
    return f"{name[0]}:{name[1]}#{name[2]}"


def key(occurrence):
    return occurrence.computation, occurrence.process, occurrence.seq


def names(found):
    return {tuple(row.values()) for row in found.select(NAME).to_pylist()}


def test_past_and_future(seed):
    for random, history, brute in worlds(seed):
        for name in chosen(random, brute):
            past, future = ask.past(history, text(name)), ask.future(history, text(name))
            assert names(past) == brute.past(name)
            assert names(future) == brute.future(name)
            assert past.num_rows == len(brute.past(name))
            order = [tuple(row.values()) for row in past.select(NAME).to_pylist()]
            for at, each in enumerate(order):
                assert brute.past(each) <= set(order[:at])  # causes before effects


def test_paths_and_their_absence(seed):
    seen = dict.fromkeys(("before", "after", "concurrent", "same"), 0)
    for random, history, brute in worlds(seed):
        for one in chosen(random, brute):
            among = list(brute.rows) if random.random() < 0.1 else [n for n in brute.rows if n[0] == one[0]]
            other = random.choice(among)
            found = ask.path(history, text(one), text(other))
            assert found.relation == brute.relation(one, other)
            assert (key(found.first), key(found.second)) == (one, other)
            assert found.reason
            seen[found.relation] += 1
            if found.relation in ("concurrent", "same"):
                assert not found.steps
            else:
                ends = (one, other) if found.relation == "before" else (other, one)
                check_chain(brute, found.steps, *ends)
    assert min(seen.values()) >= WORLDS // 10, seen


def check_chain(brute, steps, first, last):
    chain = [key(step.event) for step in steps]
    assert (chain[0], chain[-1]) == (first, last)
    for (cause, effect), step in zip(pairwise(chain), steps[1:], strict=True):
        if step.edge == "clock":
            assert cause[1] == effect[1] and brute.rows[cause]["time"] < brute.rows[effect]["time"]
        elif step.edge == "process":
            assert cause[:2] == effect[:2] and cause[2] < effect[2]
        else:
            assert cause in brute.edges_into(effect) and step.edge == brute.edge(cause, effect)


def expected_causes(brute, name):
    """(cause, edge, passed over) of each immediate predecessor; what brought nothing is passed over."""
    found = set()
    for cause in brute.immediate(name):
        edge, between = brute.edge(cause, name), 0
        before = (*cause[:2], cause[2] - 1)
        while edge == "process" and not brute.relevant(cause) and brute.immediate(cause) == {before}:
            cause, between = before, between + 1
            before = (*cause[:2], cause[2] - 1)
        found.add((cause, edge, between))
    return found


def place(brute, name):
    return (brute.rows[name].get("attributes") or {}).get("service") or name[1]


@pytest.mark.parametrize("depth", [None, 1, 3])
def test_trees_of_causes(seed, depth):
    ends = set()
    for random, history, brute in worlds(seed):
        for name in chosen(random, brute):
            answer = ask.why(history, text(name), depth=depth)
            assert not answer.cut
            ends |= check_tree(brute, name, answer.causes, depth)
    assert ends >= ({RELEVANT, ELSEWHERE, FIRST} if depth is None else {DEEP, FIRST})
    assert depth != 3 or ABOVE in ends


def check_tree(brute, name, causes, depth):
    """Level by level; returns why branches end."""
    told, level, deep, ends = set(), [(name, causes)], 0, set()
    while level:
        deep += 1
        following = []
        for effect, causes in level:
            assert {(key(c.event), c.edge, c.between) for c in causes} == expected_causes(brute, effect)
            assert len(causes) == len(brute.immediate(effect))
            for cause in causes:
                check_end(brute, name, cause, told, deep, depth)
                ends.add(cause.end)
                told.add(key(cause.event))
                if not cause.end:
                    following.append((key(cause.event), cause.causes))
        level = following
    return ends


def check_end(brute, root, cause, told, level, depth):
    name = key(cause.event)
    if not brute.past(name):
        expected = FIRST
    elif name in told:
        expected = ABOVE
    elif level >= (depth or 5):
        expected = DEEP
    elif depth is None and brute.relevant(name):
        expected = RELEVANT
    elif depth is None and place(brute, name) != place(brute, root):
        expected = ELSEWHERE
    else:
        expected = ""
    assert cause.end == expected
    assert bool(cause.causes) == (not expected)


def moments(history, brute):
    """When each event can have happened at the earliest: its time, or that of the last of its causes."""
    times = {key(event): event.time for event in history.occurrences(range(history.union.events))}
    since = {}

    def when(event):
        if event not in since:
            known = [when(cause) for cause in brute.edges_into(event)]
            last = max((time for time in known if time is not None), default=None)
            since[event] = times[event] if times[event] is not None else last
        return since[event]

    return when


def test_the_last_cause_is_the_latest_and_the_chain_of_them_leads_back(seed):
    judged = 0
    for random, history, brute in worlds(seed):
        when = moments(history, brute)
        for name in chosen(random, brute):
            answer = ask.why(history, text(name), depth=1)
            direct = {cause: when(cause) for cause in brute.edges_into(name)}
            latest = max((time for time in direct.values() if time is not None), default=None)
            assert sum(cause.last for cause in answer.causes) <= (latest is not None)
            if when(name) is None:
                assert not answer.late
                continue
            judged += 1
            chain = [key(step.event) for step in answer.late]
            check_chain(brute, answer.late, chain[0], name)
            assert all(when(cause) is None for cause in brute.edges_into(chain[0]))
            if latest is None:
                assert chain == [name]
            elif answer.late[-1].edge != "process":
                assert direct[chain[-2]] == latest
            else:
                assert latest in {time for cause, time in direct.items() if cause[1] == name[1]}
    assert judged > WORLDS


@pytest.mark.parametrize("by_clock", [False, True])
def test_requests_that_influenced_another(seed, by_clock):
    found = 0
    for random, history, brute in worlds(seed):
        members = brute.members()
        if not members:
            continue
        request = random.choice(sorted(members))
        answer = ask.influenced(history, request, by_clock=by_clock)
        assert answer.request == request and answer.requests == len(members)
        assert {other.request: other.events for other in answer.others} == brute.influenced(request, by_clock)
        for other in answer.others:
            first, last = (key(other.chain[at].event) for at in (0, -1))
            assert first in members[other.request] and last in members[request]
            check_chain(brute, other.chain, first, last)
            assert by_clock or all(step.edge != "clock" for step in other.chain)
            back = ask.influenced(history, other.request, direction="future", by_clock=by_clock)
            assert request in {each.request for each in back.others}
        found += len(answer.others)
    assert found > WORLDS // 2
