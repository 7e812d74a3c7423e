"""`ks` messages as bytes.

    n  sender  clock  dests  receiver+1          what the message is; receiver 0: hardware multicast
    rows                                         the common part of O_M (rows.py)
    waits  lag …                                 the receiver's part: lag behind that sender's newest clock
    payload                                      the rest

The own entry is the header's: a row for the message's own sender appears only for older entries.
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, lanes
from ..ordering.causal.dependency_log import from_entries
from ..ordering.causal.ks import KsMessage
from .primitives import Encoded, Reader, write_number, write_set
from .rows import check_rows, read_rows, rows_of, write_rows

MESSAGES = (KsMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    """The parts of one multicast's messages; what they have in common is encoded once."""
    encoded = []
    log, common = None, b""
    for message in messages:
        if message.log is not log:
            log, common = message.log, _encode_common(message)
        encoded.append(Encoded(_encode_address(message), common + _encode_waits(message)))
    return encoded


def _encode_common(message: KsMessage) -> bytes:
    out = bytearray()
    n, clock = message.log.n, message.clock
    rows = rows_of(message.log.entries())
    if message.receiver is not None:
        own = rows[message.sender]
        if len(own) == 1:
            del rows[message.sender]
        else:
            own[0] = (clock, 0)
    write_rows(out, rows, clock, n)
    return bytes(out)


def _encode_address(message: KsMessage) -> bytes:
    out = bytearray()
    write_number(out, message.log.n)
    write_number(out, message.sender)
    write_number(out, message.clock)
    write_set(out, message.dests, message.log.n)
    write_number(out, 0 if message.receiver is None else message.receiver + 1)
    return bytes(out)


def _encode_waits(message: KsMessage) -> bytes:
    out = bytearray()
    vector = lanes(message.log.n)
    waits = message.waits()
    write_set(out, sum(1 << s for s, _ in waits), message.log.n)
    for s, t in waits:
        write_number(out, vector.get(message.log.clocks, s) - t)
    return bytes(out)


def decode(reader: Reader, max_processes: int) -> KsMessage:
    """A message that a correct peer can have made, or a RemoteProtocolError."""
    n = reader.number(max_processes + 1)
    sender = reader.number(n)
    clock = reader.number(CLOCK_LIMIT)
    dests = reader.set(n)
    receiver = reader.number(n + 1) - 1
    if not clock or not dests or (receiver >= 0 and not dests >> receiver & 1):
        raise RemoteProtocolError(f"M({sender}, {clock}) lacks a clock, a destination, or its receiver")
    rows = read_rows(reader, clock, n)
    if receiver < 0:
        newest = rows.get(sender, [(0, 0)])[0][0]
        if newest >= clock:
            raise RemoteProtocolError(f"M({sender}, {clock}) speaks of M({sender}, {newest}) as sent before")
    else:
        own = rows.setdefault(sender, [(clock, 0)])
        if own[0] != (clock, 0):
            raise RemoteProtocolError(f"M({sender}, {clock}) carries a newest entry of its own sender")
        own[0] = (clock, dests)
    check_rows(rows, dests if receiver >= 0 else 0, sender)
    log = from_entries(n, ((s, t, members) for s, row in rows.items() for t, members in row))
    wait_for = [0] * n
    for s in unpack(reader.set(n)):
        newest = rows[s][0][0] if s in rows else 0
        wait_for[s] = newest - reader.number()
        if wait_for[s] <= 0 or receiver < 0 or (s, wait_for[s]) == (sender, clock):
            raise RemoteProtocolError(f"M({sender}, {clock}) waits for a message its sender cannot know")
    payload = reader.take(reader.left)
    return KsMessage(
        sender, clock, dests, log, receiver if receiver >= 0 else None, lanes(n).pack(wait_for), payload
    )
