"""A story as a page to step through, forwards and backwards: a space–time diagram, and beside it what every
process knows after the step.

In    what `happened play --json` prints (`sim/scenes.document`)
Out   one self-contained page; all of it is computed here, the script only shows and hides
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

STEP, LANE, LEFT, TOP = 48, 64, 12, 40
LETTER = 8  # the width of one, about, in pixels
CLEAR = 11.0  # pixels between the way of a copy and the middle of a step that is not its own
BENDS = (0, -14, 14, -24, 24, -36, 36)  # how far its middle may be led aside, tried in this order

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --paper: #fff; --line: #a3acbb; --dim: #576174;
  --accent: #1f5fbf; --fault: #b3261e; --soft: #eef1f6; --hold: #b36b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --paper: #14171d; --line: #566072;
  --dim: #a2acbc; --accent: #7fb0ff; --fault: #ff8a80; --soft: #1f242d; --hold: #ffb74d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1.5rem; }
h1 { font-size: 1.2rem; margin: 0 0 .2rem; } p { margin: .2rem 0 .8rem; color: var(--dim); }
main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(24rem, 38%); gap: 1.5rem;
  align-items: start; }
@media (max-width: 60rem) { main { grid-template-columns: minmax(0, 1fr); } }
.picture { display: flex; overflow-x: auto; border: 1px solid var(--soft); border-radius: .4rem; }
svg { font: 12px system-ui, sans-serif; display: block; } svg text { fill: var(--ink); }
.names { position: sticky; left: 0; background: var(--paper); flex: none; font-weight: 600;
  text-anchor: end; }
svg { flex: none; } .note { text-anchor: middle; fill: var(--dim); paint-order: stroke;
  stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.axis { stroke: var(--line); } .now { fill: var(--soft); }
.copy { fill: none; stroke: var(--accent); stroke-width: 1.6; }
.copy.flight { stroke-dasharray: 3 5; opacity: .45; }
.copy.fault { stroke: var(--fault); } .hold { stroke: var(--hold); stroke-width: 7; opacity: .55; }
.send { fill: var(--accent); } .deliver { fill: var(--paper); stroke: var(--accent); stroke-width: 2.5; }
.arrive { fill: var(--paper); stroke: var(--dim); stroke-width: 1.5; } .event { fill: var(--ink); }
.pass { fill: var(--soft); stroke: var(--accent); stroke-width: 2; }
.refused { fill: var(--paper); stroke: var(--fault); stroke-width: 2; }
.deliver.fault { stroke: var(--fault); }
.later { display: none; }
.follows { fill: none; stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 6 3; }
pre { font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; background: var(--soft);
  margin: 0 0 1rem; min-height: 9rem; padding: .6rem .8rem; border-radius: .4rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .2rem .6rem .2rem 0; border-top: 1px solid var(--soft); font: 13px/1.5 ui-monospace, monospace; }
nav { display: flex; gap: .5rem; align-items: center; margin: .6rem 0; }
button { font: inherit; padding: .25rem .8rem; } input[type=range] { flex: 1; }
button:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
pre div { padding-left: 2.2rem; text-indent: -1.2rem; }
pre div:first-child { padding-left: 1rem; text-indent: -1rem; font-weight: 600; }
.holds { color: var(--hold); } .wrong { color: var(--fault); font-weight: 600; }
.rule { color: var(--dim); } .rule b { color: var(--accent); }
tr.acting > * { background: var(--soft); } td div { display: flex; white-space: pre-wrap; }
.title { color: var(--dim); margin-right: .5rem; flex: none; }
th { white-space: nowrap; width: 1%; padding-right: 1rem; } td { overflow-wrap: anywhere; }
.empty { color: var(--dim); }
"""

SCRIPT = """
const story = JSON.parse(document.getElementById("story").textContent);
const at = id => document.getElementById(id);
let step = 0;
function element(name, kind, text) {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}
function show(k) {
  step = Math.max(0, Math.min(story.steps.length, k));
  const now = story.left + story.width * step;
  for (const each of document.querySelectorAll("[data-step]")) {
    each.classList.toggle("later", Number(each.dataset.step) > step);
    if (each.dataset.until) each.classList.toggle("flight", Number(each.dataset.until) > step);
    if (each.dataset.end) each.setAttribute("x2", Math.min(each.dataset.end, now));
  }
  for (const each of document.querySelectorAll("[data-at]"))
    each.classList.toggle("later", Number(each.dataset.at) !== step);
  at("now").setAttribute("x", story.left + story.width * (step - 1));
  at("now").classList.toggle("later", step === 0);
  const scene = story.steps[step - 1];
  const lines = scene ? scene.shown : [["", "", "nothing has happened yet"]];
  at("scene").replaceChildren(...lines.map(([kind, rule, text]) => {
    const line = element("div", kind, text);
    if (rule) line.prepend(element("b", "", rule), " ");
    return line;
  }));
  for (const p of story.lanes) {
    const last = story.steps[story.last[step][p]];
    at("row" + p).classList.toggle("acting", Boolean(scene) && scene.process === p);
    at("known" + p).replaceChildren(...(last ? last.known : []).map(([title, text]) => {
      const line = element("div", text === "nothing" ? "empty" : "", "");
      line.append(element("span", "title", title), element("span", "", text));
      return line;
    }), ...(last ? last.held : []).map(text => element("div", "holds", "holds " + text)));
  }
  const picture = document.querySelector(".picture");
  picture.scrollLeft = story.left + story.width * step - 0.7 * picture.clientWidth;
  at("where").textContent = step + " of " + story.steps.length;
  at("slider").value = step;
  history.replaceState(null, "", "#" + step);
}
at("back").addEventListener("click", () => show(step - 1));
at("next").addEventListener("click", () => show(step + 1));
at("slider").addEventListener("input", event => show(Number(event.target.value)));
addEventListener("keydown", event => {
  const move = {ArrowLeft: -1, ArrowRight: 1, Home: -1e6, End: 1e6}[event.key];
  if (move && event.target.id !== "slider") { event.preventDefault(); show(step + move); }
});
show(Number(location.hash.slice(1)) || 0);
"""


def story_page(story: dict[str, Any]) -> str:
    title = f"{story['protocol']}: {story['program']}"
    steps = [
        {"process": s["process"], "shown": _shown(s), "known": _known(s), "held": s["held"]}
        for s in story["steps"]
    ]
    if steps:
        steps[-1]["shown"] += [("holds", "", each) for each in story["end"]]
    lanes = _lanes(story)
    told = {"steps": steps, "last": _last(story), "lanes": lanes, "left": LEFT, "width": STEP}
    data = json.dumps(told).replace("<", "\\u003c")
    policy = f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'"
    rows = "".join(
        f'<tr id="row{p}"><th>{escape(story["names"][p])}</th><td id="known{p}"></td></tr>' for p in lanes
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>{escape(story["notation"])} Step with the arrow keys.</p>
<nav aria-label="steps"><button id="back">back</button><button id="next">next</button>
<input id="slider" type="range" min="0" max="{len(story["steps"])}" value="0" aria-label="step">
<span id="where"></span></nav>
<main><div class="picture">{_Diagram(story["steps"], lanes, story["names"]).svg()}</div>
<div><pre id="scene" aria-live="polite"></pre>
<table aria-label="what each process remembers"><tbody>{rows}</tbody></table></div></main>
<script type="application/json" id="story">{data}</script><script>{SCRIPT}</script></body></html>
"""


def _shown(step: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The lines of a step: the kind of each, the rule it names, and its text. What is known stands beside."""
    rules = {_rule_text(each): each["rule"] for each in step["rules"]}
    held = {f"{step['process']} holds {each}" for each in step["held"]}
    shown = []
    for text in map(str.strip, step["text"][: len(step["text"]) - len(step["known"])]):
        if text in rules:
            shown.append(("rule", rules[text], text.replace(f" ({rules[text]})", "", 1)))
        elif text in held:
            shown.append(("holds", "", text))
        else:
            shown.append(("wrong" if text in step["wrong"] else "", "", text))
    return shown


def _known(step: dict[str, Any]) -> list[tuple[str, str]]:
    """What is remembered, a matrix with one line for each row."""
    return [(title, text.replace("] [", "]\n[")) for title, text in step["known"]]


def _rule_text(told: dict[str, Any]) -> str:
    rule = f" ({told['rule']})" if told["rule"] else ""
    return f"{told['about']} {told['what']}{rule}: {told['reason']}"


def _lanes(story: dict[str, Any]) -> list[int]:
    """The processes that take part."""
    acting = {step["process"] for step in story["steps"]}
    addressed = {to for step in story["steps"] for to in step["to"]}
    return [p for p in range(story["processes"]) if p in acting | addressed]


def _last(story: dict[str, Any]) -> list[list[int]]:
    """After each number of steps, the place of every process's own last step; -1 if it has had none."""
    last = [[-1] * story["processes"]]
    for place, step in enumerate(story["steps"]):
        last.append([place if p == step["process"] else before for p, before in enumerate(last[-1])])
    return last


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class _Diagram:
    """The space–time diagram: a line for each process of `lanes`, a column for each step."""

    def __init__(self, steps: list[dict[str, Any]], lanes: list[int], names: list[str]) -> None:
        self._steps, self._names = steps, {p: names[p] for p in lanes}
        self._y = {p: TOP + LANE * place for place, p in enumerate(lanes)}
        arriving = [(place, step) for place, step in enumerate(steps) if step["departed"]]
        self._curves = {place: self._curve(place, step) for place, step in arriving}

    def svg(self) -> str:
        width, height = LEFT + STEP * max(1, len(self._steps)) + 20, TOP + LANE * len(self._y)
        margin = 24 + LETTER * max(map(len, self._names.values()), default=0)
        names = "".join(
            f'<text x="{margin - 10}" y="{y + 4}">{escape(self._names[p])}</text>' for p, y in self._y.items()
        )
        parts = [
            f'<svg class="names" width="{margin}" height="{height}" aria-hidden="true">{names}</svg>',
            f'<svg width="{width}" height="{height}" role="img" aria-label="space–time diagram">',
            f'<rect class="now later" id="now" x="0" y="0" width="{STEP}" height="{height}"/>',
        ]
        for y in self._y.values():
            parts.append(f'<line class="axis" x1="{LEFT - 4}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
        for place, step in enumerate(self._steps):
            parts += [self._copy(place, step), self._hold(place, step)]
        for place, step in enumerate(self._steps):
            parts += [self._followed(place, step), self._mark(place, step)]
        return "".join([*parts, "</svg>"])

    def _copy(self, place: int, step: dict[str, Any]) -> str:
        """The way of the copy that arrives at this step."""
        curve = self._curves.get(place)
        if curve is None:
            return ""
        fault = " fault" if step["wrong"] else ""
        return (
            f'<path class="copy{fault}" data-step="{step["departed"]}" data-until="{place + 1}" '
            f'd="{curve.path()}"/>'
        )

    def _curve(self, place: int, step: dict[str, Any]) -> "_Curve":
        """The way of a copy, straight or in one bow that keeps it clear of the steps that it passes; where
        none does, in the one that keeps it farthest from the nearest."""
        tail = step["departed"] - 1
        ends = _x(tail), self._y[step["source"]], _x(place), self._y[step["process"]]
        passed = [(_x(i), self._y[self._steps[i]["process"]]) for i in range(tail + 1, place)]
        curves = [_Curve(*ends, bend) for bend in BENDS]
        clear = (c for c in curves if c.room(passed) >= CLEAR)
        return next(clear, None) or max(curves, key=lambda c: c.room(passed))

    def _hold(self, place: int, step: dict[str, Any]) -> str:
        """How long what arrives at this step is held; to the end, if nothing releases it."""
        if step["arrival"] is None or step["arrival"] in step["taken"]:
            return ""
        later = range(place + 1, len(self._steps))
        here = (i for i in later if self._steps[i]["process"] == step["process"])
        until = next((i for i in here if step["arrival"] in self._steps[i]["taken"]), len(self._steps) - 1)
        y = self._y[step["process"]]
        return (
            f'<line class="hold" data-step="{place + 1}" data-end="{_x(until)}" x1="{_x(place)}" y1="{y}" '
            f'x2="{_x(until)}" y2="{y}"><title>held</title></line>'
        )

    def _followed(self, place: int, step: dict[str, Any]) -> str:
        """From the immediate predecessors of a relevant event to it, while it is the step."""
        events = {tuple(s["name"]): i for i, s in enumerate(self._steps[:place]) if s["kind"] == "event"}
        return "".join(
            f'<path class="follows later" data-at="{place + 1}" d="M{_x(i)},{self._y[event[0]]} '
            f"Q{(_x(i) + _x(place)) / 2},{min(self._y[event[0]], self._y[step['process']]) - LANE / 2} "
            f'{_x(place)},{self._y[step["process"]]}"/>'
            for event in map(tuple, step["follows"])
            if (i := events.get(event)) is not None
        )

    def _mark(self, place: int, step: dict[str, Any]) -> str:
        x, y = _x(place), self._y[step["process"]]
        shown = f'data-step="{place + 1}"'
        fault = " fault" if step["wrong"] else ""
        if step["kind"] in ("send", "event", "refused"):
            kind, radius = step["kind"] + fault, 6
        elif step["delivered"]:
            kind, radius = "deliver" + fault, 6
        else:
            kind, radius = ("pass" if step["taken"] else "arrive"), 4
        named = f"{step['name'][0]},{step['name'][1]}" if step["name"] else ""
        if step["kind"] == "event":
            named = f"({named})"
        return (
            f'<circle class="{kind}" {shown} cx="{x}" cy="{y}" r="{radius}">'
            f"<title>{escape(step['what'])}</title></circle>"
            f'<text class="note" {shown} x="{x}" y="{self._beside(x, y, named)}">{named}</text>'
        )

    def _beside(self, x: int, y: int, name: str) -> int:
        """Where the name of a step stands: above it, or below if fewer lines run through it there."""
        above, below = y - 12, y + 21
        curves = self._curves.values()

        def struck(base: int) -> int:
            half = LETTER * len(name) / 2
            return sum(curve.strikes(x - half, base - 11, x + half, base + 2) for curve in curves)

        return below if struck(below) < struck(above) else above


def _x(place: int) -> int:
    return LEFT + STEP * place + STEP // 2


@dataclass(frozen=True, slots=True)
class _Curve:
    """From one place to another, to its right; its middle is led up or down by `bend`."""

    ax: int
    ay: int
    bx: int
    by: int
    bend: int

    def y(self, x: float) -> float:
        share = (x - self.ax) / (self.bx - self.ax)
        return self.ay + share * (self.by - self.ay) + 4 * share * (1 - share) * self.bend

    def room(self, places: Iterable[tuple[int, int]]) -> float:
        """About how far it keeps from the nearest of these places between its ends."""
        width, height = self.bx - self.ax, self.by - self.ay
        steep = width / (width * width + height * height) ** 0.5
        return min((abs(self.y(x) - y) * steep for x, y in places), default=CLEAR)

    def strikes(self, left: float, top: float, right: float, bottom: float) -> bool:
        """Whether it runs through a box."""
        left, right = max(left, self.ax), min(right, self.bx)
        if left >= right:
            return False
        ys = [self.y(left + (right - left) * k / 4) for k in range(5)]
        return min(ys) < bottom and max(ys) > top

    def path(self) -> str:
        if not self.bend:
            return f"M{self.ax} {self.ay}L{self.bx} {self.by}"
        middle = (self.ax + self.bx) / 2, (self.ay + self.by) / 2 + 2 * self.bend
        return f"M{self.ax} {self.ay}Q{middle[0]:g} {middle[1]:g} {self.bx} {self.by}"
