"""The system's Chromium, headless, driven over a pipe by its own debugging protocol: no driver to install.

Messages are JSON, each ended by a NUL, in by file descriptor 3 and out by 4 (`--remote-debugging-pipe`).
"""

import base64
import json
import os
import select
import subprocess
import time
from pathlib import Path

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60  # seconds for one answer: the machine may be busy


class Chromium:
    """One page of one browser. `requests` are the addresses it asked for, `errors` what its console said."""

    def __init__(self, path, profile: Path):
        self.requests, self.errors = [], []
        self._events, self._buffer, self._number = [], b"", 0
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def as_3_and_4():
            # Through high numbers first: either end may already be 3 or 4.
            high = os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=as_3_and_4,
            pass_fds=(3, 4),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        """It is asked to end, so that nothing of it writes to its profile any more."""
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(PATIENCE)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def open(self, path: Path, *, width=1100, height=900, dark=False):
        """Load a file and wait until all of it is there."""
        self.requests.clear()
        self.errors.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._read()

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path):
        """The whole page, however long."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _read(self):
        """The next message from the browser, noted if it is about the page."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser has been silent for {PATIENCE} s"
            read = os.read(self._in, 1 << 20)
            assert read, f"the browser ended with {self._process.wait()}"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        method, about = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        return message
