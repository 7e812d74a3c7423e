"""OTLP over gRPC: opentelemetry.proto.collector.trace.v1.TraceService/Export.

Requests are handled as bytes, so that no generated classes are needed. When there is no room, the answer is
RESOURCE_EXHAUSTED with a RetryInfo: without one, exporters do not retry. A call whose request does not arrive
is cancelled when another call needs its thread; after a cancellation exporters send again.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from ..core.errors import CausalityError
from . import export_requests as answers
from .intake import MOST_REQUESTS, Full, Intake

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
MOST_BYTES = 4 << 20  # of a request: gRPC's own default
WORKERS = MOST_REQUESTS + 8  # threads; some are left to refuse requests when there is no room
MOST_AWAITED = MOST_REQUESTS  # calls whose requests have not arrived; with one more, the oldest is cancelled
MOST_CALLS = 1000  # calls waiting for a thread or being answered; gRPC itself refuses more, for good


class GrpcReceiver:
    """Listens on an address as soon as it is created; CausalityError if it cannot."""

    def __init__(self, intake: Intake, host: str, port: int) -> None:
        self._intake = intake
        self._lock = threading.Lock()
        self._awaited: dict[grpc.ServicerContext, None] = {}  # oldest first
        self._server = grpc.server(
            ThreadPoolExecutor(WORKERS, thread_name_prefix="otlp-grpc"),
            # If two receivers could share a port, each would get only some of the requests.
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MOST_BYTES)],
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        # A stream of one request: so this code also sees calls that begin and whose request does not arrive.
        export = grpc.stream_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Export": export}),)
        )
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port = self._server.add_insecure_port(place)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise CausalityError(f"gRPC cannot listen on {place}; is something else there?")

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop(grace=1).wait()

    def _export(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        body = self._await(requests, context)
        if body is None:
            return _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "a call without a request", [])
        try:
            with self._intake.room(len(body)):
                request = self._intake.take(answers.Encoding.PROTOBUF, body, "gRPC")
        except Full as full:
            details = answers.retry_status(answers.RESOURCE_EXHAUSTED, str(full), full.seconds)
            # Go's exporters read the first header, Python's the second.
            told = [
                ("grpc-status-details-bin", details),
                ("google.rpc.retryinfo-bin", answers.retry_info(full.seconds)),
            ]
            return _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(full), told)
        except answers.Malformed as error:
            details = answers.status(answers.Encoding.PROTOBUF, answers.INVALID_ARGUMENT, str(error))
            told = [("grpc-status-details-bin", details)]
            return _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error), told)
        return answers.success(answers.Encoding.PROTOBUF, request.left_out)

    def _await(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes | None:
        with self._lock:
            self._awaited[context] = None
            if len(self._awaited) > MOST_AWAITED:
                oldest = next(iter(self._awaited))
                del self._awaited[oldest]
                self._intake.refuse()
                oldest.cancel()
        try:
            return next(requests, None)
        finally:
            with self._lock:
                self._awaited.pop(context, None)


def _refuse(
    context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, told: list[tuple[str, bytes]]
) -> bytes:
    context.set_trailing_metadata(told)
    context.set_code(code)
    context.set_details(reason)
    return b""
