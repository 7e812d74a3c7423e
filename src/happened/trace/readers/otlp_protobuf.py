"""Decode OTLP's protobuf encoding into the documents that its JSON encoding would have.

Only fields that the JSON reader uses are decoded; others are skipped, as protobuf requires. A file is one
TracesData (or ExportTraceServiceRequest, which looks the same), or several, each after a four-byte length, as
the collector's file exporter writes. The decoder is our own, because the wire format is a page and the
generated classes would need two packages that nothing else here needs.

https://protobuf.dev/programming-guides/encoding and opentelemetry-proto, trace/v1/trace.proto.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from .draft import QuarantinedRecord
from .source import Source

MOST_BYTES = 1 << 25
"""Limit of one length-prefixed message; gRPC's is 4 MB. It tells a length from the start of a message."""

VARINT, BYTES = 0, 2
FIXED = {1: 8, 5: 4}
"""Wire types of fixed size, with their numbers of bytes."""

Decode = Callable[[Any], Any]


class _Damaged(ValueError):
    pass


def is_protobuf(head: bytes) -> bool:
    """Whether a file begins with such a message, or its length; JSON and text never do.

    A message begins with field 1, the spans of a resource, whose own fields are 1, 2 or 3.
    """
    if not any(byte < 0x20 and byte not in b"\t\n\r" for byte in head):
        return False  # a text can begin with a blank line like a message; lengths are no text
    at = _start(head)
    try:
        _, after = _varint(head, at + 1)
    except _Damaged:
        return False
    return head[at : at + 1] == b"\x0a" and head[after : after + 1] in (b"\x0a", b"\x12", b"\x1a")


def _start(data: bytes) -> int:
    """The offset of the first message, which may follow a length prefix."""
    return 4 if data[4:5] == b"\x0a" and struct.unpack(">I", data[:4])[0] < MOST_BYTES else 0


def documents(source: Source) -> Iterator[tuple[None, Any]]:
    """The documents of a file; bytes after the last complete one are quarantined."""
    data = source.content()
    try:
        for start, end in _framed(data):
            try:
                if end > len(data):
                    raise _Damaged("ends too early")
                yield None, _message(data[start:end], _TRACES)
            except _Damaged as error:
                for whole in _whole_resources(data[start:end]):
                    yield None, whole
                reason = f"is not OTLP protobuf after byte {start} ({error}); whole resources are imported"
                yield None, QuarantinedRecord(source.file, None, None, reason)
    except _Damaged as error:
        yield None, QuarantinedRecord(source.file, None, None, f"is not OTLP protobuf ({error})")


def decoded(data: bytes) -> dict[str, Any]:
    """The document of one message; ValueError if it is none."""
    try:
        return _message(data, _TRACES)
    except RecursionError:
        raise _Damaged("values within values, too deep to be read") from None


def _framed(data: bytes) -> Iterator[tuple[int, int]]:
    """(begin, end) of each message: the whole file, or what follows each length."""
    at = 0
    if _start(data) == 0:
        yield 0, len(data)
        return
    while at < len(data):
        if at + 4 > len(data):
            raise _Damaged("a length is cut")
        start = at + 4
        at = start + struct.unpack_from(">I", data, at)[0]
        yield start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _Damaged("a number is cut")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: an integer, or bytes."""
    at = 0
    while at < len(data):
        value: Any
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, end = _varint(data, at)
        elif kind == BYTES or kind in FIXED:
            size, at = _varint(data, at) if kind == BYTES else (FIXED[kind], at)
            end = at + size
            value = data[at:end]
        else:
            raise _Damaged(f"wire type {kind}")
        if end > len(data):
            raise _Damaged("ends too early")
        yield tag >> 3, value
        at = end


Fields = dict[int, tuple[str, Decode, bool]]
"""Key: the field number. Value: the name in JSON, the decoder, and whether the field repeats."""


def _message(data: Any, fields: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(_bytes(data, "a message")):
        if number in fields:
            name, decode, repeats = fields[number]
            if repeats:
                found.setdefault(name, []).append(decode(value))
            else:
                found[name] = decode(value)
    return found


def _whole_resources(data: bytes) -> Iterator[dict[str, Any]]:
    """From an incomplete message, a document for each resource that is complete."""
    with suppress(_Damaged):
        for number, value in _fields(data):
            if number == 1:
                yield {"resourceSpans": [_message(value, _RESOURCE_SPANS)]}


def _of(fields: Fields) -> Decode:
    return lambda data: _message(data, fields)


def _bytes(data: Any, what: str) -> bytes:
    if not isinstance(data, bytes):
        raise _Damaged(f"a number where {what} belongs")
    return data


def _text(data: Any) -> str:
    return _bytes(data, "text").decode(errors="replace")


def _hex(data: Any) -> str:
    return _bytes(data, "an id").hex()


def _fixed64(data: Any) -> int:
    if not isinstance(data, bytes) or len(data) != 8:
        raise _Damaged("a time that is no fixed64")
    return int(struct.unpack("<Q", data)[0])


def _double(data: Any) -> float:
    return float(struct.unpack("<d", data)[0]) if isinstance(data, bytes) and len(data) == 8 else 0.0


def _signed(value: Any) -> str:
    number = int(value)
    return str(number - (1 << 64) if number >= 1 << 63 else number)


_ANY_VALUE: Fields = {}
_KEY_VALUE: Fields = {1: ("key", _text, False), 2: ("value", _of(_ANY_VALUE), False)}
_ANY_VALUE |= {
    1: ("stringValue", _text, False),
    2: ("boolValue", bool, False),
    3: ("intValue", _signed, False),
    4: ("doubleValue", _double, False),
    5: ("arrayValue", _of({1: ("values", _of(_ANY_VALUE), True)}), False),
    6: ("kvlistValue", _of({1: ("values", _of(_KEY_VALUE), True)}), False),
    7: ("bytesValue", _hex, False),
}
_ATTRIBUTE = ("attributes", _of(_KEY_VALUE), True)
_LINK: Fields = {1: ("traceId", _hex, False), 2: ("spanId", _hex, False), 4: _ATTRIBUTE}
_SPAN: Fields = {
    1: ("traceId", _hex, False),
    2: ("spanId", _hex, False),
    4: ("parentSpanId", _hex, False),
    5: ("name", _text, False),
    6: ("kind", int, False),
    7: ("startTimeUnixNano", _fixed64, False),
    8: ("endTimeUnixNano", _fixed64, False),
    9: _ATTRIBUTE,
    13: ("links", _of(_LINK), True),
    15: ("status", _of({3: ("code", int, False)}), False),
}
_SCOPE_SPANS: Fields = {2: ("spans", _of(_SPAN), True)}
_RESOURCE_SPANS: Fields = {
    1: ("resource", _of({1: _ATTRIBUTE}), False),
    2: ("scopeSpans", _of(_SCOPE_SPANS), True),
    1000: ("scopeSpans", _of(_SCOPE_SPANS), True),
}
_TRACES: Fields = {1: ("resourceSpans", _of(_RESOURCE_SPANS), True)}
