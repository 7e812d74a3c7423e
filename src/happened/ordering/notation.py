"""Prints messages, logs and entries as Kshemkalyani & Singhal write them: M(0,1)→{1,2} and 5,1:{6}."""

from collections.abc import Iterable
from typing import Any

from .machine import Held, Hop, MessageKey, Unit


def dests(members: Iterable[int]) -> str:
    return "{" + ",".join(map(str, sorted(members))) + "}"


def key_name(key: MessageKey) -> str:
    return f"M({key[0]},{key[1]})"


def message_name(message: Any) -> str:
    return f"M({message.sender},{message.clock})→{dests(message.to)}"


def described(message: Any) -> str:
    """An application message with the entries that it carries; a control message in its own words."""
    if not message.to:
        return str(message)
    return f"{message_name(message)}; {carried(message)}"


def hop_name(key: MessageKey) -> str:
    return f"h({key[0]},{key[1]})"


def holding(held: Held, hop: Hop | None = None) -> str:
    """A held message and the messages that it waits for. A message whose place in a total order is unknown
    waits for itself, unless it came in a hop: then it waits for others."""
    own = held.message.sender, held.message.clock
    if hop is not None:
        lacking = [hop_name(key) for key in held.waits_for]
        return f"{key_name(own)}, which came in {hop_name(hop.key)}, until {' and '.join(lacking)}"
    lacking = ["its place in the order is known" for key in held.waits_for if key == own]
    lacking += [key_name(key) if key[1] else f"a word of {key[0]}" for key in held.waits_for if key != own]
    return f"{key_name(own)} until {' and '.join(lacking)}"


def entries(of: Iterable[tuple[int, int, Iterable[int]]]) -> str:
    """Prints entries (sender, clock, Dests) in order; an empty set is written ∅."""
    written = [
        f"{s},{t}:{dests(to) if to else '∅'}" for s, t, to in sorted((s, t, sorted(d)) for s, t, d in of)
    ]
    return " ".join(written) or "nothing"


def grouped(units: Iterable[Unit]) -> list[tuple[int, int, frozenset[int]]]:
    """One entry per message, in order, that has all destinations which the units name for that message."""
    sets: dict[tuple[int, int], set[int]] = {}
    for s, t, d in units:
        sets.setdefault((s, t), set()).add(d)
    return [(s, t, frozenset(to)) for (s, t), to in sorted(sets.items())]


def carried(message: Any, units: frozenset[Unit] | None = None) -> str:
    """Prints the units of a message as entries; adds the protocol's own count of entries if that is not one
    per message. `units`: the same units under other names; the message's own by default."""
    about = grouped(message.units() if units is None else units)
    if units is None:
        about += [(s, t, frozenset()) for s, t in message.settled()]
    count = message.size()[0]
    if count == len(about):
        return entries(about)
    return f"{entries(about) if about else 'no unit'}, in {count} {'entry' if count == 1 else 'entries'}"
