"""Events as people name them: what is found, what is ambiguous, what is near; and names that mean harm."""

import pytest

from causality.traces import number, table
from happened import ask
from happened.ask.finding import find_event, find_request
from happened.core.errors import CausalityError


def span(label, id, trace="t1", **more):
    return {"kind": "internal", "label": label, "attributes": [("span", id), ("trace", trace)]} | more


SHOP = {
    "web": [
        span("GET /cart", "s1"),
        {"kind": "send", "message": "order", "to": ["bank", "stock"]},
        span("GET /cart", "s1"),
        span("render", "s4"),
        span("render (end)", "s4"),
    ],
    "bank": [{"kind": "deliver", "message": "order"}, span("charge card", "s2"), span("Refund", "s2", "t2")],
    "stock": [{"kind": "deliver", "message": "order"}, {"kind": "send", "message": "done", "to": ["web"]}],
}
HISTORY = ask.load(table(number(SHOP, "shop")))


def found(text, end="last", history=HISTORY):
    return history.occurrence(find_event(history, text, end)).id


@pytest.mark.parametrize(
    "text, first, last",
    [
        ("web#2", "web#2", "web#2"),
        ("shop:web#2", "web#2", "web#2"),
        ("s1", "web#1", "web#3"),  # a span is two events
        ("t1:s2", "bank#2", "bank#2"),
        ("t2:s2", "bank#3", "bank#3"),
        ("GET /cart", "web#1", "web#3"),
        ("get /", "web#1", "web#3"),
        ("charge", "bank#2", "bank#2"),
        ("render", "web#4", "web#5"),  # a label of its first event, that stands for the span
        ("done", "stock#2", "stock#2"),  # sent, and not delivered
    ],
)
def test_names_that_are_found(text, first, last):
    assert (found(text, "first"), found(text, "last")) == (first, last)


def test_a_message_is_its_send_as_a_cause_and_its_deliveries_as_effects():
    assert found("order", "first") == "web#2"
    with pytest.raises(ask.AmbiguousName, match="'order' names 2 things; say which:\n  ") as error:
        found("order")
    assert sorted(error.value.candidates) == ["bank#1", "stock#1"]
    assert all(found(name) == name for name in error.value.candidates)


def test_a_span_id_of_two_traces_is_ambiguous():
    with pytest.raises(ask.AmbiguousName) as error:
        found("s2")
    assert sorted(error.value.candidates) == ["bank#2", "bank#3"]
    assert "bank#3  internal “Refund”, request t2" in str(error.value)


def test_the_events_of_a_span_in_one_service_are_one_thing_and_its_halves_are_two():
    def half(service, time):
        return {"kind": "internal", "time": time, "attributes": [("span", "s"), ("service", service)]}

    chains = {"web/1": [half("web", 1)], "web/2": [half("web", 2)]}
    assert found("s", "first", ask.load(table(number(chains)))) == "web/1#1"
    with pytest.raises(ask.AmbiguousName, match="'s' names 2 things"):
        found("s", history=ask.load(table(number(chains | {"bank": [half("bank", 3)]}))))


def test_many_candidates_are_counted():
    history = ask.load(table(number({"p": [{"kind": "internal", "label": "tick"}] * 30})))
    with pytest.raises(ask.AmbiguousName, match=r"names 30 things(.|\n)*… and 20 more$") as error:
        found("tick", history=history)
    assert len(error.value.candidates) == 30


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("web#9", "there is no event 'web#9': process 'web' has the events 1 to 5"),
        ("wed#2", "nearest: 'web#2'"),
        ("wed#9", "nearest: 'web#5'"),  # what is told is there
        ("wed#0", "nearest: 'web#1'"),
        ("odrer", "nearest: 'order'"),
        ("chrge", "nearest: 'charge card'"),
        ("zzzzzzzz", "no process#seq, span, message or label$"),
        ("", "nothing in the trace is called ''"),
        ("   ", "nothing in the trace is called '   '"),
        ("#", "nothing in the trace is called '#'"),
        ("web#", "nothing in the trace is called 'web#'"),
        ("web#-1", "nothing in the trace is called"),
        ("web#" + "9" * 40, "there is no event"),
        ("web#²", "nothing in the trace is called"),
        ("web#0", "there is no event 'web#0'"),
        (":::#1", "nothing in the trace is called"),
        ("x" * 10_000, "nothing in the trace is called"),
        ("a\x1b[31mb\nc", r"called 'a\\x1b\[31mb\\nc'"),
    ],
)
def test_unknown_names_get_a_clear_sentence(text, sentence):
    with pytest.raises(ask.UnknownName, match=sentence):
        found(text)


HOSTILE = [
    "a#1",
    "a:b",
    ":",
    "#",
    "a:b#2",
    " ",
    "\n",
    "\x1b[2J",
    "naïve",
    "日本#3",
    "'; drop table",
    "%s{0}",
    "\\",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_processes_messages_labels_and_computations(name):
    events = [
        {"kind": "send", "message": f"m{name}", "to": [name]},
        {"kind": "deliver", "message": f"m{name}", "label": f"l{name}l"},
    ]
    history = ask.load(table(number({name: events}, name)))
    assert find_event(history, f"{name}#2") == find_event(history, f"{name}:{name}#2") == 1
    assert find_event(history, f"m{name}", "first") == 0
    assert find_event(history, f"l{name}l") == 1
    assert find_request(history, name) == 0
    answer = ask.why(history, f"{name}#2")
    assert str(answer.event).isprintable() and str(answer.causes[0].event).isprintable()
    assert ask.path(history, f"{name}#1", f"{name}#2").relation == "before"
    assert ask.past(history, f"{name}#2").num_rows == ask.future(history, f"{name}#1").num_rows == 1


def test_one_name_in_two_computations():
    rows = number({"p": [{"kind": "internal"}]}, "one") + number({"p": [{"kind": "internal"}]}, "two")
    history = ask.load(table(rows))
    with pytest.raises(ask.AmbiguousName) as error:
        find_event(history, "p#1")
    assert sorted(error.value.candidates) == ["one:p#1", "two:p#1"]
    assert history.occurrence(find_event(history, "two:p#1")).computation == "two"
    answer = ask.path(history, "one:p#1", "two:p#1")
    assert answer.relation == "concurrent" and "two computations, 'one' and 'two'" in answer.reason


def test_requests_by_id_beginning_or_event():
    _, names = HISTORY.requests
    assert names[find_request(HISTORY, "t1")] == "t1"
    assert names[find_request(HISTORY, "Refund")] == "t2"
    with pytest.raises(ask.AmbiguousName, match="'t' names 2 things"):
        find_request(HISTORY, "t")
    with pytest.raises(ask.UnknownName, match="belongs to no request"):
        find_request(HISTORY, "stock#1")


def test_a_broken_computation_is_left_out_and_counted():
    rows = number({"p": [{"kind": "internal"}]}, "one") + number({"p": [{"kind": "internal"}] * 2}, "two")[1:]
    history = ask.load(table(rows))
    assert history.quarantined == 1
    assert history.union.computation_names == ("one",)
    with pytest.raises(CausalityError, match="no events to ask about: all 1 rows are quarantined"):
        ask.load(table(rows[1:]))
    with pytest.raises(CausalityError, match=r"has no events to ask about$"):
        ask.load(table([]))
