"""The page of a story in Chromium: each step shows what the story tells, forwards and backwards."""

import json
import re
from math import dist
from pathlib import Path

import pytest

from happened.cli.options import read_terrain
from happened.sim.programs import read_program
from happened.sim.story import Story, TrackerStory
from happened.view.story_page import story_page
from view.chromium import Tab

EXAMPLES = Path(__file__).parents[2] / "examples"


def figure_4_1():
    story = Story(read_program("1: {2,3}; 3: {2} {2}"), "histories")
    story.follow((EXAMPLES / "stories" / "figure_4_1.txt").read_text().splitlines())
    return story.document()


def figure_2_8():
    program = read_program("5: {4,6} {6}; 4: {2,3} {3,6}; 6: {1}; 2: {1} {1}; 3: {2}")
    story = Story(program, "ks", tick_at_deliveries=True)
    story.follow((EXAMPLES / "stories" / "figure_2_8.txt").read_text().splitlines())
    return story.document()


def to_itself():
    return Story(read_program("0: {0} {1}; 1: {0}"), "ks").play(2).document()


def figure_2():
    story = TrackerStory(read_program("0: e {1} e {1} e; 1: e e {0} e {2}; 2: e {1} e", events=True), "p3")
    story.follow((EXAMPLES / "stories" / "figure_2.txt").read_text().splitlines())
    return story.document()


def routers():
    terrain = read_terrain(EXAMPLES / "topologies" / "two-gateways.yaml")
    return Story(read_program("0: {5}; 5: {1}; 1: {0}"), "topological", terrain=terrain).play(3).document()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open a story's page; it must have asked nobody for anything, and complained of nothing."""
    tabs = []

    def opened(story, step=0, **options):
        file = tmp_path / "story.html"
        file.write_text(story_page(story), encoding="utf-8")
        tabs.append(Tab(chromium, **options))
        return tabs[-1].open(f"{file.as_uri()}#step={step}")

    yield opened
    for tab in tabs:
        asked = [url for url in tab.requests if not url.startswith(tmp_path.as_uri())]
        tab.context.close()
        assert (tab.errors, asked) == ([], [])


SHOWN = """() => ({
  where: document.getElementById("where").innerText, scene: document.getElementById("scene").innerText,
  known: Object.fromEntries([...document.querySelectorAll("td")].map(each => [each.id, each.innerText])),
})"""


def check(page, story, number):
    """What is shown after so many steps is what the story tells."""
    shown = page.evaluate(SHOWN)
    assert shown["where"] == f"{number} of {len(story['steps'])}"
    if number:
        step, scene = story["steps"][number - 1], shown["scene"]
        assert step["what"] in scene
        assert all(each["reason"] in scene and each["about"] in scene for each in step["rules"])
    for process in {step["process"] for step in story["steps"]}:
        own = [step for step in story["steps"][:number] if step["process"] == process]
        known = [f"{title} {text}" for title, text in own[-1]["known"]] if own else []
        held = [f"holds {text}" for text in own[-1]["held"]] if own else []
        assert shown["known"][f"known{process}"].split() == " ".join(known + held).split()


@pytest.mark.parametrize("story", [figure_4_1, figure_2, routers], ids=lambda story: story.__name__)
def test_each_step_is_shown_forwards_and_backwards(opened, story):
    story = story()
    page, steps = opened(story).page, len(story["steps"])
    for number in range(steps + 1):
        check(page, story, number)
        page.keyboard.press("ArrowRight")
    check(page, story, steps)  # one more than there are changes nothing
    for number in range(steps - 1, -1, -1):
        page.click("#back")
        check(page, story, number)


def test_only_the_events_up_to_a_step_are_drawn_and_can_be_chosen(opened):
    story = figure_4_1()
    tab = opened(story, 1)
    first, *others = sorted(tab.ask("happened.places()"), key=lambda place: place[1][0])
    tab.click(others[-1][0])
    assert tab.live() == "Nothing is selected."
    tab.click(first[0])
    assert tab.live().startswith(f"{first[0]}, send.")
    assert tab.ask("happened.lines().length") == 0  # the copies are under way
    tab.page.keyboard.press("End")
    tab.ask("true")  # once that is drawn
    assert tab.ask("happened.lines().length") == sum(bool(step["departed"]) for step in story["steps"])


def test_a_held_message_is_drawn_until_now_and_then_until_it_is_taken(opened):
    tab = opened(figure_4_1(), 5)
    assert [until - since for since, until in tab.ask("happened.held()")] == [0.5]
    tab.page.keyboard.press("End")
    assert [until - since for since, until in tab.ask("happened.held()")] == [2, 1]


def test_the_immediate_predecessors_of_an_event_are_marked_while_it_is_the_step(opened):
    story = figure_2()
    tab = opened(story)
    for number, step in enumerate(story["steps"], 1):
        tab.page.keyboard.press("ArrowRight")
        assert len(tab.ask("happened.links()")) == len(step["follows"]), number


@pytest.mark.parametrize(("story", "copies"), [(figure_2_8, 11), (to_itself, 3)])
def test_copies_are_led_around_steps_that_they_do_not_belong_to(opened, story, copies):
    story = story()
    tab = opened(story, len(story["steps"]), width=1800)
    tab.ask("happened.fit()")
    lines, places = tab.ask("happened.lines()"), tab.ask("happened.places()")
    assert len(lines) == copies and len(places) == len(story["steps"])
    for line in lines:
        for name, place, radius in places:
            if name not in line["ends"]:
                assert min(dist(place, point) for point in line["points"]) > radius + 1, (line["ends"], name)


def test_a_name_stands_where_fewest_lines_run_through_it(opened):
    tab = opened(figure_2_8(), 19, width=1800)
    tab.ask("happened.fit()")
    lines, labels = tab.ask("happened.lines()"), tab.ask("happened.labels()")
    places, high = tab.ask("happened.places()"), 12
    radius = places[0][2]
    assert len(labels) == 19

    def struck(middle, top, width):
        return sum(
            any(abs(x - middle) < width / 2 and top < y < top + high for x, y in line["points"])
            for line in lines
        )

    tops = set()
    for text, middle, top, width in labels:
        is_below = any(abs(top - radius - 4 - y) < 1 for _, (_, y), _ in places)
        other = top - 2 * radius - 8 - high if is_below else top + 2 * radius + 8 + high
        tops.add(is_below)
        assert struck(middle, top, width) <= struck(middle, other, width), text
    assert tops == {True, False}


def test_the_last_step_says_what_was_not_delivered():
    story = Story(read_program("0: {0,1}; 1: {0,1}"), "serialized-broadcast").play(1)
    end = story.document()["end"]
    data = re.search(r'id="about">(.*?)</script>', story_page(story.document()), re.DOTALL)[1]
    shown = [[text for _, _, text in step["shown"]] for step in json.loads(data)["story"]["steps"]]
    assert end and shown[-1][-len(end) :] == end
    assert not any(line in end for step in shown[:-1] for line in step)


def test_a_step_that_a_correct_protocol_would_not_do_is_a_fault(opened):
    story = Story(read_program("0: {1,2}; 1: {2}"), "chain-two").play(0).document()
    story["steps"][-1]["wrong"] = ["2 delivered M(1,1) too early"]
    tab = opened(story)
    tab.page.keyboard.press("v")
    assert tab.live() == "2 delivered M(1,1) too early"
    assert tab.page.inner_text("#where") == f"{len(story['steps'])} of {len(story['steps'])}"


def test_names_that_are_markup_are_text(opened):
    story = routers()
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    marked = {
        "names": [f"{p} {evil}" for p in range(story["processes"])],
        "program": evil,
        "notation": evil,
    }
    page = opened(story | marked, 1, dark=True).page
    assert page.inner_text("h1").endswith(evil)
    assert page.inner_text("#row0 th") == f"0 {evil}"
    assert page.locator("img").count() == 0
