"""Changes of the topology on the wire (net/site_changes.py says when each is sent).

    0xff 0x02  JSON        form 2 of the frames that change who takes part and where (wire/membership.py)

    [1, after, text]           the topology with digest `after` is to become that of `text`
    [2, after]                 nothing more comes over this link while `after` lasts
    [3, after, next, index]    nothing more comes to the process `index`, which expects `next` to follow
    [4, after, text]           the same as 1, and a process has failed for good, as `text` says
    [5, after, next]           the same as 2, while everybody does without that process
    [6, after, index, clock]   the hops of the process `index` up to this clock have come to who says so
    [7, after, index, counts]  to the process `index`, so many messages of each sender were delivered before

In 3 and 5, `next` is the digest of the topology that follows, or of the text of a succession.
Bounds     a frame has at most MAX_FRAME bytes, a digest is 64 hexadecimal digits, an index below MAX_INDEX.
           Decoding hostile bytes raises RemoteProtocolError and nothing else.
"""

import json
import re
from dataclasses import dataclass

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
    counts: tuple[tuple[int, int], ...]  # (sender, how many), by sender


SiteNews = (
    SiteProposed | LinkDrained | ProcessFinished | SuccessionProposed | LinkFlushed | HopsTaken | Account
)


def encode(news: SiteNews) -> bytes:
    match news:
        case SiteProposed(after, text):
            said: list[object] = [1, after, text]
        case LinkDrained(after):
            said = [2, after]
        case ProcessFinished(after, following, index):
            said = [3, after, following, index]
        case SuccessionProposed(after, text):
            said = [4, after, text]
        case LinkFlushed(after, following):
            said = [5, after, following]
        case HopsTaken(after, index, clock):
            said = [6, after, index, clock]
        case Account(after, index, counts):
            said = [7, after, index, [list(each) for each in counts]]
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
        case [1, str(after), str(text)] if _DIGEST.fullmatch(after):
            return SiteProposed(after, text)
        case [2, str(after)] if _DIGEST.fullmatch(after):
            return LinkDrained(after)
        case [3, str(after), str(following), index] if (
            _DIGEST.fullmatch(after) and _DIGEST.fullmatch(following) and _is_index(index)
        ):
            return ProcessFinished(after, following, index)
        case [4, str(after), str(text)] if _DIGEST.fullmatch(after):
            return SuccessionProposed(after, text)
        case [5, str(after), str(following)] if _DIGEST.fullmatch(after) and _DIGEST.fullmatch(following):
            return LinkFlushed(after, following)
        case [6, str(after), index, clock] if (
            _DIGEST.fullmatch(after) and _is_index(index) and _is_count(clock)
        ):
            return HopsTaken(after, index, clock)
        case [7, str(after), index, [*counts]] if _DIGEST.fullmatch(after) and _is_index(index):
            if all(_is_tally(each) for each in counts):
                return Account(after, index, tuple((sender, count) for sender, count in counts))
    raise RemoteProtocolError(f"not a change of the topology: {said!r:.100}")


def _is_index(value: object) -> bool:
    return _is_count(value) and value < MAX_INDEX  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_tally(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_index(value[0]) and _is_count(value[1])
