"""The attributes in which a tracker's information about an event is stored in the event's row.

    tracker        the tracking protocol, as in `p2:4`
    relevant_seq   the event's number among the events that its tracker numbered, from 1
    null           `true` for an event that the tracker made itself, not the application
    vector         number of numbered events of each process in the past, itself included: `alice:3 bob:1`
    dependencies   the same form for a dependency vector, from which vectors can be rebuilt
    predecessors   the immediate predecessors, by process and number
    scalar         Lamport's scalar

These are not in the column `clock`, which counts all events: a tracker counts only those it numbers. A space,
colon or percent sign in a name is percent-encoded, as in a URL. Information that a tracker does not give is
left out.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

NUMBER = "relevant_seq"
COUNTED = ("vector", "dependencies", "predecessors")
"""The attributes that list processes with a number each."""

TOKEN = r"[^ :]+:[0-9]{1,18}"
LIST = rf"^({TOKEN}( {TOKEN})*)?$"
"""A regular expression for such a list."""

_PLAIN = "".join(chr(code) for code in range(33, 127) if chr(code) not in ":%")


def tracker_attributes(
    tracker: str,
    seq: int,
    *,
    vector: Mapping[str, int] | None = None,
    dependencies: Mapping[str, int] | None = None,
    predecessors: Iterable[tuple[str, int]] | None = None,
    scalar: int | None = None,
    null: bool = False,
) -> dict[str, str]:
    attributes = {"tracker": tracker, NUMBER: str(seq)}
    told = (
        None if vector is None else vector.items(),
        None if dependencies is None else dependencies.items(),
        None if predecessors is None else sorted(predecessors),
    )
    for name, counts in zip(COUNTED, told, strict=True):
        if counts is not None:
            attributes[name] = " ".join(f"{quote(each, safe=_PLAIN)}:{count}" for each, count in counts)
    if scalar is not None:
        attributes["scalar"] = str(scalar)
    return {**attributes, "null": "true"} if null else attributes


def name_in(text: str) -> str:
    """The name of a process, encoded for an attribute."""
    return unquote(text)
