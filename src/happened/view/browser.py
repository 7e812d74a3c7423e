"""Drive the system's headless Chromium over a pipe, with its debugging protocol: needs no driver.

Messages are JSON, each ended by a NUL; file descriptor 3 is input and 4 output (`--remote-debugging-pipe`).
"""

import base64
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from ..core.errors import CausalityError, LocalProtocolError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60  # seconds to wait for one answer: the machine may be busy


def find_browser() -> str | None:
    """The browser to use: $CHROMIUM, or one by a usual name; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of one browser, with a profile in a directory of its own. CausalityError if it fails."""

    def __init__(self, path: str, profile: Path) -> None:
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self._loaded = False
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def as_3_and_4() -> None:
            # Use high numbers first: either end may already be 3 or 4.
            high = os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        # Chromium refuses to run as root with its sandbox.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        try:
            self._process = subprocess.Popen(
                [path, *FLAGS, *root, f"--user-data-dir={profile}", "about:blank"],
                preexec_fn=as_3_and_4,
                pass_fds=(3, 4),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            os.close(self._out)
            os.close(self._in)
            raise CausalityError(f"{path} cannot be started: {error.strerror}") from error
        finally:
            os.close(to_browser)
            os.close(from_browser)
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Page.enable")
        except CausalityError:
            self.close()
            raise

    def close(self) -> None:
        """Ask the browser to exit and wait for it, so that it no longer writes to its profile."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(PATIENCE)
        except (CausalityError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def open(
        self, path: Path, *, width: int = 1100, height: int = 900, scale: int = 1, dark: bool = False
    ) -> None:
        """Load a file and wait until the page has finished loading."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._read()

    def screenshot(self) -> bytes:
        """The whole page as PNG, whatever its height."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        try:
            os.write(self._out, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise CausalityError("the browser has ended") from error
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise CausalityError(f"the browser refused {method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def told(self, method: str | None, about: dict[str, Any]) -> None:
        """Handle an event that the browser reports about the page."""

    def _read(self) -> dict[str, Any]:
        """The next message from the browser."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise CausalityError(f"the browser has been silent for {PATIENCE} s")
            read = os.read(self._in, 1 << 20)
            if not read:
                raise CausalityError("the browser has ended")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._loaded |= message.get("method") == "Page.loadEventFired"
        self.told(message.get("method"), message.get("params", {}))
        return message


MOST_PIXELS = 60_000_000
SHARP = 2  # pixels of the picture per pixel of the drawing, if there is room


def png_of(svg: str) -> bytes:
    """The SVG as PNG, drawn by a browser started for this picture, with a temporary profile. A browser has
    fonts for all scripts. The picture is ours: it has no script and requests nothing.

    LocalProtocolError if the picture is too large or no browser is installed.
    """
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
            with closing(Browser(path, Path(folder) / "profile")) as browser:
                browser.open(picture, width=wide, height=tall, scale=sharp)
                return browser.screenshot()
        except CausalityError as error:
            raise CausalityError(f"{path} drew no picture: {error}; write --to svg") from error
