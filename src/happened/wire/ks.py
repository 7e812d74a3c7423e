"""`ks` messages as bytes.

    n  sender  clock  dests  receiver+1          what the message is; receiver 0: hardware multicast
    senders  row …                               the common part of O_M, one row for each of `senders`
    waits  lag …                                 the receiver's part: lag behind that sender's newest clock
    payload                                      the rest

A row is a number (the sender's newest clock relative to ours, zigzag, ·4, +2 if older entries follow, +1 if
the newest has a set), that set, and the older entries newest first: how many, then step back and set of each.
The own entry is the header's: a row for the message's own sender appears only for older entries.
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT, lanes
from ..ordering.causal.dependency_log import from_entries
from ..ordering.causal.ks import KsMessage
from .primitives import Encoded, Reader, unzigzag, write_number, write_set, zigzag

MESSAGES = (KsMessage,)

Row = list[tuple[int, int]]
"""The (clock, set) entries of one sender, newest first."""


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
    rows: dict[int, Row] = {}
    for s, t, dests in message.log.entries():
        rows.setdefault(s, []).insert(0, (t, dests))
    if message.receiver is not None:
        own = rows[message.sender]
        if len(own) == 1:
            del rows[message.sender]
        else:
            own[0] = (clock, 0)
    senders = sum(1 << s for s in rows)
    write_set(out, senders, n)
    for _, row in sorted(rows.items()):
        _write_row(out, row, clock, n)
    return bytes(out)


def _write_row(out: bytearray, row: Row, clock: int, n: int) -> None:
    newest, dests = row[0]
    write_number(out, zigzag(clock - newest) << 2 | (len(row) > 1) << 1 | (dests != 0))
    if dests:
        write_set(out, dests, n)
    if len(row) > 1:
        write_number(out, len(row) - 2)
        for t, dests in row[1:]:
            write_number(out, newest - t - 1)
            write_set(out, dests, n)
            newest = t


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
    rows = {s: _read_row(reader, clock, n) for s in _members(reader.set(n))}
    if receiver < 0:
        newest = rows.get(sender, [(0, 0)])[0][0]
        if newest >= clock:
            raise RemoteProtocolError(f"M({sender}, {clock}) speaks of M({sender}, {newest}) as sent before")
    else:
        own = rows.setdefault(sender, [(clock, 0)])
        if own[0] != (clock, 0):
            raise RemoteProtocolError(f"M({sender}, {clock}) carries a newest entry of its own sender")
        own[0] = (clock, dests)
    _check_rows(rows, dests if receiver >= 0 else 0, sender)
    log = from_entries(n, ((s, t, members) for s, row in rows.items() for t, members in row))
    wait_for = [0] * n
    for s in _members(reader.set(n)):
        newest = rows[s][0][0] if s in rows else 0
        wait_for[s] = newest - reader.number()
        if wait_for[s] <= 0 or receiver < 0 or (s, wait_for[s]) == (sender, clock):
            raise RemoteProtocolError(f"M({sender}, {clock}) waits for a message its sender cannot know")
    payload = reader.take(reader.left)
    return KsMessage(
        sender, clock, dests, log, receiver if receiver >= 0 else None, lanes(n).pack(wait_for), payload
    )


def _members(members: int) -> Iterable[int]:
    return (p for p in range(members.bit_length()) if members >> p & 1)


def _read_row(reader: Reader, clock: int, n: int) -> Row:
    head = reader.number()
    newest = clock - unzigzag(head >> 2)
    row = [(newest, reader.set(n) if head & 1 else 0)]
    if head & 2:
        for _ in range(reader.number(reader.left + 1) + 1):
            newest -= reader.number() + 1
            row.append((newest, reader.set(n)))
    if not 0 < newest <= row[0][0] < CLOCK_LIMIT:
        raise RemoteProtocolError(f"a row has clocks from {row[0][0]} down to {newest}")
    return row


def _check_rows(rows: dict[int, Row], dests: int, sender: int) -> None:
    """Lemmas 1 and 7, and PC2: what no correct log has would break the receiver's own."""
    for s, row in rows.items():
        seen = 0
        for i, (t, members) in enumerate(row):
            if members & seen or (i and not members):
                raise RemoteProtocolError(
                    f"entry ({s}, {t}) repeats a destination or is empty and not newest"
                )
            seen |= members
            if members & dests and not (s == sender and i == 0):
                raise RemoteProtocolError(f"entry ({s}, {t}) names a destination of this very message")
