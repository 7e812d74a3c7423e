"""The report in a real browser: opens from a file, asks nobody for anything, and everything can be read."""

import random
import shutil
from functools import partial

import pytest

from causality import traces
from happened.ordering import create
from happened.report.page import write_report
from happened.sim.network import Network
from happened.sim.recorder import RunRecorder
from happened.sim.simulation import Simulation
from happened.trace import SCHEMA, TraceWriter, read
from happened.view.browser import find_browser
from oracles.unordered import Unordered
from report.answers import write_answers
from report.browser import Chromium

LONG = "checkout-" + "7f9c6d5b4" * 20
HEADINGS = {
    "A look at it": "svg.hv .event",
    "Witnesses": "svg.witness",
    "Who spoke to whom": "svg.matrix",
    "Concurrency along the way": "svg.chart .series",
    "Slowest pairs": "svg.chart .bar",
    "Clocks that disagree": "svg.chart .bar",
    "What causal order would have cost": "table.cost",
}
"""What a report of everything shows, and the picture or table below each heading."""

UNDER_HEADING = """
(function (title, selector) {
  const h2 = [...document.querySelectorAll("h2")].find(each => each.textContent === title);
  for (let e = h2 && h2.nextElementSibling; e && e.tagName !== "H2"; e = e.nextElementSibling) {
    const found = e.matches(selector) ? e : e.querySelector(selector);
    if (found) {
      const box = found.getBoundingClientRect();
      return box.width > 0 && box.height > 0 && found.checkVisibility({visibilityProperty: true});
    }
  }
  return false;
})"""
CUT_OFF = """
[...document.querySelectorAll("svg text")].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1
    || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
}).map(text => text.textContent)"""
OVERLAPPING = """
[...document.querySelectorAll("svg.witness, svg.chart")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].filter(text => text.textContent)
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([name, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
    .map(([other]) => name + " / " + other));
})"""
CONTRAST = """
[...document.querySelectorAll("p, li, td, h1, h2, h3, figcaption, code")].map(e => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = e => getComputedStyle(e).backgroundColor;
  let behind = e;
  while (behind.parentElement && ground(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const a = light(getComputedStyle(e).color), b = light(ground(behind));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}).reduce((least, ratio) => Math.min(least, ratio), 21)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium was found, so no report was opened; `make test` installs it where it may")
    chromium = Chromium(path, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open the report of a trace, and hold it to what every report must be."""

    def show(table, **view):
        folder = tmp_path / "answers"
        shutil.rmtree(folder, ignore_errors=True)
        write_report(folder, write_answers(folder, table))
        path = folder / "report.html"
        browser.open(path, **view)
        assert browser.requests == [path.as_uri()]
        assert browser.errors == []
        assert browser.evaluate("document.title") == "What happened"
        assert browser.evaluate(CUT_OFF) == []
        assert browser.evaluate(OVERLAPPING) == []
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.evaluate(wider) <= 0
        return browser

    return show


def simulated(tmp_path, machine, seed, **options):
    with TraceWriter(tmp_path / "trace") as writer:
        Simulation(
            machine, 8, 200, seed=seed, network=Network(), recorder=RunRecorder(writer), **options
        ).run()
    return read(tmp_path / "trace")


def skewed(table):
    """The same trace with p0's clock a second ahead: its messages seem to arrive before they were sent."""
    rows = table.to_pylist()
    for row in rows:
        row["time"] += 10**9 if row["process"] == "p0" else 0
    return table.from_pylist(rows, schema=SCHEMA)


def nothing(messages):
    return [0] * len(messages)


@pytest.mark.parametrize("view", [{}, {"dark": True}, {"width": 400}], ids=["wide", "dark", "narrow"])
def test_a_run_without_order_shows_everything(show, tmp_path, seed, view):
    table = skewed(simulated(tmp_path, Unordered, seed, control_sizes=nothing))
    page = show(table, **view)
    for title, selector in HEADINGS.items():
        assert page.evaluate(f"{UNDER_HEADING}({title!r}, {selector!r})"), title
    assert page.evaluate("document.querySelector('.verdict').textContent").startswith("✗ causal order VIO")
    assert page.evaluate("document.querySelectorAll('svg.witness').length") == 8
    assert page.evaluate("document.querySelectorAll('svg.matrix .cell').length") == 64
    assert page.evaluate(CONTRAST) >= 4.5


def test_dark_and_light_are_the_readers_choice(show, tmp_path, seed):
    table = simulated(tmp_path, partial(create, "ks"), seed)
    backgrounds = [
        show(table, dark=dark).evaluate("getComputedStyle(document.body).backgroundColor")
        for dark in (False, True)
    ]
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(16, 19, 26)"]


def test_a_clean_run_has_verdicts_and_no_witnesses(show, tmp_path, seed):
    page = show(simulated(tmp_path, partial(create, "ks"), seed))
    assert page.evaluate("document.querySelector('.verdict').textContent").startswith("✓ causal order holds")
    assert page.evaluate("document.querySelectorAll('.violated, svg.witness').length") == 0
    assert page.evaluate("document.querySelectorAll('svg.matrix').length") == 1


def test_an_empty_trace_is_undecided(show):
    page = show(SCHEMA.empty_table())
    assert page.evaluate("document.querySelectorAll('.holds, .violated, svg').length") == 0
    assert page.evaluate("document.querySelectorAll('.undecided').length") == 5


def test_a_thousand_computations_are_a_page_of_the_same_size(show, dice):
    rows = []
    for number in range(1000):
        rows += traces.number(traces.causal(dice, ("p", "q", "r"), messages=4), f"{LONG}{number}")
    for row in rows:
        row["time"] = 100 * row["seq"]
    page = show(traces.table(rows, chunk=10_000))
    assert page.evaluate("document.documentElement.outerHTML.length") < 200_000
    assert page.evaluate("document.querySelectorAll('svg.matrix').length") == 1


def test_names_from_anywhere_stay_text_and_stay_in_their_place(show):
    evil = "<script>document.title = 'taken'</script>"
    chains = {
        evil: [{"kind": "send", "message": LONG, "to": [LONG, "r"], "time": 5}],
        LONG: [
            {"kind": "deliver", "message": LONG, "time": 7},
            {"kind": "send", "message": evil, "to": ["r"], "time": 9},
        ],
        "r": [
            {"kind": "deliver", "message": evil, "time": 1},
            {"kind": "deliver", "message": LONG, "time": 2},
        ],
    }
    page = show(traces.table(traces.number(chains, computation=LONG)))
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.querySelectorAll('svg.witness').length") == 1


@pytest.mark.parametrize("count", [1, 30])
def test_what_is_quarantined_is_listed(show, count):
    cause = {"process": "p", "seq": 1}
    rows = [
        {"computation": f"c{i}", "process": "p", "seq": 1, "kind": "internal", "causes": [cause]}
        for i in range(count)
    ]
    page = show(traces.table(rows))
    assert page.evaluate("document.querySelectorAll('h2 + .aside + table tr').length") == 1 + min(count, 20)
    assert page.evaluate("document.querySelector('.verdicts .violated').textContent").startswith(
        f"✗ {count} "
    )


def test_random_traces_can_be_read(show, seed):
    for number in range(10):
        dice = random.Random(seed + number)
        rows = [row for _ in range(3) for row in traces.wild(dice, f"c{_}")]
        for row in rows:
            row["time"] = dice.randint(0, 10**12)
        show(traces.table(rows), dark=bool(number % 2))
