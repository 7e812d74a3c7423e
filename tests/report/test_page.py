"""The report: self-contained, complete, and safe with names from anywhere."""

import json
import re
import xml.dom.minidom
from collections import Counter
from html.parser import HTMLParser
from random import Random
from urllib.parse import parse_qs

import pyarrow.compute as pc
import pytest

from causality import traces
from happened.report.drawings import Bar, bars, line, matrix
from happened.report.page import _of_many_shapes, page, pages, write_report
from happened.report.row_lists import part_of
from happened.trace import write_jsonl
from happened.trace.store import arrow_dataset
from happened.view.space_time import Arrow, Mark, space_time
from happened.view.texts import compact, duration, short
from report.answers import write_answers

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


def analysed(folder, chains):
    return write_answers(folder, traces.table(traces.number(chains)))


class Links(HTMLParser):
    """`found` are the addresses in a page, `places` the ids that it has, `numbers` what leads to rows."""

    def __init__(self, html):
        super().__init__()
        self.found, self.places, self.numbers, self._in = [], [], {}, ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "href")]
        self.places += [value for name, value in attributes if name == "id"]
        self._in = dict(attributes).get("href", "") if tag == "a" else ""

    def handle_data(self, data):
        if self._in.startswith("#"):
            self.numbers.setdefault(self._in[1:], []).append(data)


def test_a_violation_is_named_and_drawn(tmp_path):
    html = page(tmp_path, analysed(tmp_path, OVERTAKEN))
    assert "✗ causal order VIOLATED: 3 deliveries examined, 1 of them too early" in html
    assert "r delivered second (event 1) before first (event 2)" in html
    assert html.count('class="hv witness"') == 1
    assert "Clocks that disagree" in html
    assert "&lt;p&amp;&gt;" in html
    assert "<p&>" not in html


def test_the_page_needs_nothing_from_anywhere(tmp_path):
    html = page(tmp_path, analysed(tmp_path, OVERTAKEN))
    links = Links(html)
    assert links.found and all(link.startswith("#") for link in links.found)
    assert "http" not in html
    assert "@import" not in html


def test_every_number_of_a_table_leads_to_its_rows(tmp_path, seed):
    rows = [row for k in range(4) for row in traces.wild(Random(seed + k), f"c{k}")]
    rows += traces.number(OVERTAKEN, "spoilt")
    summary = write_answers(tmp_path, traces.table(rows))
    links = Links(page(tmp_path, summary))
    assert len(links.places) == len(set(links.places)) and {link[1:] for link in links.found} <= set(
        links.places
    )
    counted = {
        "causal_violations": ("violations", pc.field("order_name") == "causal"),
        "fifo_violations": ("violations", pc.field("order_name") == "fifo"),
        "lost_causes": ("lost_causes", pc.field("order_name") == "causal"),
        "reduction_edges": ("predecessors", None),
        "events": ("stamps", None),
        "lost": ("messages", pc.field("fate") == "lost"),
        "misdelivered": ("messages", pc.field("fate") == "misdelivered"),
        "never_sent": ("messages", pc.field("fate") == "never_sent"),
    }
    for total, (table, where) in counted.items():
        part = part_of(total)
        assert part.table == table
        count = arrow_dataset(tmp_path / table).count_rows(filter=part.filter)
        assert count == arrow_dataset(tmp_path / table).count_rows(filter=where) == summary[total], total
        assert not count or f"{count:,}" in links.numbers[part.anchor]


def test_rows_and_witnesses_lead_to_the_events_they_are_about(tmp_path):
    table = traces.table(traces.number(OVERTAKEN, "a&b"))
    write_report(tmp_path, write_answers(tmp_path, table))
    links = Links((tmp_path / "report.html").read_text())
    asked = [parse_qs(link.partition("#")[2]) for link in links.found if link.startswith("view.html#")]
    assert {"c": ["0"], "event": ["<p&>#1", "q#2"]} in asked  # the two sends of the witness
    assert {"c": ["0"], "event": ["r#1", "r#2"]} in asked  # the row of `violations`
    names = {f"{row['process']}#{row['seq']}" for row in table.to_pylist()}
    assert {name for each in asked for name in each.get("event", ())} <= names
    assert "violations/" in links.found and (tmp_path / "violations").is_dir()
    assert "What happened" in (tmp_path / "view.html").read_text()


def test_computations_that_are_too_large_are_left_to_the_viewer(tmp_path, monkeypatch, seed):
    rows = traces.number(OVERTAKEN, "small") + traces.number(traces.causal(Random(seed)), "large")
    summary = write_answers(tmp_path, traces.table(rows))
    monkeypatch.setattr("happened.report.looks.MOST_EVENTS", 5)
    html, view = pages(tmp_path, summary)
    names = [
        each["name"] for each in json.loads(re.search(r'id="about">(.*?)</script>', view)[1])["computations"]
    ]
    assert names == ["small"]
    assert html.count("Space–time diagram of") == 1 and "c=0" in html
    monkeypatch.setattr("happened.report.looks.MOST_EVENTS", 4)
    html, view = pages(tmp_path, summary)
    assert view == "" and "A look at it" not in html and "view.html" not in html
    assert "rows-violations-causal" in html


def test_what_only_the_trace_says_is_shown_from_it(tmp_path):
    chains = {
        "web": [
            {"kind": "internal", "label": "GET", "time": 1, "attributes": {"span": "s", "end": "9000"}},
            {"kind": "internal", "label": "told", "relevant": True, "time": 2},
        ]
    }
    table = traces.table(traces.number(chains))
    write_jsonl(table, tmp_path / "trace.jsonl")
    summary = write_answers(tmp_path / "answers", table)
    with_trace, _ = pages(tmp_path / "answers", summary, tmp_path / "trace.jsonl")
    without = page(tmp_path / "answers", summary)
    assert "web: GET" in with_trace and "Its spans" in with_trace and ">told<" in with_trace
    assert "web: GET" not in without and "Its Hasse diagram" in without
    (tmp_path / "bad.jsonl").write_text("{}")
    for other in (tmp_path / "bad.jsonl", tmp_path / "absent"):
        assert pages(tmp_path / "answers", summary, other)[0] == pages(tmp_path / "answers", summary)[0]


def test_each_computation_has_a_window_of_its_own(tmp_path, seed):
    rows = []
    for k in range(9):
        rows += traces.number(traces.causal(Random(seed + k), messages=5 + k), f"c{k}")
    rows += traces.number(OVERTAKEN, "spoilt")
    html = page(tmp_path, write_answers(tmp_path, traces.table(rows)))
    assert html.count("Space–time diagram of") == 6 and "The 6 that say most of 10 computations" in html
    shown = re.findall(r"ringed, in computation (\w+)|delivered, in computation (\w+)", html)
    sizes = Counter(row["computation"] for row in rows if row["computation"] != "spoilt")
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:5]
    assert shown == [("spoilt", ""), *(("", name) for name in largest)]


def test_what_is_quarantined_is_there_with_its_reason(tmp_path):
    circle = {"p": [{"kind": "internal", "causes": [{"process": "p", "seq": 1}]}]}
    summary = analysed(tmp_path, circle)
    html = page(tmp_path, summary)
    assert "✗ 1 row was quarantined" in html
    assert "happened-before has a cycle: p#1 internal" in html


def test_the_middle_of_a_long_witness_is_left_out(tmp_path):
    """m0 is overtaken by m1, which knows of it through a chain of thirty processes."""
    last = 30
    chains = {"p00": [{"kind": "send", "message": "m0", "to": ["r", "p01"]}]}
    for i in range(1, last):
        chains[f"p{i:02d}"] = [
            {"kind": "deliver", "message": "m0" if i == 1 else f"via{i:02d}"},
            {"kind": "send", "message": f"via{i + 1:02d}", "to": [f"p{i + 1:02d}" if i < last - 1 else "r"]},
        ]
    chains["r"] = [{"kind": "deliver", "message": f"via{last}"}, {"kind": "deliver", "message": "m0"}]
    summary = analysed(tmp_path, chains)
    html = page(tmp_path, summary)
    assert summary["causal_violations"] == 1
    assert "… 51 …" in html
    picture = html[html.index('class="hv witness"') :].partition("</svg>")[0]
    assert len(re.findall('class="(?:event|receive)"', picture)) == 4 + 1 + 4 + 2  # ends, the gap, deliveries
    assert picture.count('class="ring"') == 1


def test_witnesses_of_every_length_are_shown_first(tmp_path):
    def row(number, steps):
        return {"path": [None] * steps, "early": number}

    rows = [row(0, 2), row(1, 2), row(2, 5), row(3, 2), row(4, 3), row(5, 3)]
    assert [each["early"] for each in _of_many_shapes(rows)] == [0, 4, 2, 1, 5, 3]


def test_spans_without_messages_show_who_acted_upon_whom(tmp_path):
    chains = {
        "web": [{"kind": "internal"}],
        "db": [{"kind": "internal", "causes": [{"process": "web", "seq": 1}]}],
    }
    html = page(tmp_path, analysed(tmp_path, chains))
    assert "Who acted upon whom" in html
    assert "Who spoke to whom" not in html


def test_nothing_to_judge_is_undecided_and_not_a_pass(tmp_path):
    html = page(tmp_path, analysed(tmp_path, {"p": [{"kind": "internal"}]}))
    assert "undecided" in html
    assert "✓" not in html


@pytest.mark.parametrize(
    "picture",
    [
        space_time("<&>", [Mark("p", 1, 0, "a<b", "&"), Mark("q", 2, fault=True)], [Arrow(0, 1, fault=True)]),
        matrix(["p", "a very long name indeed & more"], [[0, 3], [1, 0]]),
        matrix([], []),
        line([1, 5, 2], "along"),
        line([], "nothing"),
        bars([Bar("p", -3, "-3"), Bar("<q>" * 40, 4, "4", least=1)]),
        bars([]),
    ],
)
def test_every_picture_is_well_formed(picture):
    assert xml.dom.minidom.parseString(picture).documentElement.tagName == "svg"


def test_numbers_read_well():
    assert [compact(value) for value in (3, 999.4, 999.6, 1500, 2_000_000, 7e9, 2e12)] == [
        "3", "999", "1k", "1.5k", "2M", "7G", "2,000G",
    ]  # fmt: skip
    assert [duration(value) for value in (12, 1500, -2.5e6, 3e9, 9e10, 5.4e12, 4e14)] == [
        "12 ns", "1.5 µs", "-2.5 ms", "3 s", "1.5 min", "1.5 h", "4.63 d",
    ]  # fmt: skip


def test_long_names_keep_both_ends():
    assert short("checkout-7f9c6d5b4-x2x9v", 12) == "checkou…2x9v"
    assert short("checkout", 12) == "checkout"


def test_services_and_what_an_import_lost_are_there(tmp_path):
    chains = {
        "front": [{"kind": "send", "message": "m", "to": ["back"], "attributes": [("service", "front")]}],
        "back": [
            {
                "kind": "deliver",
                "message": "m",
                "attributes": [("service", "<back>"), ("caller", "front"), ("error", "true")],
            }
        ],
    }
    summary = analysed(tmp_path, chains)
    summary.update(import_quarantined=5, import_quarantined_imported=2)
    html = page(tmp_path, summary)
    assert "Which service calls which" in html
    assert "<td>front</td><td>&lt;back&gt;</td><td>1</td><td>1</td>" in html
    assert "✗ 3 records of the logs could not be imported" in html
    assert "Which service calls which" not in page(tmp_path / "b", analysed(tmp_path / "b", OVERTAKEN))
