"""The checks of inputs and snapshots that all trackers share, and the form of their snapshots.

An error says whether the caller (LocalProtocolError) or a peer (RemoteProtocolError) is at fault. A snapshot
is JSON that names its protocol, version, process and options. A snapshot of another tracker is refused, and
so is one with numbers or sets that do not fit into a lane.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, Lanes
from .piggyback import Piggyback

VERSION = 1


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


def dump(protocol: str, me: int, n: int, **state: Any) -> bytes:
    document = {"protocol": protocol, "version": VERSION, "me": me, "n": n, **state}
    return json.dumps(document, separators=(",", ":")).encode()


@contextmanager
def loading(data: bytes, protocol: str, me: int, n: int, **options: Any) -> Iterator[dict[str, Any]]:
    """Read the state in a snapshot; any error in it becomes a LocalProtocolError."""
    expected = {"protocol": protocol, "version": VERSION, "me": me, "n": n, **options}
    try:
        state = json.loads(data)
        found = {name: state[name] for name in expected}
        if found != expected:
            raise ValueError(f"it says {found}")
        yield state
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        wanted = f"protocol {protocol}, version {VERSION}, for process {me} of {n}"
        raise LocalProtocolError(f"not a snapshot of {wanted}: {error!r}") from error


def number(value: Any, limit: int = CLOCK_LIMIT) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{value!r} is not a number below {limit}")
    return value


def numbers(values: Any, geometry: Lanes) -> int:
    """Pack a list of n numbers into a vector."""
    if type(values) is not list or len(values) != geometry.n:
        raise ValueError(f"{values!r} are not {geometry.n} numbers")
    return geometry.pack([number(value) for value in values])


# Sets are written in hexadecimal, since Python limits the length of decimal numbers that it parses.


def sets_to_json(packed: int, geometry: Lanes) -> list[str]:
    return [format(members, "x") for members in geometry.unpack(packed)]


def sets(values: Any, geometry: Lanes) -> int:
    """Pack a list of n sets of processes into a vector."""
    if type(values) is not list or len(values) != geometry.n:
        raise ValueError(f"{values!r} are not {geometry.n} sets of processes")
    return geometry.pack([number(int(value, 16), 1 << geometry.n) for value in values])
