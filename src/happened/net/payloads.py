"""Converts what applications send to bytes and back: codecs, and headers in front of a payload.

A *codec* turns values into payloads and payloads into values. All nodes of a system need the same codec:
payloads do not say which. `codec_of` accepts as an application's codec:

    None               bytes, as they are; other buffers (bytearray, memoryview) are copied
    JSON, MsgPack()    any value that these formats have
    a dataclass        its instances, as JSON objects; fields are checked when they are read (models.py)
    a pydantic model   its instances, or what a pydantic `TypeAdapter` takes, as JSON
    anything else      that has `encode(value) -> bytes` and `decode(payload) -> value`

*Headers* are short texts by name, for facts about a message that are not in its value. Where a node has
them, every payload is

    0xE7, version (1 byte), length of the headers (2 bytes, big-endian; 0: none), a JSON object, body
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..core.errors import LocalProtocolError
from .errors import PayloadError
from .models import Model

MARK, VERSION = 0xE7, 1
HEAD = 4
MAX_HEADERS = 0xFFFF
"""The longest headers of one message, in bytes."""
OWN = "happened-"
"""The prefix of the names of headers that this package makes."""


@runtime_checkable
class Codec(Protocol):
    """An exception in `encode` refuses the multicast; one in `decode` is raised by `message.value`."""

    def encode(self, value: Any) -> bytes: ...
    def decode(self, payload: bytes) -> Any: ...


class _Bytes:
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"a payload is bytes, not {type(value).__name__}: give the node a codec")
        return bytes(value)

    def decode(self, payload: bytes) -> bytes:
        return payload


class _Json:
    """Compact JSON. Values it cannot represent exactly (NaN, sets, keys that are not text) are refused."""

    def encode(self, value: Any) -> bytes:
        _check_keys(value)
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()

    def decode(self, payload: bytes) -> Any:
        return json.loads(payload)


def _check_keys(value: Any) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"JSON has text as keys, not {key!r}")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


class MsgPack:
    """MessagePack, which is shorter than JSON and has bytes. Needs `pip install msgpack`."""

    def __init__(self) -> None:
        try:
            import msgpack
        except ImportError as error:
            raise LocalProtocolError("MsgPack needs msgpack: pip install 'happened[msgpack]'") from error
        self._pack: Callable[[Any], bytes] = msgpack.packb
        self._unpack: Callable[[bytes], Any] = msgpack.unpackb

    def encode(self, value: Any) -> bytes:
        return self._pack(value)

    def decode(self, payload: bytes) -> Any:
        return self._unpack(payload)


class _Validated:
    """Instances of pydantic models, recognized by their methods: pydantic itself is not imported."""

    def __init__(self, model: Any) -> None:
        self._model = model
        is_class = isinstance(model, type)
        self._read: Callable[[bytes], Any] = model.model_validate_json if is_class else model.validate_json

    def encode(self, value: Any) -> bytes:
        if not isinstance(self._model, type):
            self._model.validate_python(value)
            return bytes(self._model.dump_json(value))
        if not isinstance(value, self._model):
            raise TypeError(f"{type(value).__name__} is no {self._model.__name__}")
        text: str = value.model_dump_json()  # type: ignore[attr-defined]
        return text.encode()

    def decode(self, payload: bytes) -> Any:
        return self._read(payload)


BYTES: Codec = _Bytes()
JSON: Codec = _Json()


def codec_of(named: object) -> Codec:
    """The codec for what an application named; LocalProtocolError if that is not a codec."""
    if named is None:
        return BYTES
    if isinstance(named, type):
        if hasattr(named, "model_validate_json"):
            return _Validated(named)
        if dataclasses.is_dataclass(named):
            return Model(named)
    elif hasattr(named, "validate_json") and hasattr(named, "dump_json"):
        return _Validated(named)
    elif isinstance(named, Codec):
        return named
    raise LocalProtocolError(
        f"codec {named!r} is none: give JSON, MsgPack(), a dataclass, a pydantic model, or an object that "
        "has encode(value) and decode(payload)"
    )


class Opened(NamedTuple):
    """A payload with its headers taken off; `trouble` says why they cannot be read."""

    body: bytes
    headers: Mapping[str, str]
    trouble: str = ""


class Payloads:
    """The payloads of one node: its codec, and whether they have headers."""

    def __init__(self, codec: object, *, headers: bool) -> None:
        self.codec = codec_of(codec)
        self.has_headers = headers

    def pack(self, value: Any, headers: Mapping[str, str] | None = None) -> bytes:
        """The payload of a value; LocalProtocolError if the value or the headers cannot be encoded."""
        return self.seal(self.encode(value), headers)

    def seal(self, body: bytes, headers: Mapping[str, str] | None) -> bytes:
        if self.has_headers:
            return seal(headers or {}, body)
        if headers:
            raise LocalProtocolError("messages have headers with Node(headers=True), on every node")
        return body

    def encode(self, value: Any) -> bytes:
        if type(value) is bytes and self.codec is BYTES:
            return value
        try:
            return self.codec.encode(value)
        except Exception as error:
            raise LocalProtocolError(f"the codec does not take this value: {error}") from error

    def open(self, payload: bytes) -> Opened:
        return open_sealed(payload) if self.has_headers else Opened(payload, {})

    def read(self, opened: Opened, name: str) -> Any:
        """The value of the message of this name; PayloadError if its payload cannot be decoded."""
        if opened.trouble:
            raise PayloadError(f"{name}: {opened.trouble}. Give every node headers=True, or none")
        try:
            return self.codec.decode(opened.body)
        except Exception as error:
            raise PayloadError(
                f"{name}: {len(opened.body)} bytes that the codec does not read: {error}. `payload` has the "
                "bytes; acknowledge the message to go on without it"
            ) from error


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers of an application that are not text, or use the names of our own."""
    for name, text in headers.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise LocalProtocolError(f"header {name!r}: names and values of headers are text")
        if name.startswith(OWN):
            raise LocalProtocolError(f"header {name!r}: names that begin with {OWN!r} are taken")


def seal(headers: Mapping[str, str], body: bytes) -> bytes:
    text = json.dumps(headers, separators=(",", ":"), ensure_ascii=False).encode() if headers else b""
    if len(text) > MAX_HEADERS:
        raise LocalProtocolError(f"headers of {len(text)} bytes; there is room for {MAX_HEADERS}")
    return bytes((MARK, VERSION)) + len(text).to_bytes(2, "big") + text + body


def open_sealed(payload: bytes) -> Opened:
    if len(payload) < HEAD or payload[0] != MARK:
        return Opened(payload, {}, "its payload has no headers")
    if payload[1] != VERSION:
        return Opened(payload, {}, f"its headers are of version {payload[1]}: upgrade this node")
    end = HEAD + int.from_bytes(payload[2:HEAD], "big")
    try:
        headers = json.loads(payload[HEAD:end]) if end > HEAD else {}
    except (ValueError, RecursionError) as error:
        return Opened(payload, {}, f"its headers cannot be read ({error})")
    if end > len(payload) or not isinstance(headers, dict):
        return Opened(payload, {}, "its headers are cut off, or no object")
    return Opened(payload[end:], {str(name): str(text) for name, text in headers.items()})
