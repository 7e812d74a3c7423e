"""Arrays and names as one block of bytes that a page can hold: what `assets/scene.js` unpacks.

4 bytes            length of the header, little endian
header             JSON: {"arrays": {name: [type, offset, length]}, …whatever else is given}
arrays             each begins at a multiple of 8, offsets counting from the first
"""

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..causality.linearization import Ints

TYPES = {"int8": "i1", "uint8": "u1", "uint16": "u2", "int32": "i4", "float64": "f8"}
ALIGNMENT = 8
EFFORT = 6  # of deflate: the next ones save a few percent and take twice as long


def pack(header: Mapping[str, Any], arrays: Mapping[str, Ints]) -> bytes:
    """The block, not yet compressed."""
    places, parts, at = {}, [], 0
    for name, values in arrays.items():
        kind = values.dtype.name
        data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        places[name] = [TYPES[kind], at, values.size]
        padding = -len(data) % ALIGNMENT
        parts += [data, bytes(padding)]
        at += len(data) + padding
    text = json.dumps({**header, "arrays": places}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % ALIGNMENT)
    return b"".join([struct.pack("<I", len(text)), text, *parts])


def compressed(block: bytes) -> bytes:
    return zlib.compress(block, EFFORT)


def as_text(block: bytes) -> str:
    """The block compressed and in base64, which needs no escaping in HTML."""
    return base64.b64encode(compressed(block)).decode()


def differences(values: Ints) -> Ints:
    """The difference of each number from the one before it, as 32-bit integers, which compress better."""
    return np.diff(values, prepend=0).astype(np.int32)
