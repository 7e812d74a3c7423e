"""The page of the last minutes in a browser: what it shows, that it loads itself again, whom it asks."""

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from happened.receiving.export_requests import Encoding, decode
from happened.receiving.intake import SpanWindow, WindowRules
from happened.receiving.last_minutes import LastMinutes
from happened.report.live_page import live_page
from receiving.services import SKEW, Service, an_order
from view.chromium import Tab


def told(name):
    """What an order shows, of which billing is called by this name; none has been taken if it is None."""
    window = SpanWindow(WindowRules())
    if name is not None:
        exporter = InMemorySpanExporter()
        services = Service("shop", exporter), Service("stock", exporter, ahead=SKEW), Service(name, exporter)
        an_order(*services, now=10**18)
        for service in services:
            service.provider.force_flush()
        body = encode_spans(exporter.get_finished_spans()).SerializeToString()
        window.add(decode(Encoding.PROTOBUF, body, "test").drafts, 0)
    return LastMinutes().tell(window.ended(10))


def write(file, told):
    file.write_text(live_page(told.judgement, told.tables, {"received": 8}, 0.0), encoding="utf-8")


def test_the_page_shows_violation_skew_and_critical_path_once_they_are_there_and_runs_no_script(
    chromium, tmp_path
):
    file = tmp_path / "page.html"
    write(file, told(None))
    tab = Tab(chromium)
    tab.page.goto(file.as_uri())
    assert tab.page.query_selector(".verdict.undecided") is not None
    hostile = "<script>alert(1)</script>"
    write(file, told(hostile))
    tab.page.wait_for_selector(".verdict.violated")  # by itself: the page is loaded again every two seconds
    text = tab.page.inner_text("body")
    assert "publish cancelled" in text and "publish created" in text
    assert f"{hostile}@" in text
    assert "stock@stock-1" in text
    assert all(title in text for title in ("Clocks ahead of most", "Where the time of requests went"))
    assert set(tab.requests) == {file.as_uri()}
    assert tab.errors == []
    tab.context.close()
