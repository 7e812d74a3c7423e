"""`phased` messages as bytes.

address  group                       of a message; then
previous  groups  phase …            of its sender in this group, and the last phase of each group
payload

sender 0  group                      of a resynchronisation; then
previous  step                       step is what the phase is beyond `previous`, less one
"""

from collections.abc import Iterable
from typing import Any

from ..core.errors import RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from ..ordering.causal.phased import PhasedMessage, Resynchronisation
from .envelope import end, read_address, read_name, unknown, write_address, write_name, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (PhasedMessage, Resynchronisation)
MESSAGE, RESYNCHRONISATION = range(2)
MAX_GROUPS = 1 << 16


def encode(messages: Iterable[Any]) -> list[Encoded]:
    return [_encode(message) for message in messages]


def _encode(message: PhasedMessage | Resynchronisation) -> Encoded:
    group = write_numbers(message.group)
    if isinstance(message, Resynchronisation):
        step = message.phase - message.previous - 1
        address = write_name(RESYNCHRONISATION, message.sender, message.clock) + group
        return Encoded(address, write_numbers(message.previous, step))
    phases = write_numbers(message.previous, len(message.phases), *message.phases)
    return Encoded(write_address(MESSAGE, message) + group, phases)


def decode(reader: Reader, max_processes: int) -> PhasedMessage | Resynchronisation:
    kind = reader.byte()
    if kind == MESSAGE:
        return _decode_message(reader, max_processes)
    if kind != RESYNCHRONISATION:
        raise unknown(kind)
    sender, clock = read_name(reader, max_processes)
    group, previous = reader.number(MAX_GROUPS), reader.number(CLOCK_LIMIT)
    phase = previous + 1 + reader.number(CLOCK_LIMIT)
    if clock or phase >= CLOCK_LIMIT:
        raise RemoteProtocolError(f"a resynchronisation has clock {clock} and phase {phase}")
    end(reader)
    return Resynchronisation(sender, group, previous, phase)


def _decode_message(reader: Reader, max_processes: int) -> PhasedMessage:
    address = read_address(reader, max_processes)
    group, previous = reader.number(MAX_GROUPS), reader.number(CLOCK_LIMIT)
    groups = reader.number(min(MAX_GROUPS, reader.left) + 1)
    phases = tuple(reader.number(CLOCK_LIMIT) for _ in range(groups))
    if group >= groups or previous >= phases[group]:
        raise RemoteProtocolError(f"M({address.sender}, {address.clock}) has no phase in its own group")
    return PhasedMessage(*address, group, previous, phases, reader.take(reader.left))
