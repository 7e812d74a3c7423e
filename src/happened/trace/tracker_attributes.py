"""What a tracker told of an event, as attributes of its row.

    tracker        the tracking protocol, as in `p2:4`
    relevant_seq   the number of the event among those its tracker numbered, from 1
    null           `true` for an event that the tracker made itself, which is not the application's
    vector         per process, how many numbered events are in the past, this one included: `alice:3 bob:1`
    dependencies   the same for a dependency vector, from which vectors can be rebuilt
    predecessors   the immediate predecessors, by process and number
    scalar         Lamport's scalar

Not in the column `clock`: that counts all events, and a tracker only those it numbers. Where a name has a
space, a colon or a percent sign, they are percent-encoded, as in a URL. What a tracker does not tell is left
out.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

NUMBER = "relevant_seq"
COUNTED = ("vector", "dependencies", "predecessors")
"""The attributes that are lists of processes with a number each."""

TOKEN = r"[^ :]+:[0-9]{1,18}"
LIST = rf"^({TOKEN}( {TOKEN})*)?$"
"""What such a list looks like, as a regular expression."""

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
    """The name of a process, as it stands in an attribute."""
    return unquote(text)
