"""`psync` messages as bytes.

address
senders  lag …      of whom it names a predecessor; its clock relative to the message's own, zigzag
payload
"""

from collections.abc import Iterable
from typing import Any

from ..core.destinations import pack, unpack
from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.causal.psync import PsyncMessage
from .envelope import encode_alike, read_single_kind_address
from .primitives import Encoded, Reader, unzigzag, write_number, write_set, zigzag

MESSAGES = (PsyncMessage,)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return encode_alike(messages, _write_context)


def _write_context(out: bytearray, message: PsyncMessage) -> None:
    write_set(out, pack(sender for sender, _ in message.context), message.n)
    for _, clock in message.context:
        write_number(out, zigzag(message.clock - clock))


def decode(reader: Reader, max_processes: int) -> PsyncMessage:
    address = read_single_kind_address(reader, max_processes)
    context = tuple((s, address.clock - unzigzag(reader.number())) for s in unpack(reader.set(address.n)))
    if not all(0 < clock < CLOCK_LIMIT for _, clock in context):
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) follows a message without a clock")
    return PsyncMessage(*address, context, reader.take(reader.left))
