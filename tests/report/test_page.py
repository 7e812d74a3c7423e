"""The report: self-contained, complete, and safe with names from anywhere."""

import xml.dom.minidom
from collections import Counter
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.causality.analysis import TABLES, analyse
from happened.report.drawings import Arrow, Mark, bars, compact, duration, line, matrix, space_time
from happened.report.page import page

OVERTAKEN = {
    "<p&>": [{"kind": "send", "message": "first", "to": ["q", "r"], "time": 5}],
    "q": [
        {"kind": "deliver", "message": "first", "time": 7},
        {"kind": "send", "message": "second", "to": ["r"], "time": 9},
    ],
    "r": [
        {"kind": "deliver", "message": "second", "time": 1},
        {"kind": "deliver", "message": "first", "time": 2},
    ],
}


def analysed(tmp_path, chains):
    analysis = analyse(traces.table(traces.number(chains)))
    for name in TABLES:
        (tmp_path / name).mkdir()
        pq.write_table(analysis.table(name), tmp_path / name / "part.parquet")
    edges = analysis.totals["necessary_edges"]
    mean = analysis.totals["necessary_units"] / edges if edges else None
    return Counter({**analysis.totals, "necessary_units_mean": mean})


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href")]


def test_a_violation_is_named_and_drawn(tmp_path):
    html = page(tmp_path, analysed(tmp_path, OVERTAKEN))
    assert "✗ Causal order is violated: 1 of 3 deliveries came too early" in html
    assert "r delivered second (event 1) before first (event 2)" in html
    assert html.count('class="diagram"') == 1
    assert "Clocks that disagree" in html
    assert "&lt;p&amp;&gt;" in html
    assert "<p&>" not in html


def test_the_page_needs_nothing_from_anywhere(tmp_path):
    html = page(tmp_path, analysed(tmp_path, OVERTAKEN))
    links = Links()
    links.feed(html)
    assert links.found == []
    assert "http" not in html
    assert "@import" not in html


def test_nothing_to_judge_is_undecided_and_not_a_pass(tmp_path):
    html = page(tmp_path, analysed(tmp_path, {"p": [{"kind": "internal"}]}))
    assert "undecided" in html
    assert "✓" not in html


@pytest.mark.parametrize(
    "picture",
    [
        space_time([Mark("p", "a<b"), Mark("q", "c", fault=True)], [Arrow(0, 1, fault=True)]),
        matrix(["p", "a very long name indeed & more"], [[0, 3], [1, 0]]),
        matrix([], []),
        line([1, 5, 2], "along"),
        line([], "nothing"),
        bars([("p", -3, "-3"), ("q", 4, "4")]),
        bars([]),
    ],
)
def test_every_picture_is_well_formed(picture):
    assert xml.dom.minidom.parseString(picture).documentElement.tagName == "svg"


def test_numbers_read_well():
    assert [compact(value) for value in (3, 1500, 2_000_000, 7e9)] == ["3", "1.5k", "2M", "7G"]
    assert [duration(value) for value in (12, 1500, 2.5e6, 3e9)] == ["12 ns", "1.5 µs", "2.5 ms", "3 s"]
