"""Changes of the topology on the wire (net/site_changes.py says when each is sent).

    0xff 0x02  JSON        form 2 of the frames that change members and places (wire/membership.py)

    [1, after, text]           replace the topology with digest `after` by the one in `text`
    [2, after]                 no more comes over this link while the topology `after` lasts
    [3, after, next, index]    no more comes to the process `index`, which expects `next` to follow
    [4, after, text]           like 1, when a process has failed for good, as `text` says
    [5, after, next]           like 2, while all do without the failed process
    [6, after, index, clock]   the sender has the hops of the process `index` up to this clock
    [7, after, index, counts]  the process `index` had delivered so many messages of each sender

In 3 and 5, `next` is the digest of the topology that follows, or of the text of a succession.
Bounds     a frame has at most MAX_FRAME bytes, a digest is 64 hexadecimal digits, an index below MAX_INDEX.
           Decoding hostile bytes raises RemoteProtocolError and no other error.
"""

import json
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any, get_args

from ..core.errors import LocalProtocolError, RemoteProtocolError
from . import MAX_FRAME
from .membership import MARK, MAX_INDEX

FORM = 2
HEAD = bytes((MARK, FORM))
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SiteProposed:
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class LinkDrained:
    after: str


@dataclass(frozen=True, slots=True)
class ProcessFinished:
    after: str
    next: str
    index: int


@dataclass(frozen=True, slots=True)
class SuccessionProposed:
    after: str
    text: str


@dataclass(frozen=True, slots=True)
class LinkFlushed:
    after: str
    next: str


@dataclass(frozen=True, slots=True)
class HopsTaken:
    after: str
    index: int
    clock: int


@dataclass(frozen=True, slots=True)
class Account:
    after: str
    index: int
    counts: tuple[tuple[int, int], ...]  # (sender, number of messages), sorted


SiteNews = (
    SiteProposed | LinkDrained | ProcessFinished | SuccessionProposed | LinkFlushed | HopsTaken | Account
)
KINDS: tuple[type[SiteNews], ...] = get_args(SiteNews)


def encode(news: SiteNews) -> bytes:
    said = [1 + KINDS.index(type(news)), *astuple(news)]
    frame = HEAD + json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
    if len(frame) > MAX_FRAME:
        raise LocalProtocolError(f"a topology of {len(frame)} bytes does not fit a frame of {MAX_FRAME}")
    return frame


def decode(frame: bytes) -> SiteNews:
    try:
        said = json.loads(frame[len(HEAD) :].decode())
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"not a change of the topology: {error}") from error
    match said:
        case [int(kind), *values] if 0 < kind <= len(KINDS):
            expected = fields(KINDS[kind - 1])
            if len(values) == len(expected) and all(
                _FITS[field.name](value) for field, value in zip(expected, values, strict=True)
            ):
                return KINDS[kind - 1](*(_as_tuples(value) for value in values))
    raise RemoteProtocolError(f"not a change of the topology: {said!r:.100}")


def _is_count(value: Any, limit: int = 1 << 63) -> bool:
    return type(value) is int and 0 <= value < limit


def _is_index(value: Any) -> bool:
    return _is_count(value, MAX_INDEX)


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and len(each) == 2 and _is_index(each[0]) and _is_count(each[1])
        for each in value
    )


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


_FITS: dict[str, Callable[[Any], bool]] = {
    "after": _is_digest,
    "next": _is_digest,
    "text": lambda value: isinstance(value, str),
    "index": _is_index,
    "clock": _is_count,
    "counts": _are_counts,
}
