"""What a message is and where it goes: the beginning of a frame.

    kind  n  sender  clock  dests       an application message
    kind  sender  clock                 a control message about M(sender, clock)

Kinds are numbered from 0 within a protocol; one that has a single kind of message uses 0.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from .primitives import Encoded, Reader, write_number, write_set


class Address(NamedTuple):
    sender: int
    clock: int
    n: int
    dests: int


def write_address(kind: int, message: Any) -> bytes:
    out = bytearray((kind,))
    for number in (message.n, message.sender, message.clock):
        write_number(out, number)
    write_set(out, message.dests, message.n)
    return bytes(out)


def read_address(reader: Reader, max_processes: int) -> Address:
    """What follows the kind."""
    n = reader.number(max_processes + 1)
    sender, clock, dests = reader.number(n), reader.number(CLOCK_LIMIT), reader.set(n)
    if not clock or not dests:
        raise RemoteProtocolError(f"M({sender}, {clock}) lacks a clock or a destination")
    return Address(sender, clock, n, dests)


def encode_alike(messages: Iterable[Any], write_control: Callable[[bytearray, Any], None]) -> list[Encoded]:
    """The parts of one multicast's messages of the only kind; one that goes to several is encoded once."""
    parts: dict[int, Encoded] = {}
    encoded = []
    for message in messages:
        if id(message) not in parts:
            control = bytearray()
            write_control(control, message)
            parts[id(message)] = Encoded(write_address(0, message), bytes(control))
        encoded.append(parts[id(message)])
    return encoded


def read_single_kind_address(reader: Reader, max_processes: int) -> Address:
    """The address in a protocol that has but one kind of message, written as 0."""
    kind = reader.byte()
    if kind:
        raise unknown(kind)
    return read_address(reader, max_processes)


def write_name(kind: int, sender: int, clock: int) -> bytes:
    out = bytearray((kind,))
    write_number(out, sender)
    write_number(out, clock)
    return bytes(out)


def read_name(reader: Reader, max_processes: int) -> tuple[int, int]:
    return reader.number(max_processes), reader.number(CLOCK_LIMIT)


def write_numbers(*numbers: int) -> bytes:
    out = bytearray()
    for number in numbers:
        write_number(out, number)
    return bytes(out)


def end(reader: Reader) -> None:
    """A control message has no payload: nothing may follow."""
    if reader.left:
        raise RemoteProtocolError(f"{reader.left} bytes follow the end of a control message")


def unknown(kind: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"no message of this protocol is of kind {kind}")
