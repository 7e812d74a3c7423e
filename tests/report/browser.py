"""The system's Chromium as a reader of reports: what a page asks for, and what its console says."""

from pathlib import Path

from happened.view.browser import Browser


class Chromium(Browser):
    """One page. `requests` are the addresses it asked for, `errors` what its console said."""

    def __init__(self, path, profile: Path):
        self.requests, self.errors = [], []
        super().__init__(path, profile)
        for domain in ("Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, **view):
        self.requests.clear()
        self.errors.clear()
        super().open(path, **view)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def told(self, method, about):
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
