"""OpenTelemetry of nodes: a real SDK takes the spans; the node's own trace and our reader of spans judge."""

import asyncio
import json
import logging
import random
import runpy
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from happened.cli import main
from happened.core.errors import LocalProtocolError
from happened.net import JSON, Limits, Node, Plaintext, telemetry
from happened.testing import MemoryNetwork
from net.in_hand import carry, make_node

EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "spans.py"))
NAMES = ("alice", "bob", "carol", "dave")


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


def provider(name, exporter):
    made = TracerProvider(resource=Resource({"service.name": "chat", "service.instance.id": name}))
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def node_of(name, names, exporter=None, **options):
    """A node whose frames the test carries itself."""
    options = {"headers": True, "limits": Limits(linger=0.0)} | options
    if exporter is not None:
        options["telemetry"] = provider(name, exporter)
    return make_node(name, list(names), **options)


async def started(stack, exporter, names=NAMES, **options):
    return [await stack.enter_async_context(node_of(name, names, exporter, **options)) for name in names]


async def brought(sender, receiver):
    await sender.flush()
    carry(sender, receiver)
    await receiver.flush()


def of_node(span):
    return span.resource.attributes["service.instance.id"]


def spans_of(exporter, name, node=None):
    return [
        span
        for span in exporter.get_finished_spans()
        if span.name == name and (node is None or of_node(span) == node)
    ]


def written(exporter, path):
    path.write_text(json.dumps(EXAMPLE["otlp_json"](exporter.get_finished_spans())))
    return path


async def taken(node):
    return await asyncio.wait_for(anext(node), 10)


async def passed_on(sender, receiver, to, payload):
    """The receiver processes the next message by sending one of its own."""
    await brought(sender, receiver)
    message = await taken(receiver)
    with message.processing():
        await receiver.multicast(to, payload)


async def overtaking(exporter, protocol):
    """A chain of messages alice → bob → carol → dave, the last of which overtakes what alice told dave."""
    async with AsyncExitStack() as stack:
        alice, bob, carol, dave = await started(stack, exporter, protocol=protocol)
        await alice.multicast(["bob", "dave"], b"1")
        await passed_on(alice, bob, "carol", b"2")
        await passed_on(bob, carol, "dave", b"3")
        await brought(carol, dave)
        held = dave.pending()
        await brought(alice, dave)
        got = [await taken(dave), await taken(dave)]
        for message in got:
            with message.processing():
                pass
        return held, [message.payload for message in got]


def test_spans_follow_a_message_from_its_sender_to_what_is_done_with_it(exporter):
    held, got = asyncio.run(overtaking(exporter, "ks"))
    assert [each.waits_for for each in held] == [("alice:1",)] and got == [b"1", b"3"]
    by_id = {span.context.span_id: span for span in exporter.get_finished_spans()}

    def ancestry(span):
        while span is not None:
            yield of_node(span), span.name
            span = by_id[span.parent.span_id] if span.parent is not None else None

    last = next(
        span
        for span in spans_of(exporter, "process", "dave")
        if span.attributes["messaging.message.id"] == "carol:1"
    )
    assert list(ancestry(last)) == [
        ("dave", "process"),
        ("dave", "deliver"),
        ("dave", "hold"),
        ("carol", "send"),
        ("carol", "process"),
        ("carol", "deliver"),
        ("bob", "send"),
        ("bob", "process"),
        ("bob", "deliver"),
        ("alice", "send"),
    ]
    assert len({span.context.trace_id for span in by_id.values()}) == 1
    kinds = {span.name: span.kind for span in by_id.values()}
    consumer = trace.SpanKind.CONSUMER
    assert kinds == {
        "send": trace.SpanKind.PRODUCER, "hold": consumer, "deliver": consumer, "process": consumer
    }  # fmt: skip
    [hold] = spans_of(exporter, "hold")
    assert of_node(hold) == "dave" and hold.attributes["happened.waits_for"] == ("alice:1",)
    [after] = [span for span in spans_of(exporter, "deliver", "dave") if span.parent == hold.context]
    [send] = spans_of(exporter, "send", "carol")
    assert [link.context.span_id for link in after.links] == [send.context.span_id]
    assert send.start_time < hold.start_time < hold.end_time == after.start_time < after.end_time
    assert send.attributes["happened.to"] == ("dave",)


@pytest.mark.parametrize(("protocol", "code"), [("ks", 0), ("chain-two", 1)])
def test_our_own_tool_judges_the_order_by_the_exported_spans(protocol, code, exporter, tmp_path, capsys):
    """chain-two promises nothing over chains of three messages, and the spans show that."""
    _, got = asyncio.run(overtaking(exporter, protocol))
    assert got == ([b"3", b"1"] if code else [b"1", b"3"])
    spans, out = written(exporter, tmp_path / "spans.json"), str(tmp_path / "trace")
    assert main(["import", str(spans), "--out", out]) == 0
    capsys.readouterr()
    assert main(["check", out, "--json"]) == code
    assert json.loads(capsys.readouterr().out)
    assert main(["check", out]) == code
    text = capsys.readouterr().out
    assert "4 deliveries examined" in text
    if code:
        assert "chat@dave~[partition-dave]" in text and "too early" in text
    else:
        deliver = spans_of(exporter, "deliver", "dave")[1]
        assert main(["ask", "why", out, f"{deliver.context.span_id:016x}"]) == 0
        why = capsys.readouterr().out
        assert "receive “hold”" in why and "chat@alice#1 send" in why


async def chatter(exporter, seed, directory, protocol):
    """Nodes that process what comes by sending, over links that are cut and reorder; each leaves a trace."""
    dice, network = random.Random(seed), MemoryNetwork(seed=seed, delay=0.005, cuts=0.05)
    names = NAMES[:3]
    async with AsyncExitStack() as stack:
        options = {"protocol": protocol, "headers": True, "trace": directory}
        made = [network.node(name, names, telemetry=provider(name, exporter), **options) for name in names]
        nodes = [await stack.enter_async_context(node) for node in made]
        left = {"count": 30}

        async def serve(node):
            async for message in node:
                with message.processing():
                    await asyncio.sleep(dice.random() * 0.002)
                    if left["count"] > 0:
                        left["count"] -= 1
                        others = [name for name in names if name != node.name]
                        await node.multicast(
                            dice.sample(others, dice.randint(1, 2)), b"x", ordered=dice.random() < 0.8
                        )

        serving = [asyncio.create_task(serve(node)) for node in nodes]
        for node in nodes:
            await node.broadcast(b"go")
        async with asyncio.timeout(30):
            while left["count"] > 0 or any(node.stats()["undelivered"] or node.pending() for node in nodes):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            while any(each["outbox_frames"] for node in nodes for each in node.stats()["peers"].values()):
                await asyncio.sleep(0.01)
        for task in serving:
            task.cancel()


@pytest.mark.parametrize("protocol", ["ks", "causal-total"])
def test_the_spans_are_the_events_of_the_trace(protocol, exporter, seed, tmp_path):
    """The oracle is the trace that the nodes recorded themselves, from the same events by another way."""
    asyncio.run(chatter(exporter, seed, tmp_path, protocol))
    rows = sorted(pq.read_table(tmp_path).to_pylist(), key=lambda row: row["seq"])
    assert sum(row["kind"] == "deliver" for row in rows) > 20
    for name in NAMES[:3]:
        own = [row for row in rows if row["process"] == name]
        for span_name, kinds in (("send", ("send", "unordered")), ("deliver", ("deliver",))):
            spans = sorted(spans_of(exporter, span_name, name), key=lambda span: span.start_time)
            told = [span.attributes["messaging.message.id"] for span in spans]
            assert told == [row["message"] for row in own if row["kind"] in kinds]
        arrived = {row["message"]: row["seq"] for row in reversed(own) if row["kind"] == "receive"}
        held = [
            row["message"]
            for row in own
            if row["kind"] == "deliver" and row["seq"] > arrived.get(row["message"], row["seq"]) + 1
        ]
        assert sorted(held) == sorted(
            span.attributes["messaging.message.id"] for span in spans_of(exporter, "hold", name)
        )
    unordered = {row["message"] for row in rows if row["kind"] == "unordered"}
    for span in (*spans_of(exporter, "send"), *spans_of(exporter, "deliver")):
        is_in_order = "messaging.destination.partition.id" in span.attributes
        assert is_in_order == (span.attributes["messaging.message.id"] not in unordered)
    assert (
        main(["import", str(written(exporter, tmp_path / "spans.json")), "--out", str(tmp_path / "t")]) == 0
    )
    assert main(["check", str(tmp_path / "t")]) == 0


def test_a_request_and_its_reply_are_one_trace(exporter):
    async def act():
        network = MemoryNetwork()
        options = {"headers": True, "codec": JSON}
        names = ("alice", "bob")
        async with (
            network.node("alice", names, telemetry=provider("alice", exporter), **options) as alice,
            network.node("bob", names, telemetry=provider("bob", exporter), **options) as bob,
        ):

            async def serve():
                request = await taken(bob)
                with request.processing():
                    await request.reply(request.value + 1)

            serving = asyncio.create_task(serve())
            reply = await alice.request("bob", 1, timeout=10)
            await serving
            with reply.processing():
                return reply.value, reply.headers

    value, headers = asyncio.run(act())
    assert value == 2 and set(headers) == {"traceparent"}
    assert len({span.context.trace_id for span in exporter.get_finished_spans()}) == 1
    assert [of_node(span) for span in spans_of(exporter, "deliver")] == ["bob", "alice"]


def test_what_comes_again_after_a_restart_says_so(exporter, tmp_path):
    async def act():
        options = {"journal": tmp_path / "bob.journal", "flush": False}
        names = ["alice", "bob"]
        alice = node_of("alice", names, exporter)
        async with alice:
            await alice.multicast("bob", b"1")
            await alice.multicast("bob", b"2")
            bob = node_of("bob", names, exporter, **options)
            async with bob:
                await brought(alice, bob)
                await (await taken(bob)).ack()
                (await taken(bob)).nack()
                again = await taken(bob)
                with again.processing():
                    pass
        async with node_of("bob", names, exporter, **options) as bob:
            message = await taken(bob)
            with message.processing():
                await message.ack()
            assert not bob._telemetry._contexts

    asyncio.run(act())
    told = [
        (span.attributes["messaging.message.id"], span.attributes.get("happened.again", False))
        for span in spans_of(exporter, "deliver")
    ]
    assert told == [("alice:1", False), ("alice:2", False), ("alice:2", True)]
    processed = spans_of(exporter, "process")
    assert [span.attributes["happened.attempt"] for span in processed] == [2, 1]
    delivered = spans_of(exporter, "deliver")
    assert [span.parent for span in processed] == [span.context for span in delivered[1:]]


def test_an_error_of_the_application_is_on_the_span(exporter):
    async def act():
        async with AsyncExitStack() as stack:
            alice, bob = await started(stack, exporter, NAMES[:2])
            await alice.multicast("bob", b"1")
            await brought(alice, bob)
            message = await taken(bob)
            with pytest.raises(ZeroDivisionError), message.processing():
                1 / 0  # noqa: B018
            with pytest.raises(LocalProtocolError):
                alice.multicast_nowait("nobody", b"1")

    asyncio.run(act())
    [process] = spans_of(exporter, "process")
    assert process.status.status_code is trace.StatusCode.ERROR and process.events[0].name == "exception"
    assert [span.status.is_ok for span in spans_of(exporter, "send")] == [True, False]


def test_spans_of_a_node_keep_their_order_when_the_clock_is_set_back(exporter, monkeypatch):
    times = iter(range(10**9, 0, -1))
    monkeypatch.setattr(telemetry.time, "time_ns", lambda: next(times))

    async def act():
        async with AsyncExitStack() as stack:
            alice, bob = await started(stack, exporter, NAMES[:2])
            for payload in (b"1", b"2", b"3"):
                await alice.multicast("bob", payload)
            await brought(alice, bob)

    asyncio.run(act())
    for name in ("send", "deliver"):
        spans = sorted(spans_of(exporter, name), key=lambda span: span.start_time)
        assert len({span.start_time for span in spans}) == 3
        assert [span.attributes["messaging.message.id"] for span in spans] == [
            "alice:1",
            "alice:2",
            "alice:3",
        ]


def test_an_exporter_that_fails_stops_nothing_and_is_reported_once(caplog):
    class Broken(SimpleSpanProcessor):
        def on_end(self, span):
            raise RuntimeError("out of order")

    broken = TracerProvider()
    broken.add_span_processor(Broken(InMemorySpanExporter()))

    async def act():
        async with AsyncExitStack() as stack:
            nodes = [node_of(name, ["alice", "bob"], telemetry=broken) for name in NAMES[:2]]
            alice, bob = [await stack.enter_async_context(node) for node in nodes]
            for payload in (b"1", b"2"):
                await alice.multicast("bob", payload)
            await brought(alice, bob)
            for payload in (b"1", b"2"):
                message = await taken(bob)
                with message.processing():
                    assert message.payload == payload

    with caplog.at_level(logging.WARNING):
        asyncio.run(act())
    reports = [record.getMessage() for record in caplog.records if "span was lost" in record.getMessage()]
    assert len(reports) == 2 and reports[0].startswith("alice: ") and reports[1].startswith("bob: ")


def test_a_context_that_is_none_begins_a_new_trace(exporter):
    async def act():
        async with AsyncExitStack() as stack:
            alice = await stack.enter_async_context(node_of("alice", ["alice", "bob"]))
            bob = await stack.enter_async_context(node_of("bob", ["alice", "bob"], exporter))
            await alice.multicast("bob", b"1", headers={"traceparent": "00-nonsense"})
            await alice.multicast("bob", b"2")
            await brought(alice, bob)
            for _ in range(2):
                with (await taken(bob)).processing():
                    pass

    asyncio.run(act())
    assert [span.parent for span in spans_of(exporter, "deliver")] == [None, None]


def test_it_needs_headers_and_is_not_imported_otherwise():
    with pytest.raises(LocalProtocolError, match="headers=True"):
        Node("a", peers={"b": "127.0.0.1:1"}, guard=Plaintext(), telemetry=True)
    code = (
        "import sys; from happened.net import Node, Plaintext\n"
        "options = {'peers': {'b': '127.0.0.1:1'}, 'guard': Plaintext(), 'headers': True}\n"
        "Node('a', **options); assert 'opentelemetry' not in sys.modules\n"
        "sys.modules['opentelemetry'] = None\n"
        "try: Node('a', **options, telemetry=True)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "telemetry needs opentelemetry-api: pip install 'happened[telemetry]'\n", (
        done.stderr
    )
