"""Three nodes that record OpenTelemetry spans, one of which shows what an answer waited for.

alice asks bob and carol; her link to carol is late, so that bob's answer is there first and held. The spans
go to a file of OTLP JSON, as the file exporter of a collector writes it, and then:

    happened import spans.json --out spans
    happened check spans
    happened ask why spans SPAN          # which this program prints

Needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from happened.net import Node
from happened.testing import MemoryNetwork

NAMES = ("alice", "bob", "carol")


def provider(name: str, exporter: InMemorySpanExporter) -> TracerProvider:
    """In a program with one node: trace.set_tracer_provider(provider), and Node(telemetry=True)."""
    resource = Resource({"service.name": "chat", "service.instance.id": name})
    made = TracerProvider(resource=resource)
    made.add_span_processor(SimpleSpanProcessor(exporter))  # over a network: BatchSpanProcessor
    return made


def otlp_json(spans: Sequence[ReadableSpan]) -> Any:
    """OTLP's JSON: that of protobuf, but with hexadecimal ids."""

    def in_hex(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: in_hex(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [in_hex(inner) for inner in value]
        is_id = key in ("traceId", "spanId", "parentSpanId")
        return base64.b64decode(value).hex() if is_id else value

    return in_hex(MessageToDict(encode_spans(spans)))


async def answer(bob: Node) -> None:
    question = await anext(bob)
    with question.processing():
        await bob.multicast("carol", b"in the kitchen")


async def main(out: Path) -> None:
    network, exporter = MemoryNetwork(), InMemorySpanExporter()
    async with AsyncExitStack() as stack:
        nodes = [
            network.node(name, NAMES, headers=True, telemetry=provider(name, exporter)) for name in NAMES
        ]
        alice, bob, carol = [await stack.enter_async_context(node) for node in nodes]
        network.cut("alice", "carol")
        await alice.multicast(["bob", "carol"], b"has anyone seen my ring?")
        await answer(bob)
        while not carol.pending():
            await asyncio.sleep(0.01)
        network.heal()
        for _ in range(2):
            message = await anext(carol)
            with message.processing():
                print(message.name, message.payload.decode())
    spans = exporter.get_finished_spans()
    out.write_text(json.dumps(otlp_json(spans)))
    [held] = [span for span in spans if span.name == "hold"]
    attributes: Any = held.attributes
    print(attributes["messaging.message.id"], "waited for", *attributes["happened.waits_for"])
    print("span", f"{held.context.span_id:016x}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "spans.json")))
