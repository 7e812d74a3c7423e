"""Messages, logs and what is carried, as Kshemkalyani & Singhal write them: M(0,1)→{1,2} and 5,1:{6}."""

from collections.abc import Iterable

from happened.ordering import Message, Unit


def dests(members: Iterable[int]) -> str:
    return "{" + ",".join(map(str, sorted(members))) + "}"


def message_name(message: Message) -> str:
    return f"M({message.sender},{message.clock})→{dests(message.to)}"


def entries(of: Iterable[tuple[int, int, Iterable[int]]]) -> str:
    """Entries (sender, clock, Dests) in order; an empty set is written ∅."""
    written = [
        f"{s},{t}:{dests(to) if to else '∅'}" for s, t, to in sorted((s, t, sorted(d)) for s, t, d in of)
    ]
    return " ".join(written) or "nothing"


def units(of: Iterable[Unit]) -> str:
    sets: dict[tuple[int, int], set[int]] = {}
    for s, t, d in of:
        sets.setdefault((s, t), set()).add(d)
    return entries((s, t, to) for (s, t), to in sets.items())


def carried(message: Message) -> str:
    """The units, and in how many entries of the protocol's own kind, unless that is one for each message."""
    about_others = message.units()
    count = message.size()[0]
    said = units(about_others)
    if count == len({(s, t) for s, t, _ in about_others}):
        return said
    return f"{said if about_others else 'no unit'}, in {count} {'entry' if count == 1 else 'entries'}"
