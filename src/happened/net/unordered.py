"""Messages outside of all orders: each is delivered once at every destination, as soon as it arrives.

They are for what needs no order (Rodrigues & Veríssimo 1995, ch. 5). They travel over the same links as the
messages of the ordering protocol, which lose and repeat nothing, and past its machine: that only counts their
sends and deliveries as events of its process, so that everything has one numbering. Where a topology says how
messages travel, they take the same routes.

Gives up   the order, in both directions: such a message waits for nothing, and nothing waits for it. What its
           receiver sends next is not ordered after what its sender sent before, since it tells nothing of its
           past; a tracker learns nothing from it either.
"""

from ..core.destinations import unpack
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.places import Place, onward
from ..wire.unordered_message import UnorderedMessage


def check_destinations(dests: int, n: int, gone: set[int]) -> None:
    """Refuse a set of destinations that is empty, or has somebody who has left or never was."""
    if not dests:
        raise LocalProtocolError("a message needs at least one destination")
    for process in unpack(dests):
        if process >= n or process in gone:
            state = "has left" if process < n else f"is not among {n} processes"
            raise LocalProtocolError(f"process {process} {state} and cannot be sent to")


def check_arrival(message: UnorderedMessage, link: int, me: int, n: int, place: Place | None) -> None:
    """Refuse what no correct peer can have sent us, but for who may use this link."""
    name = f"the unordered M({message.sender}, {message.clock})"
    if message.n > n:
        raise RemoteProtocolError(f"{name} comes from a system of {message.n} processes and we know {n}")
    if place is None and message.sender != link:
        raise RemoteProtocolError(f"{name} comes from process {link}")
    if not message.dests >> me & 1 and not next_hops(message, me, place):
        raise RemoteProtocolError(f"{name} is not for process {me}, nor for anybody behind it")


def next_hops(message: UnorderedMessage, me: int, place: Place | None) -> list[int]:
    """The links that a message of ours is sent on, or one that has arrived."""
    if place is not None:
        return [branch.towards for branch in onward(place.branches, message.sender, message.dests)]
    return list(unpack(message.dests & ~(1 << me))) if message.sender == me else []
