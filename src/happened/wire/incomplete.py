"""Messages of incomplete orders as bytes.

labelled   0  address  length  label              then a message of `ks`, which has the payload
managed    1  address  priority  clock - previous
           entries  0, or 1 and the priority of each entry; 0 where all have the message's
           payload
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..ordering.causal.incomplete import LABEL_BYTES, PRIORITIES, LabelledMessage, ManagedMessage, Preceding
from . import ks
from .entries import read_entries, write_entries
from .envelope import read_address, unknown, write_address, write_numbers
from .primitives import Encoded, Reader, unzigzag, write_number, zigzag

MESSAGES = (LabelledMessage, ManagedMessage)
LABELLED, MANAGED = range(2)


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_labelled(m) if isinstance(m, LabelledMessage) else _managed(m) for m in messages]


def _labelled(message: LabelledMessage) -> Encoded:
    (hop,) = ks.encode([message.hop])
    label = message.label.encode()
    address = write_address(LABELLED, message) + write_numbers(len(label)) + label
    return Encoded(address + hop.address, hop.control)


def _managed(message: ManagedMessage) -> Encoded:
    address = write_address(MANAGED, message)
    address += write_numbers(zigzag(message.priority), message.clock - message.previous)
    control = bytearray()
    write_entries(control, [cause.entry for cause in message.causes], message.clock, message.n)
    several = any(cause.priority != message.priority for cause in message.causes)
    control.append(several)
    if several:
        for cause in message.causes:
            write_number(control, zigzag(cause.priority))
    return Encoded(address, bytes(control))


def decode(reader: Reader, max_processes: int) -> LabelledMessage | ManagedMessage:
    kind = reader.byte()
    if kind == LABELLED:
        return _read_labelled(reader, max_processes)
    if kind == MANAGED:
        return _read_managed(reader, max_processes)
    raise unknown(kind)


def _read_labelled(reader: Reader, max_processes: int) -> LabelledMessage:
    address = read_address(reader, max_processes)
    text = reader.take(reader.number(LABEL_BYTES + 1))
    try:
        label = text.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a label is not text in UTF-8: {text!r:.50}") from error
    return LabelledMessage(*address, label, ks.decode(reader, address.n))


def _read_managed(reader: Reader, max_processes: int) -> ManagedMessage:
    sender, clock, n, dests = read_address(reader, max_processes)
    priority = unzigzag(reader.number(PRIORITIES))
    previous = clock - reader.number(clock + 1)
    entries = read_entries(reader, clock, n)
    several = reader.byte()
    causes = tuple(
        Preceding(*entry, unzigzag(reader.number(PRIORITIES)) if several else priority) for entry in entries
    )
    return ManagedMessage(sender, clock, n, dests, priority, previous, causes, reader.take(reader.left))
