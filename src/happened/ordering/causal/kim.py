"""Causal broadcast with direct predecessors only, after Kim & Kim (ICOIN 10, 1996).

Assumes    everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. The group is fixed: processes may leave, none can join.
Promises   causal order; a message names its direct predecessors among the broadcasts and no other.
Leaves out any order between concurrent messages; multicasts to some.
Invariant  `_direct` names the broadcasts in our causal past that no other broadcast in it follows, at most
           one of each sender. What they follow is delivered before them, everywhere, so waiting for them
           is waiting for everything.

The paper is known to us by description only (Kshemkalyani & Singhal 1998, §1, "Previous work"), which says
that it tracks some indirect predecessors too. When all messages go to all, a delivered message comes after
all it follows, so taking its predecessors out of the set leaves no indirect one: this is the tighter form.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Send
from ...core.errors import LocalProtocolError
from ...core.lanes import lanes
from ..machine import Effect, Facts, Held, Unit
from ..parking import Parking, Want
from ..process import Process, refusal
from ..snapshots import opened, seal
from .group_vector import GroupVector

FACTS = Facts(
    order="causal",
    casts=frozenset({"broadcast"}),
    fifo_links=False,
    description="broadcast to a fixed group: direct predecessors only",
    paper="Kim & Kim, International Conference on Information Networking 10, 1996",
)


class KimMessage(NamedTuple):
    """M(sender, clock), the same for everybody."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    direct: int  # lanes: its direct predecessors, by sender
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        """What an entry says of this message's destinations: a broadcast went to them too."""
        direct = lanes(self.n).items(self.direct)
        return frozenset((s, t, d) for s, t in direct for d in self.to if d != s)

    def size(self) -> tuple[int, int]:
        return lanes(self.n).occupied(self.direct), len(self.units())

    def model_bytes(self) -> int:
        return 6 * lanes(self.n).occupied(self.direct)


class KimKim:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._lanes = lanes(n)
        self._direct = 0  # lanes
        self._vector = GroupVector(me, n)
        self._parking: Parking[KimMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.broadcast(to, payload)
        clock = self._process.next_clock()
        message = KimMessage(self.me, clock, self.n, dests, self._direct, payload)
        self._direct = self._lanes.put(0, self.me, clock)
        self._vector.send(clock, to_me=bool(dests >> self.me & 1))
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: KimMessage) -> list[Effect]:
        self._process.check(message, KimMessage)
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        self._process.check_known(message, self._lanes.get(message.direct, self.me))
        if not self._vector.is_expected(message.sender, message.clock):
            raise refusal(message, "claims to be ours, and we never sent it to ourselves")
        since = self._process.arrival()
        if message.clock <= self._vector.progress(message.sender) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._learn(ready)
            self._parking.reached(ready.sender, self._vector.progress(ready.sender))
            effects.append(self._process.delivery(ready))
        return effects

    def pending(self) -> list[Held]:
        return self._parking.pending(lambda message: self._vector.missing(message.direct))

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        raise LocalProtocolError(f"kim has a fixed group of {self.n}: process {process} cannot join it")

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _lacks(self, message: KimMessage) -> Want | None:
        return self._vector.lacks(message.direct)

    def _learn(self, message: KimMessage) -> None:
        self._vector.deliver(message.sender, message.clock)
        if message.sender != self.me:  # our own was known when we sent it
            left = self._lanes.newer(self._direct, message.direct)
            self._direct = self._lanes.put(left, message.sender, message.clock)

    def snapshot(self) -> bytes:
        return seal(
            "kim",
            process=self._process.state(),
            direct=self._direct,
            vector=self._vector.state(),
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("kim", data) as state:
            process = Process.from_state(state["process"])
            direct, vector = state["direct"], GroupVector.from_state(process.me, process.n, state["vector"])
            held = [(KimMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._direct, self._vector = process, direct, vector
        self._lanes = lanes(process.n)
        self._parking.refill(held)
