"""The wire format of `ks` messages.

    n  sender  clock  dests  receiver+1          the address; receiver 0: hardware multicast
    rows                                         the common part of O_M (rows.py)
    waits  lag …                                 the receiver's part: lag behind the sender's newest clock
    payload                                      the rest

The message's own entry is in the header: its sender has a row only for older entries.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from ..core.destinations import unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, Lanes, lanes
from ..ordering.causal.dependency_log import DependencyLog
from ..ordering.causal.ks import KsMessage
from .primitives import (
    Encoded,
    Reader,
    small_set_codes,
    small_set_members,
    small_sets,
    write_number,
    write_set,
)
from .rows import Row, check_rows, read_rows, rows_of, write_rows

MESSAGES = (KsMessage,)
NOBODY = b"\0"
"""The encoding of the empty set, whatever n is."""


@lru_cache(maxsize=1024)
def _number(value: int) -> bytes:
    out = bytearray()
    write_number(out, value)
    return bytes(out)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    """The parts of one multicast's messages; their common part is encoded once."""
    encoded: list[Encoded] = []
    log, common, address = None, b"", b""
    clocks: Sequence[int] = ()
    waits: dict[int, bytes] = {}
    for message in messages:
        if message.log is not log:
            log, address = message.log, _encode_address(message)
            clocks = lanes(log.n).unpack(log.clocks)
            common = _encode_common(message, clocks)
            waits = {}
        control = waits.get(message.wait_for)  # in a burst, all wait for their sender's last message
        if control is None:
            control = waits[message.wait_for] = common + _encode_waits(message, clocks)
        receiver = _number(0 if message.receiver is None else message.receiver + 1)
        encoded.append(Encoded(address + receiver, control))
    return encoded


def _encode_common(message: KsMessage, clocks: Sequence[int]) -> bytes:
    """Encode the common part; `clocks` are the newest clocks in the message's log, by sender."""
    log, sender, clock = message.log, message.sender, message.clock
    n = log.n
    out = bytearray()
    if message.receiver is not None and not log.older:
        _write_newest(out, log, clocks, sender, clock)
        return bytes(out)
    rows = rows_of(log.entries())
    if message.receiver is not None:
        own = rows[sender]
        if len(own) == 1:
            del rows[sender]
        else:
            own[0] = (clock, 0)
    write_rows(out, rows, clock, n)
    return bytes(out)


def _write_newest(out: bytearray, log: DependencyLog, clocks: Sequence[int], sender: int, clock: int) -> None:
    """Write what `write_rows` writes for a log that has only newest entries, without that of `sender`."""
    n = log.n
    vector, codes = lanes(n), small_set_codes(n)
    sets = vector.unpack(log.sets)
    senders, body = 0, bytearray()
    for s, newest in enumerate(clocks):
        if not newest or s == sender:
            continue
        senders |= 1 << s
        dests = sets[s]
        behind = clock - newest
        head = (behind << 1 if behind >= 0 else (-behind << 1) - 1) << 2 | (dests != 0)  # as `zigzag`
        if head < 0x80:
            body.append(head)
        elif head < 0x4000:
            body.append(head & 0x7F | 0x80)
            body.append(head >> 7)
        else:
            write_number(body, head)
        if dests:
            code = codes.get(dests)
            if code is not None:
                body.append(code)
            else:
                write_set(body, dests, n)
    write_set(out, senders, n)
    out += body


def _encode_address(message: KsMessage) -> bytes:
    n = message.log.n
    out = bytearray(_number(n) + _number(message.sender) + _number(message.clock))
    write_set(out, message.dests, n)
    return bytes(out)


def _encode_waits(message: KsMessage, clocks: Sequence[int]) -> bytes:
    """Encode the receiver's part; `clocks` are the newest clocks in the message's log, by sender."""
    if not message.wait_for:
        return NOBODY
    n = message.log.n
    senders, lags = 0, []
    for s, t in enumerate(lanes(n).unpack(message.wait_for)):
        if t:
            senders |= 1 << s
            lags.append(clocks[s] - t)
    code = small_set_codes(n).get(senders)
    if code is not None and max(lags) < 0x80:
        return bytes((code, *lags))
    out = bytearray()
    write_set(out, senders, n)
    for lag in lags:
        write_number(out, lag)
    return bytes(out)


def decode(reader: Reader, max_processes: int) -> KsMessage:
    """Read a message; RemoteProtocolError if no correct peer can have made it."""
    try:
        message = decode_plain(*reader.place(), max_processes)
    except IndexError:
        message = None
    return message if message is not None else _decode_any(reader, max_processes)


def decode_plain(data: bytes, at: int, end: int, max_processes: int) -> KsMessage | None:
    """Decode a message of the usual kind: for one receiver, only newest entries, every set one byte. Returns
    None or raises IndexError if it is unusual or malformed; the caller then uses `decode`.

    One loop over the bytes, since decoding is most of the cost of an arrival: it takes half the time of
    `decode`. It reads numbers of two bytes in place, since these are usual and a call costs more.
    """
    n, sender = data[at], data[at + 1]
    if not sender < n <= max_processes or n > 0x7F:
        return None
    clock, at = data[at + 2], at + 3
    if clock >= 0x80:
        if (more := data[at]) < 0x80:
            clock, at = clock & 0x7F | more << 7, at + 1
        else:
            clock, at = _longer(data, at, clock)
    sets_of, members_of, vector = _tables(n)
    dests, receiver = sets_of[data[at]], data[at + 1] - 1
    if not 0 < clock < CLOCK_LIMIT or not dests or not 0 <= receiver < n or not dests >> receiver & 1:
        return None
    width = vector.width
    clocks, sets = [0] * n, dests << width * sender
    senders = members_of[data[at + 2]]
    at += 3
    for s in senders:
        head = data[at]
        at += 1
        if head >= 0x80:
            if (more := data[at]) < 0x80:
                head, at = head & 0x7F | more << 7, at + 1
            else:
                head, at = _longer(data, at, head)
        clocks[s] = newest = clock + (head + 4 >> 3) if head & 4 else clock - (head >> 3)
        if head & 2 or s == sender or not 0 < newest < CLOCK_LIMIT:
            return None
        if head & 1:
            members = sets_of[data[at]]
            sets |= members << width * s
            at += 1
            if members & dests:
                return None
    clocks[sender] = clock
    waits = members_of[data[at]]
    at += 1
    wait_for = 0
    for s in waits:
        lag = data[at]
        at += 1
        if lag >= 0x80:
            if (more := data[at]) < 0x80:
                lag, at = lag & 0x7F | more << 7, at + 1
            else:
                lag, at = _longer(data, at, lag)
        level = clocks[s] - lag
        wait_for |= level << width * s
        if level <= 0 or (s == sender and not lag):
            return None
    if at > end:
        return None
    log = DependencyLog(n, vector.pack(clocks), sets, {})
    return KsMessage(sender, clock, dests, log, receiver, wait_for, data[at:end])


@lru_cache(maxsize=16)
def _tables(n: int) -> tuple[list[int], list[tuple[int, ...]], Lanes]:
    """Tables for decoding: small sets by their bytes, their members, and the packing of vectors."""
    return small_sets(n), small_set_members(n), lanes(n)


def _longer(data: bytes, at: int, value: int) -> tuple[int, int]:
    """Read a number whose first byte is `value`; returns it and its end. IndexError: too long for a clock."""
    value, shift = value & 0x7F, 7
    while (byte := data[at]) >= 0x80:
        if shift > 63:
            raise IndexError
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _decode_any(reader: Reader, max_processes: int) -> KsMessage:
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
    log = _log_of(n, rows)
    wait_for: dict[int, int] = {}
    for s in unpack(reader.set(n)):
        newest = rows[s][0][0] if s in rows else 0
        wait_for[s] = newest - reader.number()
        if wait_for[s] <= 0 or receiver < 0 or (s, wait_for[s]) == (sender, clock):
            raise RemoteProtocolError(f"M({sender}, {clock}) waits for a message its sender cannot know")
    payload = reader.take(reader.left)
    waits = lanes(n).pack_some(wait_for)
    return KsMessage(sender, clock, dests, log, receiver if receiver >= 0 else None, waits, payload)


def _log_of(n: int, rows: dict[int, Row]) -> DependencyLog:
    """The log with these rows, each of which lists its entries newest first."""
    clocks, sets, older = {}, {}, {}
    for s, row in rows.items():
        clocks[s], sets[s] = row[0]
        if len(row) > 1:
            older.update({(s, t): members for t, members in row[1:]})
    vector = lanes(n)
    return DependencyLog(n, vector.pack_some(clocks), vector.pack_some(sets), older)
