"""Changes of members on the wire: who has joined under which index, and who has left.

    0xff 0x01  JSON        form 1 of the frames that change who takes part and where

Form 2 is that of site_news.py, and form 3 that of resent.py. The first byte is no version of a message's
frame (wire/__init__.py).

The JSON is a list [kind, index, name, address]. All but a JOINED and a STATE_GIVEN have an empty address; the
name of a STAGE and of a STATE_TALLY is a number, the address of a STATE_GIVEN is numbers with commas between
them; that of the others is empty.

Bounds     a frame has at most MAX_CHANGE bytes, an index is below MAX_INDEX. Decoding hostile bytes raises
           RemoteProtocolError and nothing else.
Leaves out whether a name may be used and whether an index is the next one: whoever keeps the roster decides.
"""

import json
from dataclasses import dataclass
from enum import IntEnum

from ..core.errors import LocalProtocolError, RemoteProtocolError

MARK = 0xFF
"""The first byte of every frame that changes the members."""

MAX_CHANGE = 1 << 16
"""Bytes of one frame: a name and an address, with room to spare."""

MAX_INDEX = 65_536
"""One more than the largest index: as many processes as any message can tell apart."""

FORM = 1
HEAD = bytes((MARK, FORM))


class Kind(IntEnum):
    """The numbers are part of the format: never reused, never changed."""

    JOINED = 1
    DEPARTED = 2
    EXPELLED = 3
    ABSENT = 4
    STAGE = 5
    RANKED = 6
    STATE_ASKED = 7
    STATE_TALLY = 8
    STATE_GIVEN = 9


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """The process `name`, which is called at `address`, has this index from now on."""

    index: int
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class MemberDeparted:
    """The process of this index has left by itself; to that process itself, it is a farewell."""

    index: int


@dataclass(frozen=True, slots=True)
class MemberExpelled:
    """The process of this index was expelled: nothing more of it is listened to."""

    index: int


@dataclass(frozen=True, slots=True)
class MemberAbsent:
    """To a new member: the process of this index had gone before, and has sent it nothing."""

    index: int


@dataclass(frozen=True, slots=True)
class MemberRanked:
    """To a new member: of those named so far, the process of this index is the last to have joined."""

    index: int


@dataclass(frozen=True, slots=True)
class DepartureStage:
    """How far whoever says this is with the departure of a process; see net/departures.py."""

    index: int
    stage: int


@dataclass(frozen=True, slots=True)
class StateAsked:
    """We owe the process of this index, which has joined, the application's state (net/state_transfer.py):
    how many messages have you sent us so far? To that process: expect it. From that process: we expect it."""

    index: int


@dataclass(frozen=True, slots=True)
class StateTally:
    """The answer: so many, when we heard that question."""

    index: int
    sent: int


@dataclass(frozen=True, slots=True)
class StateGiven:
    """To the process of this index: our messages of these clocks are the state."""

    index: int
    clocks: tuple[int, ...]


LAST_STAGE = 3
MAX_NUMBER = (1 << 63) - 1

_Plain = MemberDeparted | MemberExpelled | MemberAbsent | MemberRanked | StateAsked
Change = MemberJoined | DepartureStage | StateTally | StateGiven | _Plain
_PLAIN: dict[Kind, type[_Plain]] = {
    Kind.RANKED: MemberRanked,
    Kind.DEPARTED: MemberDeparted,
    Kind.EXPELLED: MemberExpelled,
    Kind.ABSENT: MemberAbsent,
    Kind.STATE_ASKED: StateAsked,
}


def encode(change: Change) -> bytes:
    match change:
        case MemberJoined(index, name, address):
            said = [Kind.JOINED, index, name, address]
        case DepartureStage(index, stage):
            said = [Kind.STAGE, index, str(stage), ""]
        case StateTally(index, sent):
            said = [Kind.STATE_TALLY, index, str(sent), ""]
        case StateGiven(index, clocks):
            said = [Kind.STATE_GIVEN, index, "", ",".join(map(str, clocks))]
        case _:
            kind = next(kind for kind, made in _PLAIN.items() if type(change) is made)
            said = [kind, change.index, "", ""]
    frame = HEAD + json.dumps(said).encode()
    if len(frame) > MAX_CHANGE:
        raise LocalProtocolError(
            f"a change of members takes {len(frame)} bytes and {MAX_CHANGE} are allowed; "
            "give a shorter name or address"
        )
    return frame


def decode(frame: bytes) -> Change:
    if len(frame) > MAX_CHANGE:
        raise RemoteProtocolError(f"not a change of members: {len(frame)} bytes, and at most {MAX_CHANGE}")
    if len(frame) < 2 or frame[0] != MARK:
        raise RemoteProtocolError("not a change of members: it is cut off, or begins with another byte")
    if frame[1] != FORM:
        raise RemoteProtocolError(
            f"a change of members in form {frame[1]}, and this happened reads form {FORM}; upgrade this node"
        )
    try:
        kind, index, name, address = json.loads(frame[len(HEAD) :].decode())
    except (ValueError, TypeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a change of members: {error}") from error
    if type(kind) is not int or type(index) is not int or type(name) is not str or type(address) is not str:
        raise RemoteProtocolError("not a change of members: wrong types")
    if not 0 <= index < MAX_INDEX:
        raise RemoteProtocolError(f"not a change of members: no process has index {index}")
    if kind == Kind.JOINED:
        return MemberJoined(index, name, address)
    if kind == Kind.STAGE and name in map(str, range(1, LAST_STAGE + 1)):
        return DepartureStage(index, int(name))
    if kind == Kind.STATE_TALLY:
        return StateTally(index, _number(name))
    if kind == Kind.STATE_GIVEN:
        return StateGiven(index, tuple(map(_number, address.split(","))))
    if kind in _PLAIN:
        return _PLAIN[Kind(kind)](index)
    raise RemoteProtocolError(f"not a change of members: there is no kind {kind}")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_NUMBER):
        raise RemoteProtocolError(f"not a change of members: {text[:30]!r} is no number")
    return int(text)
