"""The viewer in a real browser: it shows the order that the judge finds, and runs nothing of a trace."""

import re
from itertools import pairwise
from random import Random

import pytest

from causality.traces import busy, causal, number, table
from effort import samples
from happened import causality
from oracles.closure import by_computation

HOSTILE = (
    "</script><script>document.title='ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
    "javascript:alert(1)",
    "\u202eright to left \u0634\u0631\u0643\u0629",
    "👩\u200d💻🦜" * 20,
    "line\nbreak\ttab\0nul",
    "&lt;b&gt; {{7*7}} ${7*7} `",
)
OVERLAPPING = """
[...document.querySelectorAll("header > *, header button, header select, header input")]
  .filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1).map(each => each.id)"""


def story():
    """p0:2 overtakes p0:1 at r, by way of q; r holds nothing back."""
    return table(
        number(
            {
                "p": [
                    {"kind": "send", "message": "first", "to": ["q", "r"], "time": 0},
                    {"kind": "send", "message": "second", "to": ["q"], "time": 10},
                ],
                "q": [
                    {"kind": "deliver", "message": "first", "time": 20},
                    {"kind": "deliver", "message": "second", "time": 30},
                    {"kind": "send", "message": "third", "to": ["r"], "time": 40, "label": "answer"},
                ],
                "r": [
                    {"kind": "internal", "time": 5, "label": "waiting", "attributes": {"zone": "east"}},
                    {"kind": "deliver", "message": "third", "time": 50},
                    {"kind": "deliver", "message": "first", "time": 60},
                ],
            }
        )
    )


def held():
    """c arrives at r before a and b, which were sent before it."""
    return table(
        number(
            {
                "p": [{"kind": "send", "message": m, "to": ["r"]} for m in "abc"],
                "r": [
                    {"kind": "receive", "message": "c"},
                    {"kind": "receive", "message": "a"},
                    {"kind": "deliver", "message": "a"},
                    {"kind": "receive", "message": "b"},
                    {"kind": "deliver", "message": "b"},
                    {"kind": "deliver", "message": "c"},
                ],
            }
        )
    )


def shown(tab):
    return {kind: set(tab.ask(f"happened.{kind}()")) for kind in ("past", "future", "concurrent")}


def of_the_judge(stamps, names, e):
    def name(event):
        process, _, seq = event.rpartition("#")
        return process, int(seq)

    past = {f for f in names if stamps.happened_before(name(f), name(e))}
    future = {f for f in names if stamps.happened_before(name(e), name(f))}
    return {"past": past, "future": future, "concurrent": names - past - future - {e}}


DRAWN = """
(() => {
  const strokes = [], pen = CanvasRenderingContext2D.prototype;
  const note = (name, keep) => {
    const draw = pen[name];
    pen[name] = function (...numbers) { keep(numbers); return draw.apply(this, numbers); };
  };
  note("beginPath", () => strokes.push([]));
  for (const name of ["moveTo", "lineTo", "quadraticCurveTo"])
    note(name, numbers => strokes.length && strokes[strokes.length - 1].push([name[0], ...numbers]));
  window.strokes = strokes;
})()"""
"""Keeps what is drawn from now on: for each path its moves (m), lines (l) and curves (q)."""


@pytest.mark.sampled
def test_past_future_and_concurrent_are_those_of_the_judge(look, seed):
    dice = Random(seed)
    for rows in (busy(dice), number(causal(dice, messages=40))):
        whole = table(rows)
        stamps = causality.stamp(whole)
        tab = look(whole)
        names = set(tab.ask("happened.events()"))
        assert len(names) == len(rows)
        for e in dice.sample(sorted(names), min(len(names), samples(80))):
            tab.ask(f"happened.select({e!r})")
            assert shown(tab) == of_the_judge(stamps, names, e), e


def test_a_path_between_two_events_is_one_of_happened_before(look, seed):
    dice = Random(seed)
    rows = busy(dice)
    (closure,) = by_computation(rows).values()
    tab = look(table(rows))
    events = {f"{p}#{seq}": (p, seq) for p, seq in closure.event}
    for _ in range(10):
        e, f = dice.sample(sorted(events), 2)
        tab.ask(f"happened.select({e!r}, {f!r})")
        before, after = (closure.happened_before(events[a], events[b]) for a, b in ((e, f), (f, e)))
        assert tab.ask("happened.relation()") == ("before" if before else "after" if after else "concurrent")
        path = tab.ask("happened.path()")
        assert (path is not None) == (before or after)
        if path:
            steps = [events[name] for name in path]
            assert {path[0], path[-1]} == {e, f}
            assert all(closure.is_step(a, b) for a, b in pairwise(steps))


def test_clicking_selects_and_shift_clicking_leads_from_one_to_the_other(look):
    tab = look(story()).click("q#1")
    assert tab.live() == "q#1, deliver first. 1 before, 4 after, 2 concurrent."
    assert "1 before" in tab.panel() and "Vector timestamp" in tab.panel()
    tab.click("r#2", shift=True)
    assert tab.live() == "q#1 happened before r#2."
    assert tab.ask("happened.path()") == ["q#1", "q#3", "r#2"]
    tab.click("r#1", shift=True)
    assert "r#2" in tab.live()
    tab.page.keyboard.press("Escape")
    assert tab.live() == "Nothing is selected."


def test_a_fault_is_listed_and_leads_to_its_witness(look):
    tab = look(story())
    assert "VIOLATED" in tab.panel()
    tab.page.get_by_role("tab", name="Faults").click()
    tab.page.get_by_role("button", name="third before first at r").click()
    assert tab.live() == "r delivered third before first, which was sent to it causally earlier"
    assert tab.ask("happened.path()") == ["p#1", "q#1", "q#3"]
    assert {"p#1", "q#3", "r#2", "r#3"} <= set(tab.ask("happened.inView()"))


def test_a_held_message_says_what_it_waited_for(look):
    tab = look(held())
    assert tab.ask("happened.waitedFor('r#6')") == ["a", "b"]
    tab.click("r#6")
    assert "Held" in tab.panel() and "r#1" in tab.panel() and "It waited for" in tab.panel()


def test_searching_by_process_label_message_attribute_and_time(look):
    tab = look(story())
    for query, found in {
        "process:r": {"r#1", "r#2", "r#3"},
        "label:answer": {"q#3"},
        "message:first kind:deliver": {"q#1", "r#3"},
        "zone=east": {"r#1"},
        "time>20ns time<50ns": {"q#2", "q#3"},
        "WAITING": {"r#1"},
        "nothing of the kind": set(),
    }.items():
        tab.page.fill("#search", query)
        assert set(tab.ask("happened.matches()")) == found, query
    tab.page.fill("#search", "first")
    tab.page.keyboard.press("Enter")
    assert tab.live().endswith("first.")
    tab.page.keyboard.press("Escape")
    assert tab.ask("happened.matches()") is None


def test_keys_alone_will_do(look):
    tab = look(story())
    tab.page.focus("#board")
    press = tab.page.keyboard.press
    press("Enter")
    assert tab.live().startswith("p#1, send first.")
    press("ArrowRight")
    assert tab.live().startswith("p#2, send second.")
    press("m")
    assert tab.live().startswith("q#2, deliver second.")
    press("ArrowDown")
    assert tab.live().startswith("r#")
    press("v")
    assert tab.ask("happened.state().fault") == 0
    press("c")
    assert tab.ask("happened.path()") == ["p#1", "q#1", "q#2", "q#3", "r#2", "r#3"]
    press("t")
    assert tab.ask("happened.state().axis") == "time"
    press("h")
    assert tab.ask("happened.state().view") == "hasse"
    press("?")
    assert tab.page.is_visible("#help")
    press("Escape")
    assert not tab.page.is_visible("#help")
    press("/")
    assert tab.page.evaluate("document.activeElement.id") == "search"


def test_the_address_holds_what_is_seen(look):
    tab = look(story())
    tab.page.keyboard.press("t")
    tab.click("q#2")
    tab.page.fill("#search", "first")
    tab.page.wait_for_url(re.compile("find=first"))
    look_before = tab.ask("happened.state().port")
    tab.page.reload()
    tab.page.wait_for_selector("html[data-ready]", state="attached")
    state = tab.ask("happened.state()")
    assert state["axis"] == "time"
    assert state["port"]["x"] == pytest.approx(look_before["x"], rel=1e-3, abs=1e-3)
    assert tab.ask("happened.matches()") and tab.live() != ""
    assert set(tab.ask("happened.past()")) == {"p#1", "p#2", "q#1"}


def test_slices_processes_and_groups(look):
    tab = look(story()).click("q#3")
    tab.page.get_by_role("button", name="Only its past").click()
    assert set(tab.ask("happened.inView()")) == {"p#1", "p#2", "q#1", "q#2", "q#3"}
    tab.page.get_by_role("button", name="Everything").click()
    assert len(tab.ask("happened.inView()")) == 8
    tab.page.get_by_role("tab", name="Processes").click()
    tab.page.get_by_role("checkbox", name="r").uncheck()
    assert len(tab.ask("happened.inView()")) == 5


def test_a_name_leads_to_its_process_and_keys_stay_there(look):
    tab = look(story()).click("q#3")
    _, y = tab.ask("happened.at('q#3')")
    tab.page.mouse.click(20, y)
    assert tab.page.evaluate("document.activeElement.parentElement.textContent.trim()") == "q"
    assert tab.ask("happened.past()")  # what was selected is so still
    tab.page.keyboard.press("Space")
    assert len(tab.ask("happened.inView()")) == 5
    tab.page.keyboard.press("Space")
    assert len(tab.ask("happened.inView()")) == 8


def crossing():
    """Messages from p to r, and events of q all along, so that each has to pass between two of them."""
    return table(
        number(
            {
                "p": [{"kind": "send", "message": f"m{k}", "to": ["r"]} for k in range(40)],
                "q": [{"kind": "internal"} for _ in range(80)],
                "r": [{"kind": "internal"} for _ in range(11)]
                + [{"kind": "deliver", "message": f"m{k}"} for k in range(40)],
            }
        )
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_a_message_goes_around_events_in_one_bow(look, width):
    tab = look(crossing(), width=width, height=800, touch=width < 500)
    tab.ask(f"{DRAWN}, happened.select('r#6')")
    tab.ask("true")
    places = tab.ask("Array.from({length: 80}, (_, k) => happened.at(`q#${k + 1}`))")
    (q,) = {y for _, y in places}
    board = tab.page.evaluate("document.querySelector('canvas').getBoundingClientRect().toJSON()")
    seen = 0
    for path in tab.page.evaluate("strokes"):
        if "m" not in [move[0] for move in path] or len(path) < 2:
            continue
        assert [move[0] for move in path].count("q") <= 1  # more of them are a wriggle
        (_, ax, ay), (kind, *rest) = path[0], path[1]
        (*control, bx, by) = rest
        y = q - board["y"]
        if len(path) != 2 or not ay < y - 20 < y + 20 < by:
            continue
        t = (y - ay) / (by - ay)
        middle = control[0] if kind == "q" else (ax + bx) / 2
        x = (1 - t) ** 2 * ax + 2 * t * (1 - t) * middle + t**2 * bx + board["x"]
        apart = sorted(abs(x - place) for place, _ in places)
        gap = min(b - a for a, b in pairwise(sorted(place for place, _ in places)))
        assert apart[0] > min(5, gap / 4)
        seen += 1
    assert seen >= 6


def test_wheel_drag_and_touch(look):
    tab = look(table(number(causal(Random(7), messages=60))), touch=True)
    before = tab.ask("happened.state().port")
    tab.page.mouse.move(500, 300)
    tab.page.mouse.wheel(0, -400)
    nearer = tab.ask("happened.state().port")
    assert nearer["k"] > before["k"]
    tab.page.mouse.down()
    tab.page.mouse.move(300, 300, steps=4)
    tab.page.mouse.up()
    assert tab.ask("happened.state().port.x") == pytest.approx(nearer["x"] + 200 / nearer["k"], rel=0.05)
    x, y = tab.ask("happened.at(happened.inView()[3])")
    tab.page.touchscreen.tap(x, y)
    assert "before" in tab.live()


def test_what_a_trace_says_is_text_and_runs_nothing(look):
    chains = {
        text: [
            {"kind": "send", "message": text, "to": ["q"], "label": text, "attributes": {text: text}},
            {"kind": "internal", "label": text * 50_000},
        ]
        for text in HOSTILE
    }
    chains["q"] = [{"kind": "deliver", "message": text, "label": text} for text in HOSTILE]
    tab = look(table(number(chains, computation=HOSTILE[0])))
    for k, text in enumerate(HOSTILE, start=1):
        tab.ask(f"happened.select({f'{text}#1'!r})")
        assert tab.page.evaluate(f"document.querySelector('h2').textContent === {f'{text}#1'!r}")
        tab.ask(f"happened.select({f'{text}#2'!r})")
        tab.click(f"q#{k}")
        tab.page.fill("#search", text[:5].replace("\n", ""))
    for tabs in ("Faults", "In view", "Processes"):
        tab.page.get_by_role("tab", name=tabs).click()
    assert tab.page.title() != "ran"
    assert tab.page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
    assert len(tab.page.content()) < 2_000_000


@pytest.mark.parametrize("options", [{}, {"dark": True}, {"width": 400}], ids=["light", "dark", "narrow"])
def test_nothing_of_the_frame_is_cut_off(look, options):
    tab = look(story(), **options)
    assert tab.ask(OVERLAPPING) == []
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.ask(wider) <= 0
    dark = tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 27, 34)"
    assert dark == bool(options.get("dark"))
    tab.page.click("#theme")
    assert (tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 27, 34)") != dark


def test_an_empty_trace_says_so(look):
    tab = look(table([]))
    assert "no events" in tab.page.text_content("#notice")


def test_the_picture_can_be_saved(look):
    tab = look(story())
    with tab.page.expect_download() as download:
        tab.page.click("#picture")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


def test_names_that_run_from_right_to_left_turn_nothing_else_around(look):
    """Each text of a trace is isolated: whatever stands behind it in the page stands to its right."""
    chains = {
        "p\u202eab": [{"kind": "send", "message": "m\u202ecd", "to": ["q"], "label": "x"}],
        "q": [{"kind": "deliver", "message": "m\u202ecd", "label": "y"}],
    }
    tab = look(table(number(chains)), width=2400)
    tab.page.fill("#search", "kind:send")
    places = tab.ask("""(() => {
      const item = document.querySelector("#panel-body li");
      const walker = document.createTreeWalker(item, NodeFilter.SHOW_TEXT);
      const range = document.createRange(), found = [];
      while (walker.nextNode()) {
        range.selectNodeContents(walker.currentNode);
        found.push([walker.currentNode.data, range.getBoundingClientRect().left]);
      }
      return found;
    })()""")
    assert "".join(text for text, _ in places) == "p\u202eab#1 send m\u202ecd “x”"
    assert len(places) >= 4 and [left for _, left in places] == sorted(left for _, left in places)
