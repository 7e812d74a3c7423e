"""A story as a page to step through, forwards and backwards: a space–time diagram, and beside it what every
process knows after the step.

In    what `happened play --json` prints
Out   one self-contained page; all of it is computed here, the script only shows and hides
"""

import base64
import hashlib
import json
from html import escape
from typing import Any

STEP, LANE, LEFT, TOP = 48, 64, 12, 40

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --paper: #fff; --line: #a3acbb; --dim: #576174;
  --accent: #1f5fbf; --fault: #b3261e; --soft: #eef1f6; --hold: #b36b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf0; --paper: #14171d; --line: #566072;
  --dim: #a2acbc; --accent: #7fb0ff; --fault: #ff8a80; --soft: #1f242d; --hold: #ffb74d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1.5rem; }
h1 { font-size: 1.2rem; margin: 0 0 .2rem; } p { margin: .2rem 0 .8rem; color: var(--dim); }
main { display: grid; grid-template-columns: minmax(0, 1fr) 24rem; gap: 1.5rem; align-items: start; }
@media (max-width: 60rem) { main { grid-template-columns: minmax(0, 1fr); } }
.picture { display: flex; overflow-x: auto; border: 1px solid var(--soft); border-radius: .4rem; }
svg { font: 12px system-ui, sans-serif; display: block; } svg text { fill: var(--ink); }
.names { position: sticky; left: 0; background: var(--paper); flex: none; font-weight: 600;
  text-anchor: end; }
svg { flex: none; } .note { text-anchor: middle; fill: var(--dim); }
.axis { stroke: var(--line); } .now { fill: var(--soft); }
.copy { stroke: var(--accent); stroke-width: 1.6; } .copy.flight { stroke-dasharray: 3 5; opacity: .45; }
.copy.fault { stroke: var(--fault); } .hold { stroke: var(--hold); stroke-width: 7; opacity: .55; }
.send { fill: var(--accent); } .deliver { fill: var(--paper); stroke: var(--accent); stroke-width: 2.5; }
.arrive { fill: var(--paper); stroke: var(--dim); stroke-width: 1.5; }
.deliver.fault { stroke: var(--fault); }
.later { display: none; }
pre { font: 13px/1.5 ui-monospace, monospace; white-space: pre-wrap; background: var(--soft);
  margin: 0 0 1rem; min-height: 9rem; padding: .6rem .8rem; border-radius: .4rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
  padding: .2rem .6rem .2rem 0; border-top: 1px solid var(--soft); font: 13px/1.5 ui-monospace, monospace; }
nav { display: flex; gap: .5rem; align-items: center; margin: .6rem 0; }
button { font: inherit; padding: .25rem .8rem; } input[type=range] { flex: 1; }
button:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
pre div { padding-left: 2.2rem; text-indent: -1.2rem; }
pre div:first-child { padding-left: 1rem; text-indent: -1rem; font-weight: 600; }
.holds { color: var(--hold); } .overtakes { color: var(--fault); font-weight: 600; }
"""

SCRIPT = """
const story = JSON.parse(document.getElementById("story").textContent);
const at = id => document.getElementById(id);
let step = 0;
function show(k) {
  step = Math.max(0, Math.min(story.steps.length, k));
  for (const each of document.querySelectorAll("[data-step]")) {
    each.classList.toggle("later", Number(each.dataset.step) > step);
    if (each.dataset.until) each.classList.toggle("flight", Number(each.dataset.until) > step);
  }
  at("now").setAttribute("x", story.left + story.width * (step - 1));
  at("now").classList.toggle("later", step === 0);
  const scene = story.steps[step - 1];
  const lines = scene ? scene.text : ["nothing has happened yet"];
  at("scene").replaceChildren(...lines.map(text => {
    const line = document.createElement("div");
    line.textContent = text.trim();
    line.className = text.includes("OVERTAKING") ? "overtakes" : "";
    return line;
  }));
  for (let p = 0; p < story.processes; p++) {
    let last = null;
    for (const each of story.steps.slice(0, step)) if (each.process === p) last = each;
    at("log" + p).textContent = last ? (last.log ?? "–") : "–";
    at("held" + p).textContent = last && last.held.length ? last.held.join("; ") : "";
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
    data = json.dumps(story | {"left": LEFT, "width": STEP}).replace("<", "\\u003c")
    policy = f"default-src 'none'; style-src '{_hash(STYLE)}'; script-src '{_hash(SCRIPT)}'"
    rows = "".join(
        f'<tr><th>{p}</th><td id="log{p}"></td><td class="holds" id="held{p}"></td></tr>'
        for p in range(story["processes"])
    )
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p>A log entry 5,1:{{6}} means that M(5,1) may not have been delivered at 6 yet. Step with the arrow keys.</p>
<nav aria-label="steps"><button id="back">back</button><button id="next">next</button>
<input id="slider" type="range" min="0" max="{len(story["steps"])}" value="0" aria-label="step">
<span id="where"></span></nav>
<main><div class="picture">{_diagram(story)}</div>
<div><pre id="scene" aria-live="polite"></pre>
<table><thead><tr><th></th><th>log</th><th>held</th></tr></thead><tbody>{rows}</tbody></table></div></main>
<script type="application/json" id="story">{data}</script><script>{SCRIPT}</script></body></html>
"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _diagram(story: dict[str, Any]) -> str:
    steps, processes = story["steps"], story["processes"]
    width, height = LEFT + STEP * max(1, len(steps)) + 20, TOP + LANE * processes
    names = "".join(f'<text x="30" y="{_y(p) + 4}">{p}</text>' for p in range(processes))
    parts = [
        f'<svg class="names" width="40" height="{height}" aria-hidden="true">{names}</svg>',
        f'<svg width="{width}" height="{height}" role="img" aria-label="space–time diagram">',
        f'<rect class="now later" id="now" x="0" y="0" width="{STEP}" height="{height}"/>',
    ]
    for p in range(processes):
        y = TOP + LANE * p
        parts.append(f'<line class="axis" x1="{LEFT - 4}" y1="{y}" x2="{width - 10}" y2="{y}"/>')
    for place, step in enumerate(steps):
        parts += _copies(steps, place, step)
    for place, step in enumerate(steps):
        parts += _marks(place, step)
    return "".join([*parts, "</svg>"])


def _x(place: int) -> int:
    return LEFT + STEP * place + STEP // 2


def _y(process: int) -> int:
    return TOP + LANE * process


def _copies(steps: list[dict[str, Any]], place: int, step: dict[str, Any]) -> list[str]:
    """The way of the copy that arrives at this step, and how long it was held here."""
    if step["source"] is None:
        return []
    parts = []
    senders = [i for i in range(place) if steps[i]["process"] == step["source"]]
    named = [i for i in senders if steps[i]["name"] == step["name"]]
    if senders:
        tail = (named or senders)[-1]
        fault = " fault" if step["overtaken"] else ""
        parts.append(
            f'<line class="copy{fault}" data-step="{tail + 1}" data-until="{place + 1}" x1="{_x(tail)}" '
            f'y1="{_y(step["source"])}" x2="{_x(place)}" y2="{_y(step["process"])}"/>'
        )
    if step["name"] is not None and step["name"] not in step["delivered"]:
        until = next(
            (
                later
                for later in range(place + 1, len(steps))
                if steps[later]["process"] == step["process"] and step["name"] in steps[later]["delivered"]
            ),
            None,
        )
        if until is not None:
            parts.append(
                f'<line class="hold" data-step="{place + 1}" x1="{_x(place)}" y1="{_y(step["process"])}" '
                f'x2="{_x(until)}" y2="{_y(step["process"])}"><title>held</title></line>'
            )
    return parts


def _marks(place: int, step: dict[str, Any]) -> list[str]:
    x, y = _x(place), _y(step["process"])
    shown = f'data-step="{place + 1}"'
    if step["to"]:
        kind, radius = "send", 6
    elif step["delivered"]:
        kind, radius = "deliver fault" if step["overtaken"] else "deliver", 6
    else:
        kind, radius = "arrive", 4
    named = f"{step['name'][0]},{step['name'][1]}" if step["name"] else ""
    return [
        f'<circle class="{kind}" {shown} cx="{x}" cy="{y}" r="{radius}">'
        f"<title>{escape(step['what'])}</title></circle>",
        f'<text class="note" {shown} x="{x}" y="{y - 12}">{named}</text>',
    ]
