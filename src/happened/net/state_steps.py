"""What a state transfer (state_transfer.py) does to an engine, at both ends."""

from collections.abc import Container, Sequence
from typing import Protocol

from ..core.errors import LocalProtocolError
from .batch import Delivery
from .links import Links
from .qualified import PLAIN, How
from .state_transfer import MOST_PARTS, STATE_CLOCK, Transfers, data_of


class Stateful(Protocol):
    """An engine, as far as it gives or begins with a state."""

    transfers: Transfers
    links: Links
    sent: int
    held_bytes: int
    counts_held: bool

    @property
    def unacknowledged(self) -> Container[int]: ...
    def multicast(self, to: Sequence[int], payload: bytes, how: How = PLAIN) -> int: ...
    def number(self, sender: int, clock: int, payload: bytes, history: str) -> None: ...


def send(engine: Stateful, newcomer: int, state: bytes, most_bytes: int) -> bytes:
    """Multicast the application's state, which has the effects of all that is acknowledged and of nothing
    else, to a newcomer in messages of at most so many bytes; returns their clocks, eight bytes each."""
    owed = engine.transfers.owed[newcomer]
    owed.fold(engine.unacknowledged)
    data = data_of(owed.contained, state)
    parts = [data[at : at + most_bytes] for at in range(0, len(data), most_bytes)]
    if len(parts) > MOST_PARTS:
        raise LocalProtocolError(
            f"it takes {len(parts)} messages of {most_bytes} bytes, more than {MOST_PARTS}"
        )
    return b"".join(engine.multicast([newcomer], part).to_bytes(8, "big") for part in parts)


def note_given(engine: Stateful, newcomer: int, clocks: bytes) -> None:
    """Our messages of these clocks are the state; they were multicast just before."""
    each = [int.from_bytes(clocks[at : at + 8], "big") for at in range(0, len(clocks), 8)]
    engine.transfers.given(newcomer, tuple(each))
    engine.sent -= len(each)  # they are not the application's


def withhold(engine: Stateful, delivery: Delivery) -> None:
    """Keep a delivery back until the application has the state that it begins with."""
    awaited = engine.transfers.awaited
    assert awaited is not None
    awaited.withheld.append(delivery)
    count_withheld(engine, delivery, 1)
    if awaited.clocks:
        begin_if_arrived(engine)


def begin_if_arrived(engine: Stateful) -> None:
    """Hand over the state, if all of it is here, and what was kept back that it does not contain."""
    awaited = engine.transfers.awaited
    begun = awaited.arrived() if awaited is not None else None
    if awaited is None or begun is None:
        return
    for each in awaited.withheld:
        count_withheld(engine, each, -1)
    engine.transfers.begin(begun)
    engine.number(awaited.source, STATE_CLOCK, begun.state, "")
    for _, sender, clock, payload, history in begun.others:
        if not engine.transfers.is_contained(sender, clock):
            engine.number(sender, clock, payload, history)


def count_withheld(engine: Stateful, delivery: Delivery, times: int) -> None:
    """What is kept back counts as held, where pausing its link makes progress."""
    if engine.counts_held and delivery.sender in engine.links.held:
        engine.links.count_held(delivery.sender, times)
        engine.held_bytes += times * len(delivery.payload)
