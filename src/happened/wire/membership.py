"""Membership changes on the wire: which process has joined under which index, and which has left.

    0xff 0x01  JSON        form 1 of the frames that change the members and their places

Form 2 is that of site_news.py, and form 3 that of resent.py. 0xff is not a version that the frame of a
message can begin with (wire/__init__.py).

The JSON is a list [kind, index, name, address]. In a DepartureStage and a StateTally the name is a number; in
a StateGiven the address is a list of numbers separated by commas; a MemberJoined has both. All other names
and addresses are empty.

Bounds     a frame has at most MAX_CHANGE bytes, an index is below MAX_INDEX. Decoding hostile bytes raises
           RemoteProtocolError and no other error.
Leaves out whether a name may be used and whether an index is the next one: the owner of the roster decides.
"""

import json
from dataclasses import dataclass
from typing import get_args

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..ordering.facts import MANY_PROCESSES

MARK = 0xFF
"""The first byte of every frame that changes the members."""

MAX_CHANGE = 1 << 16
"""The maximal size of a frame in bytes: a name and an address fit easily."""

MAX_INDEX = MANY_PROCESSES
"""One more than the largest index; no message can distinguish more processes."""

FORM = 1
HEAD = bytes((MARK, FORM))


@dataclass(frozen=True, slots=True)
class AboutProcess:
    """News about the process of this index."""

    index: int


@dataclass(frozen=True, slots=True)
class MemberJoined(AboutProcess):
    """The process `name`, which is called at `address`, has this index from now on."""

    name: str
    address: str


class MemberDeparted(AboutProcess):
    """The process has left by itself; sent to that process itself, this is a farewell."""


class MemberExpelled(AboutProcess):
    """The process was expelled; its messages are ignored from now on."""


class MemberAbsent(AboutProcess):
    """Tells a new member that this process was gone before, and has sent the new member nothing."""


class MemberRanked(AboutProcess):
    """Tells a new member that this process was the last to join of those named so far."""


@dataclass(frozen=True, slots=True)
class DepartureStage(AboutProcess):
    """The stage that the sender has reached in the departure of a process; see net/departures.py."""

    stage: int


class StateAsked(AboutProcess):
    """To other members: how many messages have you sent us so far? We ask because we owe the newcomer of this
    index the application's state (net/state_transfer.py). To the newcomer: expect that state. From the
    newcomer: we expect the state."""


@dataclass(frozen=True, slots=True)
class StateTally(AboutProcess):
    """Answers StateAsked: how many messages we had sent to the asker when its question came."""

    sent: int


@dataclass(frozen=True, slots=True)
class StateGiven(AboutProcess):
    """Tells the process of this index which of our messages, by clock, make up the state."""

    clocks: tuple[int, ...]


LAST_STAGE = 3
MAX_NUMBER = (1 << 63) - 1

Change = (
    MemberJoined
    | MemberDeparted
    | MemberExpelled
    | MemberAbsent
    | DepartureStage
    | MemberRanked
    | StateAsked
    | StateTally
    | StateGiven
)
KINDS: tuple[type[Change], ...] = get_args(Change)
"""Their numbers in the wire format, counted from 1: never changed and never reused."""


def encode(change: Change) -> bytes:
    name = address = ""
    match change:
        case MemberJoined():
            name, address = change.name, change.address
        case DepartureStage(_, number) | StateTally(_, number):
            name = str(number)
        case StateGiven(_, clocks):
            address = ",".join(map(str, clocks))
    said = [1 + KINDS.index(type(change)), change.index, name, address]
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
    made = KINDS[kind - 1] if 0 < kind <= len(KINDS) else None
    if made is MemberJoined:
        return MemberJoined(index, name, address)
    if made is DepartureStage and name in map(str, range(1, LAST_STAGE + 1)):
        return DepartureStage(index, int(name))
    if made is StateTally:
        return StateTally(index, _number(name))
    if made is StateGiven:
        return StateGiven(index, tuple(map(_number, address.split(","))))
    if made is None or made is DepartureStage:
        raise RemoteProtocolError(f"not a change of members: there is no kind {kind}")
    return made(index)  # type: ignore[call-arg]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_NUMBER):
        raise RemoteProtocolError(f"not a change of members: {text[:30]!r} is no number")
    return int(text)
