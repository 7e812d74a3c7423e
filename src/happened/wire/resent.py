"""A frame of a process that has failed, sent again by one of its witnesses (net/site_changes.py).

    0xff 0x03  index of the failed process (4 bytes, big-endian)  its frame

This is form 3 of the frames that change the members and their places (wire/membership.py).
Bounds     the frame inside is decoded like any other; an incomplete head raises RemoteProtocolError.
"""

from ..core.errors import RemoteProtocolError
from .membership import MARK

FORM = 3
HEAD = bytes((MARK, FORM))


def encode(failed: int, frame: bytes) -> bytes:
    return HEAD + failed.to_bytes(4, "big") + frame


def decode(data: bytes) -> tuple[int, bytes]:
    """The index of the failed process, and its frame."""
    if len(data) <= len(HEAD) + 4:
        raise RemoteProtocolError("a frame that is sent again for another process is cut off")
    start = len(HEAD) + 4
    return int.from_bytes(data[len(HEAD) : start], "big"), data[start:]
