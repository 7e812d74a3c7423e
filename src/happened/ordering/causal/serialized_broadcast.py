"""Causal broadcast with one entry, where broadcasts are serialized (Kshemkalyani & Singhal 1998, §7.1).

Assumes    broadcasts are totally ordered by happened-before, say by mutual exclusion: who broadcasts has
           delivered (or made) the one before, or was told of it with the right to send (`follow`).
           Everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join.
Promises   causal order, which here is one order for all: each message names the one before it.
           A sender cannot tell whether the assumption holds. Where it does not, two broadcasts name the
           same one before them; everybody gets both and refuses the second, so no order is ever broken.
Leaves out the mutual exclusion itself; recovery once serialization is broken.
Invariant  that of its Chain. Our own broadcast is a link like any other and is passed in its turn, after
           what it follows: counted when it is sent, a message that follows it could be delivered before
           one that it follows.
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
    casts=frozenset({"broadcast"}),
    fifo_links=False,
    description="one entry; broadcasts must be serialized (a token, a lock): others are refused",
    paper="Kshemkalyani & Singhal, Distributed Computing 11(2), 1998, §7.1",
)


class SerializedBroadcast(NamedTuple):
    """M(sender, clock), the same for everybody."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    after: Link  # the broadcast before this one
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        """What the entry says of this message's destinations: a broadcast went to them too."""
        clock, sender = self.after
        return frozenset((sender, clock, d) for d in self.to if clock and d != sender)

    def size(self) -> tuple[int, int]:
        return int(self.after != NOTHING), len(self.units())

    def model_bytes(self) -> int:
        return 6 * self.size()[0]


class SerializedBroadcasts:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._latest = NOTHING  # the most recent broadcast known
        self._chain: Chain[SerializedBroadcast] = Chain(n)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def latest(self) -> Link:
        """The most recent broadcast known here: what to hand over with the right to send."""
        return self._latest

    def follow(self, latest: Link) -> None:
        """We have the right to send, and this was the broadcast before."""
        clock, sender = latest
        if clock < 0 or not 0 <= sender < self.n:
            raise LocalProtocolError(f"{latest!r} does not name a broadcast")
        self._latest = max(self._latest, latest)

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.broadcast(to, payload)
        unknown = self._chain.newest()
        if unknown > self._latest:
            raise LocalProtocolError(f"M({unknown[1]}, {unknown[0]}) was broadcast before: not serialized")
        clock = self._process.next_clock(after=self._latest[0])
        message = SerializedBroadcast(self.me, clock, self.n, dests, self._latest, payload)
        self._latest = link_of(message)
        effects: list[Effect] = [Send(d, message) for d in unpack(dests)]
        if self._stays_out(message):
            self._chain.add(message, message.after, self._process.events)
            effects += self._deliveries()
        return effects

    def receive(self, message: SerializedBroadcast) -> list[Effect]:
        self._process.check(message, SerializedBroadcast)
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        duplicate = self._chain.is_duplicate(message, message.after)
        if not duplicate:
            self._chain.check(message, message.after)
            if message.after < self._latest < link_of(message):
                clock, sender = self._latest
                raise refusal(message, f"does not know M({sender}, {clock}): not serialized")
        since = self._process.arrival()
        if duplicate:
            return []
        self._chain.add(message, message.after, since)
        return self._deliveries()

    def pending(self) -> list[Held]:
        out = {link_of(message): after for after, message, _ in self._chain if self._stays_out(message)}
        held = []
        for after, message, since in self._chain:
            if self._stays_out(message):
                continue
            while after in out:  # our own that does not come back waits too, for what it follows
                after = out[after]
            held.append(Held(message, ((after[1], after[0]),), since))
        return held

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        raise LocalProtocolError(f"the group of {self.n} is fixed: process {process} cannot join it")

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _stays_out(self, message: SerializedBroadcast) -> bool:
        """Whether it is ours and not to ourselves: a link to pass, nothing to deliver."""
        return not message.dests >> self.me & 1

    def _deliveries(self) -> list[Effect]:
        effects: list[Effect] = []
        for message in self._chain.passed():
            self._latest = max(self._latest, link_of(message))
            if not self._stays_out(message):
                effects.append(self._process.delivery(message))
        return effects

    def snapshot(self) -> bytes:
        return seal(
            "serialized-broadcast",
            process=self._process.state(),
            latest=self._latest,
            chain=self._chain.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("serialized-broadcast", data) as state:
            process, latest = Process.from_state(state["process"]), state["latest"]
            last, passed, waiting = state["chain"]
            held = [(after, SerializedBroadcast(*fields), since) for after, fields, since in waiting]
        self._process, self._latest = process, latest
        self._chain.restore(last, passed, held)
