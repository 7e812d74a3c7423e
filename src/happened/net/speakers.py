"""Who may say what: checks on what a peer tells beyond its own messages, before it is believed.

A link is authenticated, so a message is its sender's own or comes over the sender's route (engine.py). What
is checked here is what one member could otherwise make all the others believe. docs/runtime.md lists what a
lying member can still do.

These are checks of what arrives, not of what was journaled: an input that was accepted is replayed as it was.
"""

from typing import Any, Protocol

from ..core.errors import RemoteProtocolError
from .departures import Departures
from .layer import Read


class Reading(Protocol):
    """What of a kernel the checks concern."""

    read: Read
    replays: bool
    time: int


CLOCK_SKEW = 24 * 3600 * 10**9
"""Nanoseconds by which the clocks of two machines may differ."""


def check_timestamp(timestamp: int, now: int) -> None:
    """Refuse a timestamp of a total order that nobody can have reached. `now` is in nanoseconds since 1970.

    Timestamps grow by one for each message, and no system has sent one each nanosecond since then. The bound
    grows faster than timestamps do, and does not depend on what was received: what one process takes, another
    one takes too, once its clock is there. A liar who goes to the bound leaves more than 2^62 for the rest.
    """
    if timestamp > now + CLOCK_SKEW:
        raise RemoteProtocolError(
            f"no message can have timestamp {timestamp} yet: somebody lies, or a clock is off"
        )


def check_timestamps(kernel: Reading) -> None:
    """Have a kernel check the timestamp of each message that arrives."""
    read = kernel.read

    def read_checked(link: int, frame: bytes) -> Any:
        message = read(link, frame)
        if not kernel.replays:
            check_timestamp(getattr(message, "timestamp", 0), kernel.time)
        return message

    kernel.read = read_checked


def check_admission(registrar: str, departures: Departures, link: int, name: str) -> None:
    """Refuse, at a registrar that has admitted others, somebody whom it did not admit. Who was registrar
    before may have, until all that it said is here."""
    if all(departure.closed for departure in departures.values()):
        raise RemoteProtocolError(
            f"process {link} says that {name!r} was admitted, and only {registrar!r} admits"
        )
