"""`pruning` messages as bytes.

    address  receiver
    rows                    CI, which is the same for every destination (rows.py)
    senders  lag …          DC: each pair's clock behind the newest of its sender in CI
    payload

CI has an entry for every sender that DC names: the newest stays even when its set is empty.
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..ordering.causal.pruning import PruningMessage
from .envelope import read_single_kind_address, write_address
from .primitives import Encoded, Reader, write_number, write_set
from .rows import check_rows, read_rows, rows_of, write_rows

MESSAGES = (PruningMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    """The parts of one multicast's messages; the CI they share is encoded once."""
    encoded = []
    ci, common = None, b""
    for message in messages:
        if message.ci is not ci:
            ci, common = message.ci, _encode_ci(message)
        encoded.append(Encoded(_encode_address(message), common + _encode_dc(message)))
    return encoded


def _encode_address(message: PruningMessage) -> bytes:
    out = bytearray(write_address(0, message))
    write_number(out, message.receiver)
    return bytes(out)


def _encode_ci(message: PruningMessage) -> bytes:
    out = bytearray()
    write_rows(out, rows_of(message.ci), message.clock, message.n)
    return bytes(out)


def _encode_dc(message: PruningMessage) -> bytes:
    out = bytearray()
    newest = {s: t for s, t, _ in message.ci}
    write_set(out, pack(s for s, _ in message.dc), message.n)
    for s, t in message.dc:
        write_number(out, newest[s] - t)
    return bytes(out)


def decode(reader: Reader, max_processes: int) -> PruningMessage:
    address = read_single_kind_address(reader, max_processes)
    sender, clock, n, dests = address
    receiver = reader.number(n)
    rows = read_rows(reader, clock, n)
    if not dests >> receiver & 1 or (sender in rows and rows[sender][0][0] >= clock):
        raise RemoteProtocolError(f"M({sender}, {clock}) is not for its receiver, or not its sender's last")
    check_rows(rows, dests, n)  # its own entry is not among them: no row is excepted
    ci = tuple((s, t, members) for s, row in rows.items() for t, members in reversed(row))
    dc = []
    for s in unpack(reader.set(n)):
        dc.append((s, rows[s][0][0] - reader.number() if s in rows else 0))
        if dc[-1][1] <= 0:
            raise RemoteProtocolError(f"M({sender}, {clock}) waits for a message its sender cannot know")
    return PruningMessage(*address, receiver, ci, tuple(dc), reader.take(reader.left))
