"""What a multicast of an incomplete order takes beside destinations and a payload: a label, a priority or a
history (ordering/causal/incomplete), as keywords, in the journal and in the trace.

In the trace such a message is sent `unordered`, since none of the complete orders is promised of it.
Attributes of its send say what is: {"label": …}, {"priority": …}, or {"after": …} with the names of the
messages in its history.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import LocalProtocolError
from ..ordering import Facts, incomplete
from ..ordering.causal.incomplete import CausalHistory
from ..ordering.causal.incomplete.managed import Preceding

How = Mapping[str, Any]
"""Keywords of a machine's `multicast`."""

PLAIN: How = {}


def keywords(facts: Facts, **given: Any) -> How:
    """Those of these that are not None; refused if the protocol takes them not."""
    how = {name: value for name, value in given.items() if value is not None}
    for name in how:
        if name != facts.qualifier.keyword:
            able = ", ".join(
                sorted(each.name for each in incomplete().values() if each.qualifier.keyword == name)
            )
            raise LocalProtocolError(f"{facts.name} takes no `{name}`; that is for {able}")
    history = how.get("after")
    if history is not None and not isinstance(history, CausalHistory):
        raise LocalProtocolError(f"`after` is a history, as of a message, not {type(history).__name__}")
    return how


def to_bytes(dests: int, how: How) -> bytes:
    """For the journal: the destinations and the keywords."""
    said = {name: history_to_json(value) if name == "after" else value for name, value in how.items()}
    return json.dumps([hex(dests), said], separators=(",", ":")).encode()


def from_bytes(data: bytes) -> tuple[int, How]:
    dests, said = json.loads(data)
    how = {name: history_from_json(value) if name == "after" else value for name, value in said.items()}
    return int(dests, 16), how


def history_to_json(history: CausalHistory) -> list[Any]:
    return [[c.sender, c.clock, hex(c.dests), hex(c.told), c.priority] for c in history]


def history_from_json(said: list[Any]) -> CausalHistory:
    return CausalHistory(Preceding(s, c, int(dests, 16), int(told, 16), p) for s, c, dests, told, p in said)


def attributes(facts: Facts, how: How, names: Callable[[int], str]) -> dict[str, str]:
    """What a trace says of a message that was sent so."""
    value = how.get(facts.qualifier.keyword)
    if facts.qualifier.keyword == "after":
        told = " ".join(f"{names(cause.sender)}:{cause.clock}" for cause in value or ())
        return {"after": told}
    return {facts.qualifier.keyword: str(value if value is not None else facts.qualifier.usual)}
