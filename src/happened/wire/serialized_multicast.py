"""`serialized-multicast` messages as bytes.

    address  destinations  (lag  sender) …  payload

Per destination the message before: how far its clock is behind beyond one, and whose it was.
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import pack, unpack
from ..ordering.causal.serialized_sends import SerializedMulticast
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, write_number, write_set

MESSAGES = (SerializedMulticast,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: SerializedMulticast) -> None:
    write_set(out, pack(d for d, _ in message.latest), message.n)
    for _, (clock, sender) in message.latest:
        write_number(out, message.clock - clock - 1)
        write_number(out, sender)


def decode(reader: Reader, max_processes: int) -> SerializedMulticast:
    address = read_single_kind_address(reader, max_processes)
    latest = []
    for d in unpack(reader.set(address.n)):
        lag = 1 + reader.number(address.clock - 1)
        latest.append((d, (address.clock - lag, reader.number(address.n))))
    return SerializedMulticast(*address, tuple(latest), reader.take(reader.left))
