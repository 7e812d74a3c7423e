"""A page of the browser for a trace."""

import pytest

from happened.trace import write_jsonl
from happened.view import page, viewed
from view.chromium import Tab


@pytest.fixture
def look(chromium, tmp_path):
    """Open the view of a table; it must have asked nobody for anything, and complained of nothing."""
    tabs = []

    def look(table, **options):
        write_jsonl(table, tmp_path / "trace.jsonl")
        file = tmp_path / "page.html"
        file.write_text(page(viewed(tmp_path / "trace.jsonl")), encoding="utf-8")
        tab = Tab(chromium, **options)
        tabs.append(tab)
        return tab.open(file.as_uri())

    yield look
    for tab in tabs:
        asked = [url for url in tab.requests if not url.startswith((tmp_path.as_uri(), "blob:"))]
        tab.context.close()
        assert (tab.errors, asked) == ([], [])
