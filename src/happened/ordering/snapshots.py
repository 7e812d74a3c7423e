"""A machine's state as bytes: JSON with the protocol's name and version.

Values are numbers, None, text, bytes, and tuples of these; they come back as they went. Long numbers are
written in hexadecimal, since Python bounds the length of decimal ones it will parse.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import LocalProtocolError

VERSION = 1
_SHORT = 1 << 53  # what every reader of JSON takes for a whole number


def seal(protocol: str, **state: Any) -> bytes:
    written = {name: _write(value) for name, value in state.items()}
    return json.dumps(
        {"protocol": protocol, "version": VERSION, **written}, separators=(",", ":"), sort_keys=True
    ).encode()


@contextmanager
def opened(protocol: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The state in these bytes; whatever goes wrong inside the `with` means that they are no snapshot."""
    try:
        state = json.loads(data)
        if (state["protocol"], state["version"]) != (protocol, VERSION):
            raise ValueError(f"protocol {state['protocol']!r}, version {state['version']!r}")
        yield {name: _read(value) for name, value in state.items()}
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, struct.error,
        LocalProtocolError,
    ) as error:  # fmt: skip
        raise LocalProtocolError(
            f"not a snapshot of protocol {protocol}, version {VERSION}: {error}"
        ) from error


def _write(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, int) and abs(value) >= _SHORT:
        return {"number": hex(value)}
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    return value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(item) for item in value)
    if isinstance(value, dict):
        ((form, text),) = value.items()
        return bytes.fromhex(text) if form == "bytes" else int(text, 16)
    return value
