"""The layer of incomplete orders. A multicast of theirs takes a label, a priority or a history beside its
destinations and its payload (ordering/causal/incomplete.py): as keywords, in the journal and in the trace.

In the trace such a message is sent `unordered`, since none of the complete orders is promised of it.
Attributes of its send say what is: {"label": …}, {"priority": …}, or {"after": …} with the names of the
messages in its history.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ..core.errors import LocalProtocolError
from ..ordering import Facts, Multicast, incomplete
from ..ordering.causal.incomplete import CausalHistory, Preceding
from .batch import Recorder
from .kernel import Kernel

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


class Qualified:
    """The layer of an incomplete order: what a multicast says besides is journaled in front of its payload,
    four bytes of length and JSON. `history` is that of our last multicast, if the application manages
    histories."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._machine = kernel, cast(Any, kernel.machine)
        self._keyword = kernel.facts.qualifier.keyword
        self._how = self._said = PLAIN  # of the next multicast, and of the last
        self.history: CausalHistory | None = None
        kernel.seals.append(self._seal)
        kernel.order = self._order
        kernel.record_sent = self._record_sent
        if self._keyword == "after":
            kernel.deliver = self._deliver

    def multicast(self, to: Sequence[int], payload: bytes, how: How) -> int:
        """Multicast a payload with a label, a priority or a history."""
        self._how = how
        try:
            return self._kernel.multicast(to, payload)
        finally:
            self._how = PLAIN

    def _seal(self, to: Sequence[int], payload: bytes) -> bytes:
        said = {name: history_to_json(each) if name == "after" else each for name, each in self._how.items()}
        head = json.dumps(said, separators=(",", ":")).encode()
        return len(head).to_bytes(4, "big") + head + payload

    def _order(self, to: Sequence[int], payload: bytes) -> Multicast:
        end = 4 + int.from_bytes(payload[:4], "big")
        said = json.loads(payload[4:end])
        self._said = {
            name: history_from_json(each) if name == "after" else each for name, each in said.items()
        }
        clock, effects = self._machine.multicast(to, payload[end:], **self._said)
        if self._keyword == "after":
            self.history = self._machine.history_of(self._kernel.me, clock)
        return Multicast(clock, effects)

    def _record_sent(
        self, recorder: Recorder, clock: int, dests: int, effects: Sequence[Any], frames: list[bytes]
    ) -> None:
        kernel = self._kernel
        told = attributes(kernel.facts, self._said, kernel.roster.name)
        recorder.sent_unordered(kernel.events, kernel.time, clock, dests, told)

    def _deliver(self, sender: int, clock: int, payload: bytes) -> None:
        history = json.dumps(history_to_json(self._machine.history_of(sender, clock)))
        self._kernel.hand_over(sender, clock, payload, history)


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
