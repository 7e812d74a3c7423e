"""The picture of a story: lines keep clear of what they do not belong to, names are not struck needlessly."""

import json
import re
from pathlib import Path

from happened.report.story_page import story_page
from happened.sim.playing import read_program
from happened.sim.story import Story

FIGURE = Path(__file__).parents[2] / "examples" / "stories" / "figure_2_8.txt"
RADIUS = 6  # of a step


def figure():
    program = read_program("5: {4,6} {6}; 4: {2,3} {3,6}; 6: {1}; 2: {1} {1}; 3: {2}")
    story = Story(program, "ks", tick_at_deliveries=True)
    story.follow(FIGURE.read_text().splitlines())
    return story


def to_itself():
    return Story(read_program("0: {0} {1}; 1: {0}"), "ks").play(2)


def lines(page):
    """The copies of a page, each as its ends and points along it."""
    for shape in re.findall(r'<(?:path|line) class="copy[^>]*>', page):
        found = re.search(r' d="([^"]*)"', shape)
        numbers = list(map(float, re.findall(r"-?[\d.]+", found[1] if found else "")))
        if not found:
            numbers = [float(re.search(rf'{name}="([\d.]+)"', shape)[1]) for name in ("x1", "y1", "x2", "y2")]
        (ax, ay), *control, (bx, by) = zip(numbers[::2], numbers[1::2], strict=True)
        (cx, cy) = control[0] if control else ((ax + bx) / 2, (ay + by) / 2)
        points = []
        for k in range(401):
            t = k / 400
            points.append(
                tuple(
                    (1 - t) ** 2 * a + 2 * t * (1 - t) * c + t**2 * b
                    for a, c, b in ((ax, cx, bx), (ay, cy, by))
                )
            )
        yield {(ax, ay), (bx, by)}, points


def steps(page):
    """Where each step stands, and the base line of its name."""
    found = re.findall(r'<circle [^>]*cx="(\d+)" cy="(\d+)".*?</circle><text [^>]*y="(\d+)">([^<]*)<', page)
    return [(float(x), float(y), float(base), name) for x, y, base, name in found]


def test_copies_are_led_around_steps_that_they_do_not_belong_to():
    for story, copies in ((figure(), 11), (to_itself(), 3)):
        page = story_page(story.document())
        drawn = list(lines(page))
        assert len(drawn) == copies and len(steps(page)) == len(story.scenes)
        for ends, points in drawn:
            for x, y, *_ in steps(page):
                if (x, y) not in ends:
                    assert min(((px - x) ** 2 + (py - y) ** 2) ** 0.5 for px, py in points) > RADIUS + 1


def test_a_name_stands_where_fewest_lines_run_through_it():
    page = story_page(figure().document())

    def struck(x, base, name):
        half = 4 * len(name)
        return sum(
            any(abs(px - x) < half and base - 11 < py < base + 2 for px, py in points)
            for _, points in lines(page)
        )

    for x, y, base, name in steps(page):
        assert struck(x, base, name) == min(struck(x, y - 12, name), struck(x, y + 21, name)), name


def test_the_last_step_says_what_was_not_delivered():
    story = Story(read_program("0: {0,1}; 1: {0,1}"), "serialized-broadcast").play(1)
    end = story.document()["end"]
    data = re.search(r'id="story">(.*?)</script>', story_page(story.document()), re.DOTALL)[1]
    shown = [[text for _, _, text in step["shown"]] for step in json.loads(data)["steps"]]
    assert end and shown[-1][-len(end) :] == end
    assert not any(line in end for step in shown[:-1] for line in step)
