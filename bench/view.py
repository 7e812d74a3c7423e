"""Does a view of 100,000 events open quickly and follow the mouse smoothly?

    python bench/view.py [--messages N] [--processes N] [--serve N] [--json]

A simulated trace is opened in headless Chromium with software rendering and moved by a few pixels for each of
FRAMES frames, zoomed out and at three stretches; beside it, in the same browser, a page that only draws as
many points, moved likewise. Reported are seconds until the first picture is there, and the milliseconds from
one frame to the next: the median, and the longest. The goals: open in two seconds; no frame above 50 ms, or
none above 1.5 times the longest of the page of points. With --serve, what a server of a trace of N messages
needs to read it, and to answer for a window, a slice, the reach of an event and a word looked for everywhere.
"""

import argparse
import contextlib
import io
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")  # where `view` is not this file

from happened.cli import main as happened
from happened.trace import count
from happened.view import page, viewed
from happened.view.scene import compressed
from happened.view.server import Followed
from view.chromium import Tab, launched

FRAMES = 60
WARM_UP = 10
POINTS = """<!doctype html><html data-ready><canvas id="c" width="WIDTH" height="HEIGHT"></canvas><script>
const g = document.getElementById("c").getContext("2d", {alpha: false});
const xs = Float64Array.from({length: COUNT}, () => Math.random() * WIDTH);
const ys = Float64Array.from({length: COUNT}, () => Math.floor(Math.random() * 32) * HEIGHT / 32);
let shift = 0;
function move(dx) {
  shift += dx;
  requestAnimationFrame(() => {
    g.fillStyle = "#fff"; g.fillRect(0, 0, WIDTH, HEIGHT); g.fillStyle = "#345";
    for (let i = 0; i < COUNT; i++) g.fillRect(xs[i] + shift, ys[i], 2, 2);
  });
}
</script>"""
MOVE = """async frames => {
  const gaps = [];
  let last = performance.now();
  for (let k = 0; k < frames; k++) {
    MOVE(k % 20 < 10 ? -9 : 9);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    gaps.push(now - last);
    last = now;
  }
  return gaps;
}"""
SIZE = {"width": 1280, "height": 800}


def frames(tab, move):
    gaps = sorted(tab.page.evaluate(MOVE.replace("MOVE", move), WARM_UP + FRAMES)[WARM_UP:])
    return {"median_ms": round(gaps[len(gaps) // 2], 1), "longest_ms": round(gaps[-1], 1)}


def opened(browser, path):
    tab = Tab(browser, **SIZE)
    began = time.perf_counter()
    tab.open(path.as_uri())
    tab.ask("true")  # once it is drawn
    return tab, time.perf_counter() - began


def simulated(messages, processes, out):
    with contextlib.redirect_stdout(io.StringIO()):
        happened(["simulate", "--processes", str(processes), "--messages", str(messages), "--out", str(out)])


def measure(messages, processes, folder):
    simulated(messages, processes, folder / "run")
    events = count(folder / "run")
    began = time.perf_counter()
    (folder / "view.html").write_text(page(viewed(folder / "run")), encoding="utf-8")
    made = time.perf_counter() - began
    points = POINTS.replace("COUNT", str(events)).replace("WIDTH", "900").replace("HEIGHT", "680")
    (folder / "points.html").write_text(points)
    found = {"events": events, "processes": processes, "page_bytes": (folder / "view.html").stat().st_size}
    found["made_seconds"] = round(made, 2)
    with launched() as browser:
        tab, seconds = opened(browser, folder / "view.html")
        found["opened_seconds"] = round(seconds, 2)
        depth = tab.ask("happened.state().depth")
        for share in (1, 0.5, 0.1, 0.01):
            tab.ask(
                f"happened.look({depth * 0.3 * (share < 1)}, {depth * (0.3 + share if share < 1 else 1)})"
            )
            found[f"{share:.0%} of it"] = frames(tab, "happened.pan")
        tab.context.close()
        tab, _ = opened(browser, folder / "points.html")
        found["points"] = frames(tab, "move")
        tab.context.close()
    return found


def served(messages, folder):
    """Seconds to read a trace, and of the slowest of a few answers of each kind."""
    simulated(messages, 16, folder / "large")
    began = time.perf_counter()
    windows = Followed(str(folder / "large")).windows(0)
    windows.window(1, 1)  # the first window computes everything about the order
    found = {"events": windows.prepared.c.events, "read": time.perf_counter() - began}
    levels = windows.prepared.levels.tolist()
    places = [windows.prepared.c.events * k // 8 for k in range(1, 8)]
    asked = {
        "window": lambda e: compressed(windows.window(levels[e], levels[e] + 60)),
        "slice": lambda e: compressed(windows.slice(e, "past")),
        "reach": windows.reach,
        "find": lambda e: windows.find(f"p{e % 16}:{e % 1000}"),
    }
    for name, ask in asked.items():
        took = []
        for e in places:
            began = time.perf_counter()
            ask(e)
            took.append(time.perf_counter() - began)
        found[name] = max(took[1:])  # the first call may compile
    return {name: round(value, 3) for name, value in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=3100)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--serve", type=int, metavar="MESSAGES", help="62500 make a million events")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments.messages, arguments.processes, Path(folder))
        found["served"] = served(arguments.serve, Path(folder)) if arguments.serve else None
    found["machine"] = platform.platform()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['events']:,} events of {found['processes']} processes, {found['page_bytes']:,} bytes")
    print(f"made in {found['made_seconds']} s, opened in {found['opened_seconds']} s (goal: 2 s)")
    print(f"{'shown':14}{'median ms':>12}{'longest ms':>12}{'of points':>12}")
    for name, told in found.items():
        if isinstance(told, dict) and name != "served":
            ratio = told["longest_ms"] / found["points"]["longest_ms"]
            print(f"{name:14}{told['median_ms']:>12}{told['longest_ms']:>12}{ratio:>12.2f}")
    if found["served"]:
        told = ", ".join(f"{name} {value:,}" for name, value in found["served"].items())
        print(f"served, in seconds: {told}")


if __name__ == "__main__":
    main()
