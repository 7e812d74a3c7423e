"""`serialized-broadcast` messages as bytes.

    address  lag  sender  payload

The broadcast before: how far its clock is behind, and whose it was. Lag 0 and no sender: there was none.
"""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.serialized_sends import NOTHING, SerializedBroadcast
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, write_number

MESSAGES = (SerializedBroadcast,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_control)


def _write_control(out: bytearray, message: SerializedBroadcast) -> None:
    clock, sender = message.after
    write_number(out, message.clock - clock if clock else 0)
    if clock:
        write_number(out, sender)


def decode(reader: Reader, max_processes: int) -> SerializedBroadcast:
    address = read_single_kind_address(reader, max_processes)
    lag = reader.number(address.clock)
    after = (address.clock - lag, reader.number(address.n)) if lag else NOTHING
    return SerializedBroadcast(*address, after, reader.take(reader.left))
