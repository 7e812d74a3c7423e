"""Make the pictures of docs/stories.md anew: python scripts/story_pictures.py

Needs the extra `test` (Playwright) and the system's Chromium.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

from happened.cli import main

ROOT = Path(__file__).parents[1]
PICTURES = (  # file, step, size of the window, what is played
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


def picture(page: Page, folder: Path, name: str, step: int, play: tuple[str, ...], schedule: str) -> None:
    story = folder / f"{name}.html"
    options = ["--schedule", f"examples/stories/{schedule}", "--out", str(story), "--json"]
    if main(["play", *play, *options]) != 0:
        sys.exit(f"the story of {name} went wrong")
    page.goto(f"{story.as_uri()}#{step}")
    page.screenshot(path=ROOT / "docs" / name)


if __name__ == "__main__":
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser")
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, step, (width, height), play, schedule in PICTURES:
            page = browser.new_page(viewport={"width": width, "height": height})
            picture(page, Path(folder), name, step, play, schedule)
            page.close()
        browser.close()
