"""What is answered over HTTP and gRPC, judged by the messages and exporters of OpenTelemetry itself."""

import gzip
import json
import socket
import threading
from contextlib import suppress
from http.client import HTTPConnection

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanKind

from happened.core.errors import CausalityError
from happened.receiving import otlp_http
from happened.receiving.export_requests import Encoding
from happened.receiving.intake import Intake, SpanWindow, WindowRules
from happened.receiving.otlp_grpc import MOST_AWAITED, GrpcReceiver
from happened.receiving.otlp_http import HttpReceiver
from happened.receiving.span_log import SpanLog
from receiving.running import until
from receiving.services import Service

PROTOBUF, JSON = (each.value for each in Encoding)
SPAN = {
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "work", "kind": 2,
    "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
}  # fmt: skip


def document(*spans, service="shop"):
    named = [{"key": "service.name", "value": {"stringValue": service}}] if service else []
    return {"resourceSpans": [{"resource": {"attributes": named}, "scopeSpans": [{"spans": [*spans]}]}]}


def protobuf(service="shop"):
    request = ExportTraceServiceRequest()
    of = request.resource_spans.add()
    if service:
        attribute = of.resource.attributes.add()
        attribute.key, attribute.value.string_value = "service.name", service
    span = of.scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name = (
        bytes.fromhex(SPAN["traceId"]),
        bytes.fromhex(SPAN["spanId"]),
        "work",
    )
    span.start_time_unix_nano, span.end_time_unix_nano = 1544712660 * 10**9, 1544712661 * 10**9
    span.kind = 2
    return request


class Running:
    """Both receivers, and the intake behind them."""

    def __init__(self, folder, **bounds):
        self.log = SpanLog(folder)
        self.window = SpanWindow(WindowRules())
        self.intake = Intake(self.log, self.window, **bounds)
        self.http = HttpReceiver(self.intake, "127.0.0.1", 0)
        self.grpc = GrpcReceiver(self.intake, "127.0.0.1", 0)
        self.http.start()
        self.grpc.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.grpc.port}")

    def post(self, body, kind=JSON, *, path="/v1/traces", **headers):
        connection = HTTPConnection("127.0.0.1", self.http.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, {"Content-Type": kind} | named)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def export(self, request):
        return TraceServiceStub(self.channel).Export(request, timeout=60)

    def close(self):
        self.channel.close()
        self.http.stop()
        self.grpc.stop()
        self.log.close()


@pytest.fixture
def running(tmp_path):
    receivers = Running(tmp_path)
    yield receivers
    receivers.close()


@pytest.fixture
def narrow(tmp_path):
    """With room for one request at a time."""
    receivers = Running(tmp_path, most_requests=1)
    yield receivers
    receivers.close()


def kept(running):
    return [each.body for each in running.log.recent(0)]


def test_one_span_is_the_same_in_both_encodings_and_over_both_transports(running):
    assert running.post(json.dumps(document(SPAN), indent=1))[::2] == (200, b"{}")
    assert running.post(protobuf().SerializeToString(), PROTOBUF)[::2] == (200, b"")
    assert running.export(protobuf()) == ExportTraceServiceResponse()
    assert (running.window.spans, running.window.counts["repeated"]) == (1, 2)
    assert len(kept(running)) == 3


@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
def test_a_request_may_be_compressed(running, kind):
    body = json.dumps(document(SPAN)).encode() if kind == JSON else protobuf().SerializeToString()
    assert running.post(gzip.compress(body), kind, Content_Encoding="gzip")[0] == 200
    assert running.window.spans == 1


def test_an_empty_request_is_confirmed_and_not_kept(running):
    assert running.post("{}")[0] == running.post(b"", PROTOBUF)[0] == 200
    running.export(ExportTraceServiceRequest())
    assert kept(running) == []


def test_spans_that_nothing_can_be_made_of_are_answered_as_rejected_and_set_aside(running):
    status, _, body = running.post(json.dumps(document(SPAN, {"name": "no ids"})))
    assert (status, json.loads(body)["partialSuccess"]["rejectedSpans"]) == (200, "1")
    answer = running.export(protobuf(service=None)).partial_success
    assert (answer.rejected_spans, "service.name" in answer.error_message) == (1, True)
    parsed = ExportTraceServiceResponse.FromString(
        running.post(protobuf(service=None).SerializeToString(), PROTOBUF)[2]
    )
    assert parsed.partial_success == answer
    assert [each.field for each in running.intake.left_out] == ["spanId", "service.name", "service.name"]


DEEP = b'{"resourceSpans":' + b"[" * 100_000


@pytest.mark.parametrize(
    "body, kind, headers, status",
    [
        (b"no json", JSON, {}, 400),
        (b"[]", JSON, {}, 400),
        (b'{"resourceMetrics": []}', JSON, {}, 400),
        (DEEP, JSON, {}, 400),
        (b"\x0a\xff", PROTOBUF, {}, 400),
        (b"\x0a\x04\x08" * 9, PROTOBUF, {}, 400),
        (b"\x1f\x8b cut", PROTOBUF, {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"{}")[:-3], JSON, {"Content_Encoding": "gzip"}, 400),
        (b"{}", "text/plain", {}, 415),
        (b"{}", JSON, {"Content_Encoding": "br"}, 415),
        (b"{}", JSON, {"path": "/v1/metrics"}, 404),
        (gzip.compress(bytes(otlp_http.MOST_BYTES + 1)), PROTOBUF, {"Content_Encoding": "gzip"}, 413),
        (b"{}", JSON, {"Content_Length": str(otlp_http.MOST_BYTES + 1)}, 413),
        (b"{}", JSON, {"Content_Length": "-1"}, 411),
    ],
    ids=range(14),  # bodies of 100,000 bytes, and some with the time in them, are no names
)  # fmt: skip
def test_what_is_no_request_is_refused_for_good_and_the_next_one_is_taken(
    running, body, kind, headers, status
):
    code, answered, told = running.post(body, kind, **headers)
    assert (code, "Retry-After" in answered) == (status, False)
    if kind == PROTOBUF:
        assert Status.FromString(told).message
    else:
        assert json.loads(told)["message"]
    assert kept(running) == []
    assert running.post(json.dumps(document(SPAN)))[0] == 200


def test_bytes_that_are_no_request_are_an_invalid_argument_over_grpc(running):
    export = running.channel.unary_unary(
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export", lambda body: body, lambda body: body
    )
    with pytest.raises(grpc.RpcError) as refused:
        export(b"\x0a\xff", timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert running.intake.malformed == 1


def test_a_full_receiver_says_when_to_send_again_over_http(narrow):
    with narrow.intake.room(1):
        for kind, body in ((JSON, json.dumps(document(SPAN))), (PROTOBUF, protobuf().SerializeToString())):
            status, headers, told = narrow.post(body, kind)
            assert (status, headers["Retry-After"]) == (429, "1")
            message = Status.FromString(told).message if kind == PROTOBUF else json.loads(told)["message"]
            assert "send it again after 1 s" in message
    assert (narrow.intake.refused, kept(narrow), narrow.window.spans) == (2, [], 0)
    assert narrow.post(json.dumps(document(SPAN)))[0] == 200


def test_a_full_receiver_says_when_to_send_again_over_grpc(narrow):
    with narrow.intake.room(1), pytest.raises(grpc.RpcError) as refused:
        narrow.export(protobuf())
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(refused.value.trailing_metadata())
    status = Status.FromString(trailers["grpc-status-details-bin"])
    (detail,) = status.details
    assert status.code == 8 and detail.Is(RetryInfo.DESCRIPTOR)
    assert RetryInfo.FromString(detail.value).retry_delay.seconds == 1
    assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
    assert narrow.window.spans == 0


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_the_sdk_sends_again_what_was_refused_and_nothing_is_lost(narrow, transport):
    if transport == "grpc":
        exporter = GrpcExporter(endpoint=f"127.0.0.1:{narrow.grpc.port}", insecure=True)
    else:
        exporter = HttpExporter(endpoint=f"http://127.0.0.1:{narrow.http.port}/v1/traces")
    results = []
    service = Service("shop", _Noting(exporter, results))
    with narrow.intake.room(1):
        service.span("work", SpanKind.INTERNAL, 1, 2)
        sending = threading.Thread(target=service.send)
        sending.start()
        until(lambda: narrow.intake.refused)
    sending.join(60)
    assert results == [SpanExportResult.SUCCESS]
    assert narrow.window.spans == 1
    service.close()


class _Noting:
    """An exporter that notes what became of each export."""

    def __init__(self, exporter, results):
        self._exporter, self._results = exporter, results

    def export(self, spans):
        self._results.append(self._exporter.export(spans))
        return self._results[-1]

    def shutdown(self):
        self._exporter.shutdown()


def test_a_disk_that_takes_nothing_is_no_confirmation(running, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running.log, "append", full)
    status, headers, _ = running.post(json.dumps(document(SPAN)))
    assert (status, headers["Retry-After"], running.window.spans) == (429, "10", 0)
    with pytest.raises(grpc.RpcError) as refused:
        running.export(protobuf())
    assert "No space left" in refused.value.details()


def half_open(running, length):
    """A connection on which a request is begun, of which nothing more will come."""
    connection = socket.create_connection(("127.0.0.1", running.http.port), 60)
    head = f"POST /v1/traces HTTP/1.1\r\nContent-Type: {JSON}\r\nContent-Length: {length}\r\n\r\n{{"
    connection.sendall(head.encode())
    return connection


@pytest.mark.parametrize("length", [20, otlp_http.MOST_BYTES])
def test_requests_that_do_not_come_take_no_place_from_those_that_do(running, monkeypatch, length):
    """Nobody is let go because of the clock: posts are answered only if a place is freed otherwise."""
    monkeypatch.setattr(otlp_http, "PATIENCE", 3600)
    monkeypatch.setattr(otlp_http._Handler, "timeout", 3600)
    slow = [half_open(running, length) for _ in range(otlp_http.MOST_CONNECTIONS + 5)]
    for _ in range(3):
        assert running.post(json.dumps(document(SPAN)))[0] == 200
    # Those that went for them were let go longest first, and told to send again.
    answer = slow[0].makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 429") and b"Retry-After: 1" in answer
    slow[-1].settimeout(0.1)
    with pytest.raises(TimeoutError):
        slow[-1].recv(1)
    for connection in slow:
        connection.close()


def test_a_request_has_a_time_to_come_however_slowly_it_does(running, monkeypatch):
    monkeypatch.setattr(otlp_http, "PATIENCE", 0.5)
    with half_open(running, 10_000) as connection:
        connection.settimeout(0.1)
        answer = b""
        for _ in range(200):
            with suppress(OSError):
                connection.sendall(b" ")
            with suppress(TimeoutError):
                answer = connection.recv(1000)
                break
    assert answer.startswith(b"HTTP/1.1 429")


def test_more_connections_than_there_may_be_are_told_so_if_all_are_being_answered(running, monkeypatch):
    monkeypatch.setattr(otlp_http, "LEAVING", 0.1)
    written = threading.Event()
    append = running.log.append
    monkeypatch.setattr(running.log, "append", lambda *request: (written.wait(60), append(*request)))
    monkeypatch.setattr(running.intake, "_most", (otlp_http.MOST_CONNECTIONS, 1 << 20))
    body = json.dumps(document(SPAN))
    busy = [half_open(running, len(body)) for _ in range(otlp_http.MOST_CONNECTIONS)]
    for connection in busy:
        connection.sendall(body[1:].encode())
    until(lambda: running.intake._requests == otlp_http.MOST_CONNECTIONS)
    with socket.create_connection(("127.0.0.1", running.http.port), 60) as last:
        answer = last.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer
    written.set()
    for connection in busy:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.close()


def test_calls_that_do_not_come_take_no_place_from_those_that_do(running):
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    coming = threading.Event()

    def nothing():
        coming.wait(60)
        return
        yield

    slow = [
        running.channel.stream_unary(method, lambda body: body, lambda body: body).future(nothing())
        for _ in range(MOST_AWAITED + 20)
    ]
    try:
        until(lambda: any(call.done() for call in slow))
        for _ in range(3):
            running.export(protobuf())
        assert running.window.spans == 1
        cancelled = [call for call in slow if call.done()]
        assert {call.code() for call in cancelled} == {grpc.StatusCode.CANCELLED}
    finally:
        coming.set()


def test_a_call_without_a_request_is_none(running):
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    with pytest.raises(grpc.RpcError) as refused:
        running.channel.stream_unary(method)(iter([]), timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_port_that_is_taken_is_said_by_name(running):
    with pytest.raises(CausalityError, match=f"127.0.0.1:{running.grpc.port}"):
        GrpcReceiver(running.intake, "127.0.0.1", running.grpc.port)
    with pytest.raises(OSError):
        HttpReceiver(running.intake, "127.0.0.1", running.http.port)


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceId": ""},
        {"traceId": None},
        {"traceId": "0" * 32},
        {"traceId": ["5b8efff798038103d269b633813fc60c"]},
        {"spanId": ""},
        {"spanId": None},
        {"spanId": "0" * 16},
        {"spanId": True},
    ],
)
def test_a_span_whose_ids_are_empty_or_no_ids_is_rejected(running, wrong):
    _, _, body = running.post(json.dumps(document(SPAN, SPAN | {"traceId": "a" * 32} | wrong)))
    assert json.loads(body)["partialSuccess"]["rejectedSpans"] == "1"
    assert running.window.spans == 1


def test_ids_in_capitals_are_the_same_ids(running):
    """OTLP's JSON has ids in hexadecimal digits of either case."""
    running.post(json.dumps(document(SPAN)))
    running.post(json.dumps(document(SPAN | {name: SPAN[name].upper() for name in ("traceId", "spanId")})))
    assert (running.window.spans, running.window.counts["repeated"]) == (1, 1)


def test_a_refusal_reaches_a_client_that_reads_no_answer_before_it_has_sent_everything(narrow):
    assert narrow.post(bytes(otlp_http.MOST_BYTES + (1 << 20)))[0] == 413
    with narrow.intake.room(1):
        status, headers, _ = narrow.post(bytes(otlp_http.MOST_BYTES))
    assert (status, headers["Retry-After"]) == (429, "1")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_request_may_come_in_chunks_of_no_length_told_before(running, compressed):
    """As OpenTelemetry's exporter for Node sends what it compresses, and proxies whatever they pass on."""
    body = json.dumps(document(SPAN)).encode()
    body = gzip.compress(body) if compressed else body
    headers = {"Content_Encoding": "gzip"} if compressed else {}
    pieces = iter([body[:7], body[7:8], body[8:]])
    assert running.post(pieces, **headers)[::2] == (200, b"{}")
    assert running.window.spans == 1


def chunked(running, body):
    """What is answered to these bytes after the head of a request in chunks."""
    head = f"POST /v1/traces HTTP/1.1\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.http.port), 60) as connection:
        connection.sendall(head.encode() + body)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").readline().split()[1]


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}",
        b"2\r\n{}xx0\r\n\r\n",
        b"",
        b"9" * 100_000,
    ],
    ids=range(6),
)
def test_chunks_that_are_none_or_end_too_early_are_no_request(running, body):
    assert chunked(running, body) == b"400"
    assert kept(running) == []


def test_chunks_are_counted_as_they_come(tmp_path):
    running = Running(tmp_path, most_bytes=3 << 20)
    megabyte = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    try:
        assert chunked(running, megabyte * (otlp_http.MOST_BYTES // (1 << 20) + 1)) == b"413"
        with running.intake.room(2 << 20):
            assert chunked(running, megabyte * 2) == b"429"
        assert chunked(running, b"2; note=x\r\n{}\r\n0\r\nTrailer: x\r\n\r\n") == b"200"
        with running.intake.room(3 << 20):
            pass
    finally:
        running.close()


def test_a_body_of_several_gzip_members_is_read_to_its_end(running):
    body = json.dumps(document(SPAN)).encode()
    members = gzip.compress(body[:20]) + gzip.compress(body[20:])
    assert running.post(members, Content_Encoding="gzip")[0] == 200
    assert running.window.spans == 1
    more = protobuf().SerializeToString()
    other = protobuf()
    other.resource_spans[0].scope_spans[0].spans[0].span_id = bytes(range(8))
    both = gzip.compress(more) + gzip.compress(other.SerializeToString())
    assert running.post(both, PROTOBUF, Content_Encoding="gzip")[0] == 200
    assert running.window.spans == 2
