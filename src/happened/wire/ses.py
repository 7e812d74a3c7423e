"""`ses` messages as bytes.

    address  vector  destinations  vector …  payload

The time of the send, then the vector of each pair, written below that time (vectors.py).
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import lanes
from ..ordering.causal.ses import SesMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, write_set
from .vectors import read_below, read_vector, write_below, write_vector

MESSAGES = (SesMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: SesMessage) -> None:
    write_vector(out, message.time, message.n, message.clock)
    write_set(out, pack(d for d, _ in message.pairs), message.n)
    for _, time in message.pairs:
        write_below(out, time, message.n, message.time)


def decode(reader: Reader, max_processes: int) -> SesMessage:
    address = read_single_kind_address(reader, max_processes)
    sender, clock, n, _ = address
    time = read_vector(reader, n, clock)
    if lanes(n).get(time, sender) != clock:
        raise RemoteProtocolError(f"M({sender}, {clock}) was sent at another time of its sender")
    pairs = tuple((d, read_below(reader, n, time)) for d in unpack(reader.set(n)))
    return SesMessage(*address, time, pairs, reader.take(reader.left))
