"""An SVG picture as PNG, drawn by the Chromium of this machine: as a browser shows it, in any script.

The browser is started for one picture, with a profile of its own that is removed. The picture is ours: it has
no script and asks for nothing.
"""

import re
import tempfile
from pathlib import Path

from ..core.errors import CausalityError, LocalProtocolError
from .browser import Browser, find_browser

MOST_PIXELS = 60_000_000
SHARP = 2  # pixels of the picture to one of the drawing, if there is room


def png_of(svg: str) -> bytes:
    """The SVG as PNG. LocalProtocolError if the picture is too large or no browser is installed."""
    size = re.search(r'<svg[^>]* width="(\d+)" height="(\d+)"', svg)
    assert size is not None, "our pictures have a size"
    wide, tall = int(size[1]), int(size[2])
    if wide * tall > MOST_PIXELS:
        raise LocalProtocolError(
            f"a picture of {wide:,} by {tall:,} pixels is too large; choose a part (--window, --past, …)"
        )
    path = find_browser()
    if path is None:
        raise LocalProtocolError(
            "PNG is drawn by Chromium, and none was found: install it (`apt install chromium`), name it in "
            "$CHROMIUM, or write --to svg"
        )
    sharp = SHARP if SHARP**2 * wide * tall <= MOST_PIXELS else 1
    with tempfile.TemporaryDirectory(prefix="happened-", ignore_cleanup_errors=True) as folder:
        picture = Path(folder) / "picture.svg"
        picture.write_text(svg, encoding="utf-8")
        try:
            browser = Browser(path, Path(folder) / "profile")
            try:
                browser.open(picture, width=wide, height=tall, scale=sharp)
                return browser.screenshot()
            finally:
                browser.close()
        except CausalityError as error:
            raise CausalityError(f"{path} drew no picture: {error}; write --to svg") from error
