"""The page of a story in Chromium: each step shows what the story tells, forwards and backwards."""

from pathlib import Path

import pytest

from happened.cli.terrain_option import read_terrain
from happened.report.story_page import story_page
from happened.sim.playing import read_program
from happened.sim.story import Story
from happened.sim.tracker_story import TrackerStory
from view.chromium import Tab

EXAMPLES = Path(__file__).parents[2] / "examples"


def figure_4_1():
    story = Story(read_program("1: {2,3}; 3: {2} {2}"), "histories")
    story.follow((EXAMPLES / "stories" / "figure_4_1.txt").read_text().splitlines())
    return story.document()


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
        tab = Tab(chromium, **options)
        tabs.append(tab)
        tab.page.goto(f"{file.as_uri()}#{step}")
        return tab.page

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
    page, steps = opened(story), len(story["steps"])
    for number in range(steps + 1):
        check(page, story, number)
        page.keyboard.press("ArrowRight")
    check(page, story, steps)  # one more than there are changes nothing
    for number in range(steps - 1, -1, -1):
        page.click("#back")
        check(page, story, number)


def test_a_held_message_is_drawn_until_now_and_then_until_it_is_taken(opened):
    page = opened(figure_4_1(), 5)
    lengths = """[...document.querySelectorAll(".hold:not(.later)")].map(
        each => each.x2.baseVal.value - each.x1.baseVal.value)"""
    assert page.evaluate(lengths) == [24]
    page.keyboard.press("End")
    assert page.evaluate(lengths) == [96, 48]


def test_the_immediate_predecessors_of_an_event_are_marked_while_it_is_the_step(opened):
    story = figure_2()
    page = opened(story)
    for number, step in enumerate(story["steps"], 1):
        page.keyboard.press("ArrowRight")
        assert page.locator(".follows:not(.later)").count() == len(step["follows"]), number


def test_names_that_are_markup_are_text(opened):
    story = routers()
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    marked = {"names": [evil] * story["processes"], "program": evil, "notation": evil}
    page = opened(story | marked, 1, dark=True)
    assert page.inner_text("h1").endswith(evil)
    assert page.inner_text("#row0 th") == evil
    assert page.locator("img").count() == 0
