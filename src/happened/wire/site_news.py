"""Changes of the topology on the wire (net/site_changes.py says when each is sent).

    0xff 0x02  JSON        form 2 of the frames that change who takes part and where (wire/membership.py)

    [1, after, text]           the topology with digest `after` is to become that of `text`
    [2, after]                 nothing more comes over this link while `after` lasts
    [3, after, next, index]    nothing more comes to the process `index`, which expects `next` to follow

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


SiteNews = SiteProposed | LinkDrained | ProcessFinished


def encode(news: SiteNews) -> bytes:
    match news:
        case SiteProposed(after, text):
            said: list[object] = [1, after, text]
        case LinkDrained(after):
            said = [2, after]
        case ProcessFinished(after, following, index):
            said = [3, after, following, index]
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
        case [3, str(after), str(following), int(index)] if (
            _DIGEST.fullmatch(after)
            and _DIGEST.fullmatch(following)
            and not isinstance(index, bool)
            and 0 <= index < MAX_INDEX
        ):
            return ProcessFinished(after, following, index)
    raise RemoteProtocolError(f"not a change of the topology: {said!r:.100}")
