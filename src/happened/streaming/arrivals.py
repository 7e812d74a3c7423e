"""Reads the message in a row of a stream: its name, and the causes it must wait for.

ByIds        for messages of other systems: an id, and the ids of the causes
ByProtocol   for messages of a protocol of this package, as its wire format encodes them

A row whose columns make no sense causes a RemoteProtocolError; the row is marked corrupt, the stream goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.tuples import new
from ..ordering.listening import ReplicaListener
from ..wire import decode
from .reached import Arrived

_TEXT = ("string",)


@dataclass(frozen=True)
class ByIds:
    """Messages have ids, unique at a destination, and list the ids of their causes at that destination.

    id      the column of the id
    after   the column of the causes: an array of ids, null or empty for none. A cause may be omitted if
            another one waits for it, and must be if it is not addressed to this destination: it never comes
    """

    id: str = "id"
    after: str = "after"
    kind = "ids"

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return {self.id: _TEXT, self.after: ("array<string>",)}

    def arrival(self, destination: Any, values: Sequence[Any]) -> Arrived:
        name, after = values
        if type(name) is not str:
            raise RemoteProtocolError(f"column {self.id}: a message without an id")
        wants = () if after is None else tuple(after)
        if None in wants:
            raise RemoteProtocolError(f"column {self.after}: a cause of {name} is null")
        return new(Arrived, (name, wants, ()))

    def named(self, cause: Any) -> str:
        return str(cause)


@dataclass(frozen=True)
class ByProtocol:
    """Messages are frames of a protocol of this package (`happened.wire.encode`).

    The stream takes the place of the destination process, which sends nothing itself or acts only on what the
    stream has delivered. Frames are not enough to order the messages of a process that runs elsewhere and is
    only observed: protocols leave out causes that this process was known to have delivered.

    protocol   the protocol's name; `happened.ordering.able(Listens)` lists those that can be used
    members    the names of processes, and so of destinations, in order of their indices
    frame      the column of the frame
    options    the protocol's options, if it has any
    """

    protocol: str
    members: Sequence[str]
    frame: str = "frame"
    options: Mapping[str, Any] = field(default_factory=dict)
    kind = "clocks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        if not self.members or len(set(self.members)) != len(self.members):
            raise LocalProtocolError("members must be the names of all processes in order, each once")
        self._listener(0)

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return {self.frame: ("binary",)}

    def _listener(self, me: int) -> ReplicaListener:
        return _listener(self.protocol, me, len(self.members), tuple(sorted(self.options.items())))

    def arrival(self, destination: Any, values: Sequence[Any]) -> Arrived:
        (frame,) = values
        if destination not in self.members:
            raise RemoteProtocolError(f"destination {destination!r} is none of the members")
        if frame is None:
            raise RemoteProtocolError(f"column {self.frame}: a message without a frame")
        message, end = decode(bytes(frame))
        if end != len(frame):
            raise RemoteProtocolError(f"column {self.frame}: {len(frame) - end} bytes follow the frame")
        heard = self._listener(self.members.index(destination)).hear(message)
        return Arrived(*heard)

    def named(self, cause: Any) -> str:
        sender, clock = cause
        return f"{self.members[sender]}#{clock}"


Rule = ByIds | ByProtocol
"""How to read the control columns of a row. `columns`: the columns to read, in order, each with its possible
types in Spark's short notation; `named`: prints a cause for people; `kind`: selects the record of deliveries
(destination.REACHED)."""


@lru_cache(maxsize=1024)
def _listener(protocol: str, me: int, n: int, options: tuple[tuple[str, Any], ...]) -> ReplicaListener:
    return ReplicaListener(protocol, me, n, **dict(options))
