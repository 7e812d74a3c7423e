"""Charts: no line is hidden under another, nothing leaves the frame, and a logarithmic axis says so."""

import itertools
import re
from math import dist, log10
from random import Random
from xml.etree import ElementTree

import pytest

from happened.report.chart import (
    LEFT,
    NAME,
    RIGHT,
    TOP,
    WIDTH,
    Curve,
    MarkExtent,
    Point,
    draw,
    sideways,
    spread,
    strokes,
)

COVERED = 1.0  # pixels on either side of the middle of a line


def shapes(svg, kind):
    return [each for each in ElementTree.fromstring(svg).iter() if each.get("class") == kind]


def starts(svg, kind):
    """Where the outlines of these shapes begin."""
    return [tuple(map(float, re.findall(r"-?[\d.]+", each.get("d"))[:2])) for each in shapes(svg, kind)]


def values(svg):
    """The marks that stand for values have a title; those beside the names have none."""
    marks = [each for each in shapes(svg, "mark") if len(each)]
    return [tuple(map(float, re.findall(r"-?[\d.]+", each.get("d"))[:2])) for each in marks]


def texts(svg):
    return [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}text")]


def test_a_chart_is_an_image_of_its_own_with_a_name_at_every_line_and_whiskers():
    lines = [
        Curve("a<b", [Point(10, 1.0, 0.5), Point(20, 2.0, 0.0)]),
        Curve("c", [Point(10, 3.0, 0.0)]),
        Curve("nothing", []),
    ]
    svg = draw("entries & more", "processes", lines)
    assert {"entries & more", "processes", "a<b", "c", "10", "20"} <= set(texts(svg))
    assert "nothing" not in texts(svg)
    assert len(values(svg)) == 3 == len({y for _, y in values(svg)}) and len(shapes(svg, "whisker")) == 1
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert "logarithmic" not in svg


def test_a_chart_of_values_far_apart_has_a_logarithmic_axis_and_says_so():
    svg = draw(
        "bytes", "processes", [Curve("a", [Point(10, 1.0, 0), Point(20, 10.0, 0), Point(30, 1000.0, 0)])]
    )
    heights = [y for _, y in values(svg)]
    assert heights[1] - heights[2] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.3)
    assert "logarithmic scale" in texts(svg) and "processes" in texts(svg)
    svg = draw("", "processes", [Curve("a", [Point(10, 1, 0), Point(100, 1, 0), Point(1000, 1, 0)])])
    across = [x for x, _ in values(svg)]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.3)
    assert {"10", "100", "1000", "processes (logarithmic scale)"} <= set(texts(svg))
    assert "logarithmic scale" not in texts(svg)


def test_a_chart_of_one_point_or_of_zeros_is_drawn_and_of_nothing_is_not():
    assert len(values(draw("x", "y", [Curve("a", [Point(10, 0.0, 0.0)])]))) == 1
    with pytest.raises(ValueError, match="nothing to draw"):
        draw("x", "y", [Curve("a", [])])


def random_lines(random):
    """Some lines by themselves, and some that are copies of others, whole or for a part of the way."""
    sizes = sorted(random.sample(range(2, 60), random.randint(2, 5)))
    lines = []
    for k in range(random.randint(2, 9)):
        if lines and random.random() < 0.6:
            model = random.choice(lines).points
            points = [p if random.random() < 0.8 else p._replace(y=p.y * 1.5) for p in model]
        else:
            scale = 10 ** random.uniform(-1, 3)
            points = [Point(n, random.random() * scale, random.choice([0, scale])) for n in sizes]
        lines.append(Curve(f"p{k}", points))
    return lines


def test_every_line_is_seen_along_the_whole_of_its_way(seed):
    """Painted in their order, dash by dash: what is painted later covers what is near its middle."""
    random = Random(seed)
    for _ in range(12):
        copies = random.randint(2, 6)
        xs = sorted(random.sample(range(60, 600, 40), random.randint(2, 4)))
        model = [(float(x), random.uniform(50, 350)) for x in xs]
        other = [(x, random.uniform(50, 350)) for x, _ in model]
        lines = [[(x, y + random.uniform(-0.5, 0.5)) for x, y in model] for _ in range(copies)] + [other]
        drawn = strokes(lines)
        painted = [point for stroke in drawn for point in painted_points(stroke)]
        for number in range(len(lines)):
            seen = [
                place
                for at, (line, place) in enumerate(painted)
                if line == number
                and not any(of != number and dist(place, p) < COVERED for of, p in painted[at + 1 :])
            ]
            for left, right in itertools.pairwise(xs):
                within = sum(left <= x <= right for x, _ in seen)
                assert within >= 0.3 * (right - left) / (copies + 1), (number, left)


def painted_points(stroke):
    """The pixels of a stroke that its dashes leave, as SVG has it."""
    given = dict(re.findall(r'(stroke-dash\w+)="([^"]*)"', stroke.dashes))
    long, rest = map(float, given.get("stroke-dasharray", "1 0").split())
    begin = float(given.get("stroke-dashoffset", "0"))
    length = dist(stroke.start, stroke.end)
    for at in range(int(length)):
        if (at + begin) % (long + rest) < long:
            share = at / length
            yield (
                stroke.line,
                tuple(a + share * (b - a) for a, b in zip(stroke.start, stroke.end, strict=True)),
            )


def test_marks_whiskers_and_names_stay_apart_and_inside(seed):
    random = Random(seed)
    for _ in range(40):
        svg = draw("t", "processes", random_lines(random))
        tall = float(ElementTree.fromstring(svg).get("height"))
        for each in shapes(svg, "whisker"):
            x, y, _, _, _, low, *_ = map(float, re.findall(r"-?[\d.]+", each.get("d")))
            assert TOP - 0.1 <= y <= low <= tall - 50 + 0.1 and LEFT <= x <= WIDTH - RIGHT
        marks = values(svg)
        assert len(set(marks)) == len(marks)
        names = sorted(float(each.get("y")) for each in shapes(svg, "name"))
        assert all(b - a >= NAME - 0.2 for a, b in itertools.pairwise(names))
        assert names[0] >= TOP and names[-1] <= tall - 50 + 5


def test_whiskers_reach_as_far_as_they_say():
    for points, length in (
        ([Point(10, 5, 5), Point(20, 1, 3)], lambda a, b: b - a),
        ([Point(10, 1000, 900), Point(20, 10, 5)], lambda a, b: log10(b / a)),
    ):
        svg = draw("t", "x", [Curve("a", points)])
        found = zip(shapes(svg, "whisker"), values(svg), points, strict=True)
        for each, (_, mark), (_, y, error) in found:
            _, high, _, _, _, low, *_ = map(float, re.findall(r"-?[\d.]+", each.get("d")))
            expected = length(y - error, y) / length(y, y + error)
            assert (low - mark) / (mark - high) == pytest.approx(expected, rel=0.05)


def test_more_lines_than_fit_make_the_chart_taller():
    svg = draw("t", "x", [Curve(f"line {k}", [Point(1, 5, 0), Point(2, 5, 0)]) for k in range(40)])
    names = sorted(float(each.get("y")) for each in shapes(svg, "name"))
    assert len(names) == 40 and all(b - a >= NAME - 0.2 for a, b in itertools.pairwise(names))
    assert float(ElementTree.fromstring(svg).get("height")) > 600


def test_what_is_by_itself_is_not_moved():
    assert sideways([MarkExtent(10, 0, 5), MarkExtent(10, 6, 9), MarkExtent(20, 0, 5)], 30) == [0, 0, 0]
    assert sideways([MarkExtent(10, 0, 5), MarkExtent(10, 4, 9)], 30) == [-4, 4]
    assert spread([10, 100], 15, 0, 200) == [10, 100]
    assert spread([50, 50, 50], 10, 0, 200) == [40, 50, 60]
    assert spread([0, 0], 10, 0, 200) == [0, 10]
    assert all(stroke.dashes == "" for stroke in strokes([[(0, 0), (10, 0)], [(0, 9), (10, 9)]]))
