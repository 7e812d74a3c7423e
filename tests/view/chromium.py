"""Pages in the system's Chromium, driven by Playwright: what they show, say and ask for."""

from contextlib import contextmanager

from playwright.sync_api import sync_playwright

from happened.view.browser import find_browser

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE = 60_000  # milliseconds: the machine may be busy


@contextmanager
def launched():
    """The browser, or None if there is none on this machine."""
    path = find_browser()
    if path is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        yield browser
        browser.close()


class Tab:
    """One page. `errors` is what its console complained of, `requests` what it asked for."""

    def __init__(self, browser, *, width=1280, height=800, dark=False, touch=False):
        self.errors, self.requests = [], []
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height}
        self.context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=touch)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", self._dialog)

    def _console(self, message):
        if message.type in ("error", "warning", "assert"):
            self.errors.append(message.text)

    def _dialog(self, dialog):
        self.errors.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, address):
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]", state="attached")
        return self

    def ask(self, expression):
        """The value of an expression in the page, once what was asked for is drawn."""
        drawn = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        return self.page.evaluate(
            f"async () => {{ const value = await ({expression}); {drawn}; return value; }}"
        )

    def live(self):
        return self.page.text_content("#live")

    def panel(self):
        return self.page.inner_text("#panel-body")

    def click(self, event, **options):
        """Click an event of the picture where it is drawn."""
        self.ask("true")  # once what was asked for before is drawn: places are those of the last picture
        x, y = self.ask(f"happened.at({event!r})")
        self.page.mouse.move(x, y)
        if options.get("shift"):
            self.page.keyboard.down("Shift")
        self.page.mouse.click(x, y)
        if options.get("shift"):
            self.page.keyboard.up("Shift")
        return self
