"""Make the pictures of docs/stories.md and docs/view.md anew: python scripts/pictures.py

Needs the extra `test` (Playwright) and the system's Chromium.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from happened.cli import main

ROOT = Path(__file__).parents[1]
STORIES = (  # file, step, size of the window, arguments of `happened play`, file of the schedule
    (
        "figure_2_8.png",
        10,
        (1180, 640),
        ("5: {4,6} {6}; 4: {2,3} {3,6}; 6: {1}; 2: {1} {1}; 3: {2}", "--tick-at-deliveries"),
        "figure_2_8.txt",
    ),
    ("figure_4_1.png", 3, (1180, 540), ("1: {2,3}; 3: {2} {2}", "--protocol", "histories"), "figure_4_1.txt"),
    (
        "story_routers.png",
        5,
        (1180, 600),
        ("0: {2}; 2: {0}", "--protocol", "topological", "--topology", "examples/topologies/line.yaml"),
        "there_and_back.txt",
    ),
    (
        "story_tracker.png",
        15,
        (1180, 640),
        ("0: e {1} e {1} e; 1: e e {0} e {2}; 2: e {1} e", "--tracker", "p3-reduced"),
        "figure_2.txt",
    ),
)

SIMULATED = ("simulate", "--processes", "5", "--messages", "40", "--json")
VIEWS = (  # file, how its trace is made, the event that is selected, the keys that are pressed
    ("view-select.jpg", (*SIMULATED, "--seed", "1"), "p2#12", ""),
    (
        "view-fault.jpg",
        (*SIMULATED, "--protocol", "chain-two", "--delay", "lognormal:0.1:1.5", "--seed", "2"),
        "",
        "v",
    ),
    ("view-spans.jpg", ("import", "examples/shop.otlp.json", "--json"), "", "s"),
)


def story_picture(
    page: Page, folder: Path, name: str, step: int, play: tuple[str, ...], schedule: str
) -> None:
    story = folder / f"{name}.html"
    options = ["--schedule", f"examples/stories/{schedule}", "--out", str(story), "--json"]
    if main(["play", *play, *options]) != 0:
        sys.exit(f"the story of {name} went wrong")
    page.goto(f"{story.as_uri()}#step={step}")
    page.wait_for_timeout(500)  # it is drawn in the next frame
    page.screenshot(path=ROOT / "docs" / name)


def view_picture(page: Page, folder: Path, name: str, make: tuple[str, ...], event: str, keys: str) -> None:
    trace, html = folder / Path(name).stem, folder / f"{name}.html"
    if main([*make, "--out", str(trace)]) != 0 or main(["view", str(trace), "--out", str(html)]) != 0:
        sys.exit(f"the view of {name} went wrong")
    page.goto(html.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    if event:
        page.evaluate(f"happened.select({event!r})")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(500)  # it is drawn in the next frame
    page.screenshot(path=ROOT / "docs" / name, type="jpeg", quality=80)


if __name__ == "__main__":
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, step, (width, height), play, schedule in STORIES:
            page = browser.new_page(viewport={"width": width, "height": height})
            story_picture(page, Path(folder), name, step, play, schedule)
            page.close()
        for name, make, event, keys in VIEWS:
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            view_picture(page, Path(folder), name, make, event, keys)
            page.close()
        browser.close()
