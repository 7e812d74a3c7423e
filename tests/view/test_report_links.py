"""From a number of the report to its rows, and from a row to the events that it is about: in a browser."""

from causality.traces import number, table
from happened.report.page import write_report
from report.answers import write_answers
from view.chromium import Tab

OVERTAKEN = {
    "p": [{"kind": "send", "message": "first", "to": ["q", "r"]}],
    "q": [{"kind": "deliver", "message": "first"}, {"kind": "send", "message": "second", "to": ["r"]}],
    "r": [{"kind": "deliver", "message": "second"}, {"kind": "deliver", "message": "first"}],
}


def test_a_number_leads_to_its_rows_and_a_row_to_its_events(chromium, tmp_path):
    write_report(tmp_path, write_answers(tmp_path, table(number(OVERTAKEN, "c#1"))))
    tab = Tab(chromium)
    tab.page.goto((tmp_path / "report.html").as_uri())
    row = tab.page.locator("#rows-violations-causal")
    assert not row.is_visible()
    tab.page.get_by_role("row", name="causal violations").get_by_role("link").click()
    row.get_by_role("link", name="look").click()
    tab.page.wait_for_selector("html[data-ready]", state="attached")
    assert tab.live() == "r#1 happened before r#2."
    tab.page.go_back()
    tab.page.get_by_role("link", name="The path between their sends").click()
    tab.page.wait_for_selector("html[data-ready]", state="attached")
    assert tab.ask("happened.path()") == ["p#1", "q#1", "q#2"]
    assert set(tab.ask("happened.inView()")) >= {"p#1", "q#1", "q#2"}
    assert tab.errors == []
    tab.context.close()


def test_a_closer_look_is_at_the_window_that_is_pictured(chromium, tmp_path):
    late = {p: [{"kind": "internal"}] * 300 + events for p, events in OVERTAKEN.items()}
    write_report(tmp_path, write_answers(tmp_path, table(number(late, "c#1"))))
    tab = Tab(chromium)
    tab.page.goto((tmp_path / "report.html").as_uri())
    tab.page.get_by_role("link", name="Look closer").click()
    tab.page.wait_for_selector("html[data-ready]", state="attached")
    assert {"p#301", "q#302", "r#301", "r#302"} <= set(tab.ask("happened.inView()"))
    assert "p#1" not in tab.ask("happened.inView()")
    tab.context.close()
