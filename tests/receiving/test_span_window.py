"""When a trace is open, ended or gone, and what becomes of spans that come again, or late."""

import random

import pytest

from happened.receiving.intake import REMEMBERED, SpanWindow, WindowRules
from happened.trace.readers.span_drafts import Instance, Span

RULES = WindowRules(settle=5, window=60, most_spans=100)


def span(trace, id, *, start=1, end=2, name="work"):
    return Span(trace, id, Instance("shop", "shop-1"), name, "", start, end).draft("test", 1)


def ended(window, now):
    return [trace for trace, _ in window.ended(now)]


def advance(window, now):
    """Every trace is judged by itself."""
    window.let_go([frozenset([each]) for each in window.all()], now)


def test_a_trace_has_ended_when_no_span_came_for_a_while_and_a_span_opens_it_again():
    window = SpanWindow(RULES)
    window.add([span("a", "1")], 0)
    window.add([span("b", "1")], 3)
    assert (ended(window, 4), window.open(4)) == ([], 2)
    assert (ended(window, 5), window.open(5)) == (["a"], 1)
    window.add([span("a", "2")], 6)
    assert ended(window, 8) == ["b"]
    assert ended(window, 11) == ["b", "a"]


def test_a_trace_that_changed_has_another_version_and_one_that_did_not_has_the_same():
    window = SpanWindow(RULES)
    window.add([span("a", "1"), span("b", "1")], 0)
    before = window.ended(10)
    window.add([span("b", "2")], 11)
    after = window.ended(20)
    assert [trace for trace, version in after if (trace, version) not in before] == ["b"]


def test_a_trace_leaves_the_window_and_its_late_spans_are_counted_and_not_judged():
    window = SpanWindow(RULES)
    window.add([span("a", "1")], 0)
    advance(window, 59)
    assert ended(window, 59) == ["a"]
    advance(window, 60)
    assert (ended(window, 60), window.spans) == ([], 0)
    window.add([span("a", "2")], 61)
    assert (ended(window, 99), window.counts["late"], window.spans) == ([], 1, 0)


def test_traces_that_are_judged_together_leave_together_and_only_as_they_were_grouped():
    window = SpanWindow(RULES)
    window.add([span("a", "1"), span("c", "1")], 0)
    window.add([span("b", "1")], 30)
    a, c, b = window.all()
    groups = [frozenset([a, b]), frozenset([c])]
    assert not window.is_any_silent(59) and window.since(99) == 0
    assert window.let_go(groups, 60) == [frozenset([c])]
    window.add([span("a", "2")], 70)  # it is another version, and the group is no group any more
    assert window.let_go(groups, 200) == [] and window.since(99) == 0
    assert window.let_go([frozenset(window.all())], 200) == [frozenset({("a", 4), ("b", 3)})]
    assert (window.spans, window.since(99)) == (0, 99)


def test_a_span_that_is_sent_again_is_taken_once_and_does_not_keep_its_trace_open():
    window = SpanWindow(RULES)
    window.add([span("a", "1")], 0)
    window.add([span("a", "1"), span("a", "1")], 4)
    assert (window.spans, window.counts["repeated"], ended(window, 5)) == (1, 2, ["a"])


def test_pieces_of_a_span_are_all_kept_for_the_reader_to_merge():
    window = SpanWindow(RULES)
    window.add([span("a", "1", end=None), span("a", "1", start=None)], 0)
    assert window.spans == 2


def test_too_many_spans_push_out_the_traces_that_were_silent_longest():
    window = SpanWindow(RULES)
    for number in range(30):
        window.add([span(f"t{number}", str(k)) for k in range(10)], number)
        assert window.spans <= RULES.most_spans
    assert ended(window, 99) == [f"t{number}" for number in range(20, 30)]
    assert window.counts["dropped"] == 200


def test_one_trace_that_is_larger_than_the_window_goes_and_does_not_come_back():
    window = SpanWindow(RULES)
    window.add([span("huge", str(k)) for k in range(101)], 0)
    window.add([span("huge", "more")], 1)
    assert (window.spans, window.counts["dropped"], window.counts["late"]) == (0, 101, 1)


def test_what_is_remembered_of_the_gone_is_bounded():
    window = SpanWindow(RULES)
    for number in range(REMEMBERED + 1):
        window.add([span(str(number), "1")], 0)
        advance(window, 100)
    assert len(window._gone) == REMEMBERED
    window.add([span("0", "1")], 200)
    assert (window.counts["late"], ended(window, 300)) == (0, ["0"])


@pytest.mark.parametrize("part", range(5))
def test_against_a_list_of_arrivals(seed, part):
    """The oracle goes through all arrivals for every question."""
    random_ = random.Random(f"{seed}/{part}")
    window, arrivals, now = SpanWindow(RULES), {}, 0.0
    for step in range(200):
        now += random_.choice([0, 1, 3, 30])
        advance(window, now)
        last = {trace: max(times) for trace, times in arrivals.items()}
        gone = {trace for trace, at in last.items() if now - at >= RULES.window}
        arrivals = {trace: times for trace, times in arrivals.items() if trace not in gone}
        trace = f"{random_.randrange(4)}-{int(now) // 100}"
        if trace in window._gone:
            continue
        window.add([span(trace, str(step))], now)
        arrivals.setdefault(trace, []).append(now)
        expected = {trace for trace, times in arrivals.items() if now - max(times) >= RULES.settle}
        assert set(ended(window, now)) == expected
        assert window.spans == sum(map(len, arrivals.values()))
