"""Causal multicast with an entry per destination, for serialized sends (Kshemkalyani & Singhal 1998, §7.1).

Assumes    sends are totally ordered by happened-before, say by mutual exclusion: who sends has in its
           causal past every send before, by deliveries or told with the right to send (`follow`).
           Reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   causal order for multicasts to arbitrary sets, oneself included: each message names, for each
           destination, the one before it there.
           A sender cannot tell whether the assumption holds. Of two sends that break it neither knows the
           other, and who knows of one refuses the other.
Leaves out the mutual exclusion itself; recovery once serialization is broken.
Invariant  that of its Chain; `_latest` maps a destination to the most recent message to it in our causal
           past.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ..machine import Effect, Facts, Held, Unit
from ..process import Process, refusal
from ..snapshots import opened, seal
from .chain import NOTHING, Chain, Link, link_of

FACTS = Facts(
    order="causal",
    casts=frozenset({"unicast", "broadcast", "multicast"}),
    fifo_links=False,
    description="an entry per destination; sends must be serialized (a token, a lock): others are refused",
    paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
)

Table = tuple[tuple[int, Link], ...]
"""Destinations in order, each with the most recent message to it; those without one are left out."""


class SerializedMulticast(NamedTuple):
    """M(sender, clock), the same for all its destinations."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    latest: Table  # before this message
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def after(self, process: int) -> Link:
        """The message before this one at a process."""
        return next((link for d, link in self.latest if d == process), NOTHING)

    def units(self) -> frozenset[Unit]:
        return frozenset((sender, clock, d) for d, (clock, sender) in self.latest)

    def size(self) -> tuple[int, int]:
        """An entry names one message and one destination."""
        return len(self.latest), len(self.latest)

    def model_bytes(self) -> int:
        return (4 + 2 + 2) * len(self.latest)


class SerializedMulticasts:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._latest: dict[int, Link] = {}
        self._chain: Chain[SerializedMulticast] = Chain(n)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def latest(self) -> Table:
        """The most recent message to each destination: what to hand over with the right to send."""
        return tuple(sorted(self._latest.items()))

    def follow(self, latest: Table) -> None:
        """We have the right to send, and these were the last messages to each destination."""
        for d, (clock, sender) in latest:
            if clock < 1 or not 0 <= sender < self.n or not 0 <= d < self.n:
                raise LocalProtocolError(f"{latest!r} does not name messages and destinations")
        self._learn(dict(latest))

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.destinations(to, payload)
        unknown = self._chain.newest()
        if unknown > self._latest.get(self.me, NOTHING):
            raise LocalProtocolError(f"M({unknown[1]}, {unknown[0]}) was sent before: not serialized")
        clock = self._process.next_clock(after=self._newest()[0])
        message = SerializedMulticast(self.me, clock, self.n, dests, self.latest, payload)
        self._latest |= dict.fromkeys(unpack(dests), link_of(message))
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: SerializedMulticast) -> list[Effect]:
        self._process.check(message, SerializedMulticast)
        after = message.after(self.me)
        duplicate = self._chain.is_duplicate(message, after)
        if not duplicate:
            self._chain.check(message, after)
            self._check_serialized(message)
        since = self._process.arrival()
        if duplicate:
            return []
        self._chain.add(message, after, since)
        effects: list[Effect] = []
        for ready in self._chain.passed():
            self._learn(dict(ready.latest) | dict.fromkeys(unpack(ready.dests), link_of(ready)))
            effects.append(self._process.delivery(ready))
        return effects

    def pending(self) -> list[Held]:
        return [Held(message, ((sender, clock),), since) for (clock, sender), message, since in self._chain]

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)
        self._chain.join()

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _newest(self) -> Link:
        return max(self._latest.values(), default=NOTHING)

    def _check_serialized(self, message: SerializedMulticast) -> None:
        """Of two serialized sends the later knows the earlier: this message and what we know must agree."""
        link, known = link_of(message), dict(message.latest)
        if max(known.values(), default=NOTHING)[0] >= message.clock:
            raise refusal(message, "is not later than the messages it follows")
        for d, ours in self._latest.items():
            if known.get(d, NOTHING) < ours and ours[0] <= message.clock and ours != link:
                raise refusal(message, f"does not know M({ours[1]}, {ours[0]}): not serialized")
        if self._newest() > link and any(self._latest.get(d, NOTHING) < link for d in message.to):
            raise refusal(message, "was not known to a later message that we know: not serialized")

    def _learn(self, latest: dict[int, Link]) -> None:
        for d, link in latest.items():
            self._latest[d] = max(self._latest.get(d, NOTHING), link)

    def snapshot(self) -> bytes:
        return seal(
            "serialized-multicast",
            process=self._process.state(),
            latest=self.latest,
            chain=self._chain.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("serialized-multicast", data) as state:
            process, latest = Process.from_state(state["process"]), dict(state["latest"])
            last, passed, waiting = state["chain"]
            held = [(after, SerializedMulticast(*fields), since) for after, fields, since in waiting]
        self._process, self._latest = process, latest
        self._chain.restore(last, passed, held)
