"""An SVG picture as PNG, drawn by the Chromium of this machine: as a browser shows it, in any script.

The browser is started for one picture, with a profile of its own that is removed. The picture is ours: it has
no script and asks for nothing.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..core.errors import CausalityError, LocalProtocolError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE = 120  # seconds for one picture: the machine may be busy
MOST_PIXELS = 60_000_000
SHARP = 2  # pixels of the picture to one of the drawing, if there is room


def find_browser() -> str | None:
    """The browser to use: $CHROMIUM, or one by a usual name; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def png_of(svg: str) -> bytes:
    """The picture, which has a width and a height. LocalProtocolError if it is too large or nobody draws."""
    size = re.search(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg)
    assert size is not None, "our pictures have a size"
    wide, tall = int(size[1]), int(size[2])
    if wide * tall > MOST_PIXELS:
        raise LocalProtocolError(
            f"a picture of {wide:,} by {tall:,} pixels is too large; choose a part (--window, --past, …)"
        )
    browser = find_browser()
    if browser is None:
        raise LocalProtocolError(
            "PNG is drawn by Chromium, and none was found: install it (`apt install chromium`), name it in "
            "$CHROMIUM, or write --to svg"
        )
    with tempfile.TemporaryDirectory(prefix="happened-", ignore_cleanup_errors=True) as folder:
        return _drawn(browser, svg, (wide, tall), Path(folder))


def _drawn(browser: str, svg: str, size: tuple[int, int], folder: Path) -> bytes:
    picture, out = folder / "picture.svg", folder / "picture.png"
    picture.write_text(svg, encoding="utf-8")
    sharp = SHARP if SHARP**2 * size[0] * size[1] <= MOST_PIXELS else 1
    # Chromium refuses to run as root with its sandbox, which here only our own drawing would be in.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    command = [
        browser, *FLAGS, *root, f"--user-data-dir={folder / 'profile'}", f"--screenshot={out}",
        f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={sharp}", picture.as_uri(),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CausalityError(f"{browser} did not draw the picture ({error}); write --to svg") from error
    if not out.is_file():
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise CausalityError(f"{browser} drew no picture: {said[0][:300]}; write --to svg")
    return out.read_bytes()
