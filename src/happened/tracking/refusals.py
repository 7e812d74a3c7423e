"""The inputs that every tracker refuses, and the error that says whether the caller or a peer is at fault."""

from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, Lanes
from .piggyback import Piggyback


def member(me: int, n: int) -> None:
    if not 0 <= me < n:
        raise LocalProtocolError(f"there is no process {me} among {n}; they are numbered from 0")


def peer(process: int, me: int, n: int) -> None:
    if process == me or not 0 <= process < n:
        raise LocalProtocolError(f"process {me} of {n} exchanges no messages with {process}")


def arrival(sender: int, carried: Any, me: int, geometry: Lanes, columns: bool = False) -> None:
    if sender == me or not 0 <= sender < geometry.n:
        peer(sender, me, geometry.n)
    if (
        not isinstance(carried, Piggyback)
        or (carried.geometry is not geometry and carried.geometry != geometry)
        or (carried.columns is not None) != columns
    ):
        raise RemoteProtocolError(
            f"not a piggyback of this protocol and {geometry.n} processes: {carried!r:.100}"
        )


def countable(count: int) -> None:
    if count >= CLOCK_LIMIT - 1:
        raise LocalProtocolError("the count of relevant events has reached its limit of 2^63 - 2")


def own_value(told: int, ours: int) -> None:
    if told > ours:
        raise RemoteProtocolError(f"tells of an event of ours that we never produced ({told} after {ours})")
