"""What the panel beside the picture says: it is what the picture shows, for whoever reads or listens."""

from random import Random

import pytest

from causality.traces import number, table, wild
from oracles.closure import by_computation


def story(chains):
    return table(number(chains))


def two_messages(**times):
    """p tells q, which tells r. Times are given by the names of the events."""
    chains = {
        "p": [{"kind": "send", "message": "a", "to": ["q"], "label": "asks"}],
        "q": [{"kind": "deliver", "message": "a"}, {"kind": "send", "message": "b", "to": ["r"]}],
        "r": [{"kind": "deliver", "message": "b", "label": "hears"}],
    }
    for name, time in times.items():
        chains[name[0]][int(name[1:]) - 1]["time"] = time
    return story(chains)


@pytest.mark.parametrize(
    ("times", "told"),
    [
        ({}, "4 events: a longest chain of causes."),
        ({"q1": 7}, "4 events: a longest chain of causes."),
        ({"p1": 5, "q1": 5, "q2": 5, "r1": 5}, "4 events in 0 ns: before each event"),
        (
            {"p1": 1 - 2**63, "q1": 0, "q2": 1, "r1": 2**63 - 1},
            "4 events in 18446744073.71 s: before each event",
        ),
        ({"p1": 9, "q1": 3, "q2": 4, "r1": 5}, "4 events in 1 ns: before each event"),  # p's clock is ahead
    ],
)
def test_there_is_a_critical_path_whatever_the_clocks_say(look, times, told):
    tab = look(two_messages(**times))
    tab.page.keyboard.press("c")
    assert told in tab.panel() and "NaN" not in tab.panel()


def test_a_list_of_events_says_what_they_were(look):
    tab = look(two_messages())
    tab.page.keyboard.press("c")
    assert "p#1 send a “asks”" in tab.panel() and "q#1 deliver a" in tab.panel()
    tab.page.get_by_role("tab", name="In view").click()
    assert "r#1 deliver b “hears”" in tab.panel()


def test_of_a_long_critical_path_the_end_is_listed_and_the_rest_owned_up_to(look):
    tab = look(story({"p": [{"kind": "internal"}] * 230}))
    tab.page.keyboard.press("c")
    assert "230 events" in tab.panel() and "The last 200 of them are listed." in tab.panel()


def test_a_second_event_is_selected_with_fingers_alone(look):
    tab = look(two_messages(), touch=True)
    tab.page.touchscreen.tap(*tab.ask("happened.at('p#1')"))
    tab.page.get_by_role("button", name="Select a second").tap()
    assert tab.page.get_by_role("button", name="Select a second").get_attribute("aria-pressed") == "true"
    tab.page.touchscreen.tap(*tab.ask("happened.at('r#1')"))
    assert tab.live() == "p#1 happened before r#1."
    tab.page.get_by_role("button", name="Forget the first").tap()
    tab.page.keyboard.press("Escape")
    tab.page.touchscreen.tap(*tab.ask("happened.at('q#1')"))
    assert tab.live().startswith("q#1, deliver a.")


def test_a_delivery_of_an_unordered_message_is_no_fault_and_a_lost_message_says_where(look):
    chains = {
        "p": [
            {"kind": "unordered", "message": "aside", "to": ["q"]},
            {"kind": "send", "message": "lost", "to": ["q", "r"]},
        ],
        "q": [{"kind": "deliver", "message": "aside"}, {"kind": "deliver", "message": "lost"}],
        "r": [{"kind": "internal"}],
    }
    tab = look(story(chains))
    tab.page.get_by_role("tab", name="Faults").click()
    assert "undefined" not in tab.panel() and "astray" not in tab.panel()
    assert "lost at r" in tab.panel()
    tab.click("q#1")
    assert "fate" not in tab.panel()


def test_the_list_of_computations_counts_the_faults_that_are_listed(look):
    twice = {
        "p": [{"kind": "send", "message": "m", "to": ["q"]}],
        "q": [{"kind": "deliver", "message": "m"}, {"kind": "deliver", "message": "m"}],
    }
    rows = [{**row, "computation": name} for name in "ab" for row in number(twice)]
    tab = look(table(rows))
    assert tab.page.inner_text("#computation option >> nth=0") == "a · 3 · 1 fault"
    assert tab.page.get_by_role("tab", name="Faults").inner_text() == "Faults 1"


def told_under(tab, heading):
    """The names of the events that the panel lists below a heading."""
    found = tab.page.locator("#panel-body section").filter(has=tab.page.get_by_text(heading, exact=True))
    return set(found.locator("b").all_inner_texts()) if found.count() else set()


def test_immediate_predecessors_and_common_pasts_are_told_as_they_are(look, seed):
    rows = next(rows for k in range(100) if len(rows := wild(Random(seed + k))) > 12)
    for row in rows:
        row["relevant"] = (row["seq"] + seed) % 3 > 0
    (closure,) = by_computation(rows).values()
    name = {e: f"{e[0]}#{e[1]}" for e in closure.event}
    marked = {(row["process"], row["seq"]) for row in rows if row["relevant"]} or set(name)
    after = {e: {f for f in name if closure.happened_before(e, f)} for e in name}
    tab = look(table(rows))
    tab.page.keyboard.press("h")
    for e in Random(seed).sample(sorted(marked), min(6, len(marked))):
        tab.ask(f"happened.select({name[e]!r})")
        past = closure.past[e] & marked
        expected = {name[f] for f in past if not after[f] & past}
        if tab.ask("happened.state().view") == "hasse":
            assert told_under(tab, "Immediate predecessors") == expected
    apart = [(e, f) for e in name for f in name if e < f and f not in after[e] and e not in after[f]]
    for e, f in Random(seed).sample(apart, min(4, len(apart))):
        tab.ask(f"happened.select({name[e]!r}, {name[f]!r})")
        past, future = closure.past[e] & closure.past[f], after[e] & after[f]
        assert f"In the past of both: {len(past)}. In the future of both: {len(future)}." in tab.panel()
