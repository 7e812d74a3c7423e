"""The requests of OTLP's exporters and the answers to them, in both encodings.

A request is an ExportTraceServiceRequest; the reader of OTLP files makes drafts of its spans. Answers are a
few bytes of protobuf, written here by hand: ExportTraceServiceResponse, google.rpc.Status and RetryInfo.

https://opentelemetry.io/docs/specs/otlp
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.errors import RemoteProtocolError
from ..trace.readers.draft import Draft, Options, QuarantinedRecord, storable
from ..trace.readers.otlp import drafts, spans_of
from ..trace.readers.otlp_protobuf import decoded

RESOURCE_EXHAUSTED, INVALID_ARGUMENT, UNAVAILABLE = 8, 3, 14  # of google.rpc.Code
OPTIONS = Options()


class Encoding(Enum):
    """The value is the content type."""

    PROTOBUF = "application/x-protobuf"
    JSON = "application/json"


class Malformed(RemoteProtocolError):
    """The body is not an ExportTraceServiceRequest; sending it again would not help."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """`body`: the request as it is logged, JSON on one line. `left_out`: the spans that cannot be used."""

    encoding: Encoding
    body: bytes
    drafts: tuple[Draft, ...]
    left_out: tuple[QuarantinedRecord, ...]


def decode(encoding: Encoding, body: bytes, source: str) -> ExportRequest:
    """Decode a request; Malformed if the body is none. `source`: the file named in quarantined records."""
    document: Any
    try:
        document = decoded(body) if encoding is Encoding.PROTOBUF else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"is no OTLP request as {encoding.value}: {error}") from None
    if not isinstance(document, dict):
        raise Malformed("is no OTLP request: a JSON object with resourceSpans is needed")
    if encoding is Encoding.JSON:
        if document and "resourceSpans" not in document:
            raise Malformed("is no OTLP request: resourceSpans is missing")
        body = json.dumps(document, separators=(",", ":")).encode() if document else b""
    found, left_out = [], []
    spans = spans_of(document) if document else ()
    parsed = (each for n, (facts, span) in enumerate(spans, 1) for each in drafts(source, n, facts, span))
    for each in storable(parsed):
        found.append(each) if isinstance(each, Draft) else left_out.append(each)
    return ExportRequest(encoding, body, tuple(found), tuple(left_out))


def success(encoding: Encoding, left_out: tuple[QuarantinedRecord, ...]) -> bytes:
    """The answer to a request that is logged; it reports the spans that cannot be used."""
    reason = f"{left_out[0].field or ''} {left_out[0].reason}".strip() if left_out else ""
    if encoding is Encoding.JSON:
        told = {"rejectedSpans": str(len(left_out)), "errorMessage": reason}
        return json.dumps({"partialSuccess": told} if left_out else {}).encode()
    return _field(1, _number(1, len(left_out)) + _field(2, reason.encode())) if left_out else b""


def status(encoding: Encoding, code: int, message: str) -> bytes:
    """A google.rpc.Status, which is the body of every refusal."""
    if encoding is Encoding.JSON:
        return json.dumps({"code": code, "message": message}).encode()
    return _number(1, code) + _field(2, message.encode())


def retry_info(seconds: int) -> bytes:
    """A google.rpc.RetryInfo: after how many seconds to send again."""
    return _field(1, _number(1, seconds))


def retry_status(code: int, message: str, seconds: int) -> bytes:
    """A google.rpc.Status with a RetryInfo; without one, OTLP exporters do not retry RESOURCE_EXHAUSTED."""
    any_of = _field(1, b"type.googleapis.com/google.rpc.RetryInfo") + _field(2, retry_info(seconds))
    return status(Encoding.PROTOBUF, code, message) + _field(3, any_of)


def _varint(value: int) -> bytes:
    more = bytearray()
    while value > 0x7F:
        more.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*more, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data
