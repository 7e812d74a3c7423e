"""A tracker's state as JSON, written the same way by all trackers, and checked when it is read.

A snapshot names its protocol, version, process and options; one that is not this tracker's is refused.
Numbers and sets that do not fit into a lane are refused.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.lanes import CLOCK_LIMIT, Lanes

VERSION = 1


def dump(protocol: str, me: int, n: int, **state: Any) -> bytes:
    document = {"protocol": protocol, "version": VERSION, "me": me, "n": n, **state}
    return json.dumps(document, separators=(",", ":")).encode()


@contextmanager
def loading(data: bytes, protocol: str, me: int, n: int, **options: Any) -> Iterator[dict[str, Any]]:
    """Read the state in a snapshot; whatever is wrong with it becomes a LocalProtocolError."""
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
    """A list of n numbers as a packed vector."""
    if type(values) is not list or len(values) != geometry.n:
        raise ValueError(f"{values!r} are not {geometry.n} numbers")
    return geometry.pack([number(value) for value in values])


# Sets are written in hexadecimal: Python bounds the length of decimal numbers it will parse.


def sets_to_json(packed: int, geometry: Lanes) -> list[str]:
    return [format(members, "x") for members in geometry.unpack(packed)]


def sets(values: Any, geometry: Lanes) -> int:
    """A list of n sets of processes as a packed vector."""
    if type(values) is not list or len(values) != geometry.n:
        raise ValueError(f"{values!r} are not {geometry.n} sets of processes")
    return geometry.pack([number(int(value, 16), 1 << geometry.n) for value in values])
