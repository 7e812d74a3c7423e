"""`zoned-ks` messages as bytes.

address  relay      what it is, where it goes, and who sends it into the zone
a message of `ks`   the hop, among the members of the zone; it has the payload
"""

from collections.abc import Iterable
from typing import Any

from ..ordering.causal.zoned_ks import ZonedMessage
from . import ks
from .envelope import read_single_kind_address, write_address, write_numbers
from .primitives import Encoded, Reader

MESSAGES = (ZonedMessage,)

MAX_ZONE = 1024
"""Members of one zone: the log of a hop may be as large as the square of their number."""


def encode(messages: Iterable[Any]) -> list[Encoded]:
    messages = list(messages)
    hops = ks.encode(message.hop for message in messages)
    return [
        Encoded(write_address(0, message) + write_numbers(message.relay) + address, control)
        for message, (address, control) in zip(messages, hops, strict=True)
    ]


def decode(reader: Reader, max_processes: int) -> ZonedMessage:
    address = read_single_kind_address(reader, max_processes)
    relay = reader.number(address.n)
    return ZonedMessage(*address, relay, ks.decode(reader, min(address.n, MAX_ZONE)))
