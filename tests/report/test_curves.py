"""Curves: every point and name is drawn, inside the picture."""

from xml.etree import ElementTree

import pytest

from happened.report.curves import HEIGHT, WIDTH, Point, svg

SPACE = "{http://www.w3.org/2000/svg}"


def test_lines_names_and_intervals_are_drawn_inside_the_picture():
    series = {
        "a < b": [Point(10, 5, 1), Point(20, 9, 2)],
        "close": [Point(10, 4, 0), Point(20, 9.01, 0)],
    }
    root = ElementTree.fromstring(svg(series, title="t & t", x="n", y="entries"))
    texts = {text.text: text for text in root.iter(f"{SPACE}text")}
    assert {"a < b", "close", "t & t", "n", "entries", "10", "20"} <= set(texts)
    heights = sorted(float(texts[name].get("y")) for name in ("a < b", "close"))
    assert heights[1] - heights[0] >= 12  # names do not cover each other
    lines = [path for path in root.iter(f"{SPACE}path") if path.get("fill") == "none"]
    assert len(lines) == 2 and lines[0].get("stroke-dasharray") != lines[1].get("stroke-dasharray")
    for path in lines:
        for place in path.get("d")[1:].split("L"):
            across, height = map(float, place.split())
            assert 0 <= across <= WIDTH and 0 <= height <= HEIGHT


def test_a_single_point_and_zeros_can_be_drawn():
    assert "nan" not in svg({"flat": [Point(5, 0, 0)]}, title="", x="", y="")


def test_nothing_cannot_be_drawn():
    with pytest.raises(ValueError, match="no points"):
        svg({}, title="", x="", y="")
