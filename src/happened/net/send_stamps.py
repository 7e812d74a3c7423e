"""The tracker's timestamp of a message's sending, as a header: it tells how two messages stand to each other.

The sending is a relevant event right before the multicast, in the same commit. Nothing happens in between, so
the timestamps of two messages are ordered exactly as their sendings are. Unordered messages have none: the
tracker learns nothing from them.
"""

import json

from ..core.errors import LocalProtocolError
from ..tracking import Stamp, facts_of, protocols


def check_stamps(tracker: str | None, *, headers: bool) -> None:
    """Refuse stamps without what they need."""
    if tracker is None or not headers or "vector" not in facts_of(tracker).tells:
        vectors = ", ".join(name for name, facts in protocols().items() if "vector" in facts.tells)
        raise LocalProtocolError(
            f"stamps need headers=True, and a tracker that tells vectors: one of {vectors}"
        )


def stamp_to_text(stamp: Stamp) -> str:
    return json.dumps([stamp.seq, dict(stamp.vector or {})], separators=(",", ":"), ensure_ascii=False)


def stamp_from_text(process: str, text: str) -> Stamp | None:
    """The timestamp of this process's event; None if the text is none."""
    try:
        seq, vector = json.loads(text)
        return Stamp(process, int(seq), {str(name): int(count) for name, count in vector.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
