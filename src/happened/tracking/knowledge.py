"""A vector that only grows, with a record of which process knows which entry: for P1, P2 and P3-reduced.

The record is the boolean matrix M_i of Hélary, Melideo & Raynal (2000), kept by columns: lane k of `lacking`
is the set of processes l with M_i[l, k] = 0, which may lack the present value of entry k. A message to l
carries exactly the entries whose column contains l.

Assumes    values of an entry are totally ordered and merged by maximum, whatever they mean.
Invariant  if l is not in column k, then l has had our present value of entry k, or a newer one, in its causal
           past at some event of *ours*: so it still has. The converse need not hold; where it fails, messages
           carry extra entries but stay exact. Our own bit is never set.
FIFO       `sent` holds, in the same form, the processes to which the present value is already in transit. It
           is kept apart from `lacking`, because third parties must not learn of values in transit: if columns
           told them that l knows what is still in transit to l, entries would be lost.
Cost       each step is a fixed number of operations on integers of n lanes, however many entries it carries.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ..core.errors import RemoteProtocolError
from ..core.lanes import lanes
from . import refusals
from .piggyback import Piggyback, PiggybackEntry, View, decode
from .tracker import Protocols, State, TrackerFacts, TrackerMachine, entries_of


class Knowledge(TrackerMachine):
    """A tracker whose messages carry the entries that their receiver may lack.

    With `owners_know`, process k always has the newest value of entry k, so that M[k, k] = 1. Without it, k
    itself creates the odd values of entry k, and other processes create the even ones.
    """

    title: ClassVar[str] = "VC"

    def __init__(
        self,
        name: str,
        me: int,
        n: int,
        *,
        primed: bool,
        fifo: bool,
        owners_know: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(name + "-prime" * primed + "-fifo" * fifo, me, n, **options)
        self._primed = primed
        self._fifo = fifo
        self._owners_know = owners_know
        self._size()
        self.vector = 0
        self.lacking = 0
        self.sent = 0

    def _size(self) -> None:
        me, n = self.me, self.n
        self._geometry = geometry = lanes(n)
        self._everyone_else = geometry.members ^ 1 << me
        self._owners = sum(1 << geometry.width * k + k for k in range(n))  # lane k: the set {k}
        # Columns of a new value: all others may lack it, except its owner if owners always know.
        self._fresh = geometry.ones * self._everyone_else & ~(self._owners if self._owners_know else 0)
        self._guards, self._ones, self._shift = geometry.guards, geometry.ones, geometry.shift
        self._own_guard = 1 << geometry.width * me + geometry.shift
        self._own_bits = geometry.ones << me

    def join(self, process: int) -> None:
        """Add a process, which may lack every present value and has created none itself."""
        before = self._geometry
        super().join(process)
        self._size()
        self.vector, self.lacking, self.sent = (
            before.widened(each, self.n) for each in (self.vector, self.lacking, self.sent)
        )
        made = (self._guards ^ self._geometry.at_least(0, self.vector)) >> self._shift
        self.lacking |= made << process

    def own(self) -> int:
        return self._geometry.get(self.vector, self.me)

    def set_own(self, value: int) -> None:
        """Give entry `me` a value that no other process can know."""
        self.vector = self._geometry.put(self.vector, self.me, value)

    def everyone_lacks_own(self) -> None:
        place = self._geometry.width * self.me
        self.lacking |= self._everyone_else << place
        if self._fifo:
            self.sent &= ~(self._geometry.value << place)

    def everyone_lacks_only_own(self) -> None:
        self.lacking = 0
        self.everyone_lacks_own()

    def raise_entries(self, lowest: int) -> None:
        """Raise the entries of these lanes (bit 0 of each) by one; no other process knows the new values."""
        mask = (lowest << self._geometry.shift) - lowest
        self.vector += lowest
        self.lacking = self.lacking & ~mask | self._geometry.ones * self._everyone_else & mask
        self.sent &= ~mask

    def due(self, to: int) -> int:
        """The entries that a message to `to` must carry (rule R2), as bit 0 of their lanes."""
        lacking = self.lacking
        if self._fifo:
            lacking ^= lacking & self.sent
        return lacking >> to & self._ones

    # `on_send` and `on_receive` are a tracker's inner loop: for valid input they call no other function.

    def on_send(self, to: int) -> Piggyback:
        if to == self.me or not 0 <= to < self.n:
            refusals.peer(to, self.me, self.n)
        lacking = self.lacking
        if self._fifo:
            lacking ^= lacking & self.sent
        due = lacking >> to & self._ones
        if self._fifo:
            self.sent |= due << to
        mask = (due << self._shift) - due
        columns = self.lacking & mask if self._primed else None
        return Piggyback(self._geometry, due, self.vector & mask, columns)

    def on_receive(self, sender: int, piggyback: Any) -> None:
        """Merge a piggyback by rule R3, or by R3′ if it has columns."""
        if (
            type(piggyback) is not Piggyback
            or piggyback.geometry is not self._geometry
            or (piggyback.columns is None) is self._primed
            or sender == self.me
            or not 0 <= sender < self.n
        ):
            refusals.arrival(sender, piggyback, self.me, self._geometry, self._primed)
        values: int = piggyback.values
        theirs: int | None = piggyback.columns
        guards, shift = self._guards, self._shift
        vector, lacking = self.vector, self.lacking
        newer = ((vector | guards) - values & guards) ^ guards
        if newer:
            if theirs is not None and theirs >> sender & self._ones:
                raise RemoteProtocolError(f"the columns from {sender} say that it lacks its own values")
            if newer & self._own_guard:
                # Unless owners know, another process may have given our event (odd) a successor (even).
                refusals.own_value(self._geometry.get(values, self.me), self._largest_own())
            lowest = newer >> shift
            mask = newer - lowest
            self.vector = vector = vector ^ (vector ^ values) & mask
            lacking ^= (lacking ^ (self._fresh if theirs is None else theirs)) & mask
            if theirs is None and not self._owners_know and (odd := values & lowest):
                lacking ^= lacking & (odd << shift) - odd & self._owners
            if self._fifo:
                self.sent ^= self.sent & mask
        # Entries whose value the sender has too, adopted ones included. Where neither side has a value, no
        # column has a member.
        same = (values | guards) - vector & guards
        lacking ^= lacking & same >> shift - sender
        if theirs is not None:
            mask = same - (same >> shift)
            lacking ^= lacking & (mask ^ mask & theirs | self._own_bits)
        self.lacking = lacking

    def _largest_own(self) -> int:
        own = self.own()
        return own if self._owners_know else own + (own & 1)

    def known_to(self) -> tuple[tuple[int, ...], ...]:
        """The rows of M: row l has 1 in place k if l is known to have the present value of entry k."""
        columns = self._geometry.unpack(self.lacking)
        return tuple(tuple(1 - (column >> j & 1) for column in columns) for j in range(self.n))

    def sent_to(self) -> tuple[tuple[int, ...], ...] | None:
        """Rows as in `known_to`, of values in transit (`sent`); None without FIFO links."""
        columns = self._geometry.unpack(self.sent)
        rows = tuple(tuple(column >> j & 1 for column in columns) for j in range(self.n))
        return rows if self._fifo else None

    def decode(self, data: bytes, n: int | None = None) -> Any:
        return decode(data, self._geometry, columns=self._primed, n=n)

    def read(self, values: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """The meaning of a vector's or piggyback's values: counts, and the bits IP if it has them."""
        return tuple(self._geometry.unpack(values)), None

    def view(self) -> View:
        return View(self.title, *self.read(self.vector), self.known_to(), self.sent_to())

    def carried(self, piggyback: Piggyback) -> list[PiggybackEntry]:
        return entries_of(piggyback, *self.read(piggyback.values))

    def save(self) -> State:
        geometry = self._geometry
        return {
            "vector": geometry.unpack(self.vector),
            "lacking": refusals.sets_to_json(self.lacking, geometry),
            "sent": refusals.sets_to_json(self.sent, geometry),
        }

    def load(self, state: State) -> None:
        geometry = self._geometry
        vector = refusals.numbers(state["vector"], geometry)
        lacking = refusals.sets(state["lacking"], geometry)
        sent = refusals.sets(state["sent"], geometry)
        if lacking >> self.me & geometry.ones:
            raise ValueError("a process lacks nothing of its own vector")
        self.vector, self.lacking, self.sent = vector, lacking, sent


def forms(
    machine: Callable[..., TrackerMachine],
    numbers: tuple[int, int, int, int],
    name: str,
    tells: frozenset[str],
    bound: str,
    description: str,
    paper: str,
) -> Protocols:
    """Four forms of a protocol: plain, `primed` (with columns of the matrix), `fifo` (FIFO links), both."""

    def form(number: int, ending: str, description: str, **options: bool) -> Any:
        facts = TrackerFacts(
            name + ending, tells, options.get("fifo", False), bound, description, paper, number
        )
        return facts, partial(machine, **options)

    plain, primed, fifo, both = numbers
    return (
        form(plain, "", description),
        form(primed, "-prime", f"{name} that also tells who knows what", primed=True),
        form(fifo, "-fifo", f"{name} without what is on its way", fifo=True),
        form(both, "-prime-fifo", f"{name}-prime without what is on its way", primed=True, fifo=True),
    )
