"""Who calls whom, as the dependency jobs of Zipkin and Jaeger count it: a call once, however many spans tell
of it, and as failed whoever says so."""

import pytest

from happened.causality.questions.dependencies import calls_of
from happened.trace.readers import Options
from happened.trace.readers.span_drafts import Instance, Span, span_id
from happened.trace.readers.spans import assemble
from happened.trace.writer import table_from_rows


def span(name, service, kind="", parent=None, *, links=(), error=False, shared=False, **facts):
    told = {key.replace("__", "."): value for key, value in facts.items()}
    place, parents = Instance(service, service), (span_id("t", parent),) if parent else ()
    links = tuple(span_id("t", link) for link in links)
    return Span("t", name, place, name, kind, 1, 9, told, parents, links, shared, error)


def calls(*spans):
    drafts = (each.draft("log", number) for number, each in enumerate(spans, start=1))
    table = calls_of(table_from_rows(assemble(drafts, Options()).rows))
    return {(row["caller"], row["callee"]): (row["calls"], row["errors"]) for row in table.to_pylist()}


@pytest.mark.parametrize("failed", ["client", "server", "both", "none"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_call_failed_if_either_side_says_so(failed, shared):
    client = span("a", "web", "client", error=failed in ("client", "both"))
    wrong = failed in ("server", "both")
    server = span("a", "app", "server", error=wrong, shared=True) if shared else None
    server = server or span("b", "app", "server", "a", error=wrong)
    assert calls(client, server) == {("web", "app"): (1, int(failed != "none"))}


def test_a_call_of_which_only_the_client_tells():
    assert calls(span("a", "web", "client", peer="db", error=True)) == {("web", "db"): (1, 1)}


@pytest.mark.parametrize("between", ["internal", "client"])
def test_a_call_through_spans_of_the_caller_is_one_call(between):
    outer = span("a", "web", "client", peer__service="app")
    inner = span("m", "web", between, "a", server__address="app.local")
    assert calls(outer, inner, span("b", "app", "server", "m")) == {("web", "app"): (1, 0)}


def test_of_clients_within_clients_the_innermost_tells_who_was_called():
    outer = span("a", "web", "client", peer__service="app")
    assert calls(outer, span("m", "web", "client", "a", server__address="app.local")) == {
        ("web", "app.local"): (1, 0)
    }
    assert calls(outer, span("m", "web", "internal", "a")) == {("web", "app"): (1, 0)}


@pytest.mark.parametrize("parent", [None, "gone"])
@pytest.mark.parametrize(
    ("kind", "facts", "caller"),
    [
        ("server", {"peer": "mobile"}, "mobile"),
        ("server", {"peer__service": "mobile"}, "mobile"),
        ("consumer", {"peer": "kafka"}, "kafka"),
        ("consumer", {"messaging__system": "kafka"}, "kafka"),
    ],
)
def test_a_caller_that_recorded_nothing_is_known_from_what_the_callee_says(parent, kind, facts, caller):
    assert calls(span("a", "app", kind, parent, **facts)) == {(caller, "app"): (1, 0)}


def test_a_server_does_not_call_itself_by_its_own_address():
    assert calls(span("a", "app", "server", server__address="app.local", db__system="mysql")) == {}


def test_a_span_of_no_kind_that_names_its_peer_called_it():
    assert calls(span("a", "web", peer="app")) == {("web", "app"): (1, 0)}
    assert calls(span("a", "web", "internal", peer__service="app")) == {("web", "app"): (1, 0)}
    assert calls(span("a", "web", "internal", db__system="mysql")) == {}


def test_a_message_that_is_polled_and_then_processed_is_one_call():
    producer = span("p", "shop", "producer", messaging__system="kafka")
    polled = span("r", "mail", "consumer", "p", messaging__operation__type="receive")
    processed = span("c", "mail", "consumer", "p", messaging__operation__type="process")
    assert calls(producer, polled, processed) == {("shop", "mail"): (1, 0)}


def test_a_message_through_a_broker_goes_from_its_producer_to_each_consumer():
    producer = span("p", "shop", "producer", messaging__system="kafka")
    assert calls(producer) == {("shop", "kafka"): (1, 0)}
    consumers = [span("c", "mail", "consumer", "p"), span("d", "bill", "consumer", links=["p"], error=True)]
    assert calls(producer, *consumers) == {("shop", "mail"): (1, 0), ("shop", "bill"): (1, 1)}


def test_a_service_may_call_itself():
    assert calls(span("a", "web", "client"), span("b", "web", "server", "a")) == {("web", "web"): (1, 0)}


def test_a_fact_of_the_source_that_is_called_caller_is_no_call():
    assert calls(span("a", "web", "server", caller="main.go:33", callee="x", caller_failed="1")) == {}
