"""Causal broadcast with vector clocks, after Birman, Schiper & Stephenson (ACM TOCS 9(3), 1991).

Assumes    everybody present is addressed, with or without the sender; reliable links, FIFO or not, that
           may duplicate. Processes may leave; none can join, since it would wait for broadcasts that were
           made before it and never come.
Promises   causal order.
Leaves out any order between concurrent messages; multicasts to some; the view changes that joins need.
Invariant  that of its GroupVector: a message carries the last broadcast of everyone that its sender knew,
           and is delivered once all of those are.

The paper counts broadcasts; here the last one of each sender is named by its clock, so that a clock may
also tick on its own and a held message can say what it waits for.
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
    description="broadcast to a fixed group: one vector clock",
    paper="Birman, Schiper & Stephenson, ACM TOCS 9(3), 1991",
)


class BssMessage(NamedTuple):
    """M(sender, clock), the same for everybody."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    past: int  # lanes: the last broadcast of each process before this one
    payload: bytes

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    def units(self) -> frozenset[Unit]:
        """What an entry says of this message's destinations: a broadcast went to them too."""
        past = lanes(self.n).items(self.past)
        return frozenset((s, t, d) for s, t in past for d in self.to if d != s)

    def size(self) -> tuple[int, int]:
        """The whole vector."""
        return self.n, len(self.units())

    def model_bytes(self) -> int:
        return 4 * self.n


class BirmanSchiperStephenson:
    """One process of the protocol."""

    def __init__(self, me: int, n: int) -> None:
        self._process = Process(me, n)
        self._vector = GroupVector(me, n)
        self._parking: Parking[BssMessage] = Parking(self._lacks)

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    def multicast(self, to: Iterable[int], payload: bytes) -> list[Effect]:
        dests = self._process.broadcast(to, payload)
        clock = self._process.next_clock()
        message = BssMessage(self.me, clock, self.n, dests, self._vector.known, payload)
        self._vector.send(clock, to_me=bool(dests >> self.me & 1))
        return [Send(d, message) for d in unpack(dests)]

    def receive(self, message: BssMessage) -> list[Effect]:
        self._process.check(message, BssMessage)
        if message.n != self.n:
            raise refusal(message, f"comes from a group of {message.n} and ours has {self.n}")
        self._process.check_known(message, lanes(self.n).get(message.past, self.me))
        if not self._vector.is_expected(message.sender, message.clock):
            raise refusal(message, "claims to be ours, and we never sent it to ourselves")
        since = self._process.arrival()
        if message.clock <= self._vector.progress(message.sender) or message in self._parking:
            return []  # a duplicate made by the network
        effects: list[Effect] = []
        for ready in self._parking.admit(message, since):
            self._vector.deliver(ready.sender, ready.clock)
            self._parking.reached(ready.sender, self._vector.progress(ready.sender))
            effects.append(self._process.delivery(ready))
        return effects

    def pending(self) -> list[Held]:
        return self._parking.pending(lambda message: self._vector.missing(message.past))

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        raise LocalProtocolError(f"bss has a fixed group of {self.n}: process {process} cannot join it")

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def _lacks(self, message: BssMessage) -> Want | None:
        return self._vector.lacks(message.past)

    def snapshot(self) -> bytes:
        return seal(
            "bss",
            process=self._process.state(),
            vector=self._vector.state(),
            held=self._parking.state(),
        )

    def restore(self, data: bytes) -> None:
        with opened("bss", data) as state:
            process = Process.from_state(state["process"])
            vector = GroupVector.from_state(process.me, process.n, state["vector"])
            held = [(BssMessage(*fields), since) for *fields, since in state["held"]]
        self._process, self._vector = process, vector
        self._parking.refill(held)
