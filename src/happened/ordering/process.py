"""What all machines share, whatever their protocol: a process with a clock, the processes that it may
address, and a state that can be saved.

A protocol adds `multicast` and `receive`, and declares the attributes to be saved (snapshots.py), or has a
`save` and a `load` of its own. Checks that all protocols share are here, so that their errors read the same.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from ..core.destinations import pack, unpack
from ..core.effects import Deliver, Send
from ..core.errors import LocalProtocolError, RemoteProtocolError
from ..core.lanes import CLOCK_LIMIT
from . import explaining
from .facts import Facts
from .machine import Effect, Held, Multicast
from .snapshots import Keeper, opened, seal

State = dict[str, Any]
"""Values by name that `snapshots` can write."""


class Process(Keeper):
    facts: ClassVar[Facts]

    def __init__(self, me: int, n: int) -> None:
        if type(me) is not int or type(n) is not int:
            raise LocalProtocolError(f"processes are numbered from 0 and not named, unlike {me!r} of {n!r}")
        if not 0 <= me < n:
            raise LocalProtocolError(f"process {me} is not among {n} processes numbered from 0")
        self.me = me
        self.n = n
        self.gone = 0  # bit set: departed processes whose index has not been reused
        self.forgotten = 0  # bit set: the members of `gone` whose index may be reused
        self.clock = 0
        self.events = 0  # local events so far, numbered as machine.py says
        self._begin(n)

    def __repr__(self) -> str:
        told = [f"process {self.me} of {self.n}", f"clock {self.clock}"]
        told += [f"{title} {text}" for title, text in explaining.knowledge(self)]
        told += [f"holds {each}" for each in explaining.holds(self)]
        return f"<{self.facts.name}: {'; '.join(told)}>"

    @property
    def present(self) -> int:
        """The set of processes that have not left, ourselves included."""
        return ((1 << self.n) - 1) & ~self.gone

    @property
    def others(self) -> int:
        """The set of present processes without ourselves."""
        return self.present & ~(1 << self.me)

    @property
    def coming_clock(self) -> int:
        return self.clock + 1

    @property
    def queued(self) -> int:
        return 0

    @property
    def kept_bytes(self) -> int:
        return 0

    def pending(self) -> list[Held]:
        return []

    @property
    def pending_count(self) -> int:
        return len(self.pending())

    @property
    def pending_bytes(self) -> int:
        return sum(len(held.message.payload) for held in self.pending())

    # Membership.

    def join(self, process: int) -> list[Effect]:
        if not self.facts.membership.joins:
            raise LocalProtocolError(
                f"{self.facts.name} has a fixed group of {self.n}, which process {process} cannot join: "
                "start anew with all processes"
            )
        if 0 <= process < self.n and self.forgotten >> process & 1:
            self.gone &= ~(1 << process)
            self.forgotten &= ~(1 << process)
        elif process == self.n:
            self.n += 1
            self._grow(process, self.n)
        else:
            raise LocalProtocolError(f"the next process to join has index {self.n}, not {process}")
        return []

    def leave(self, process: int) -> list[Effect]:
        if not self.facts.membership.departures:
            raise LocalProtocolError(
                f"{self.facts.name} has a fixed group, which process {process} cannot leave: "
                "start anew without it"
            )
        if not 0 <= process < self.n or self.gone >> process & 1:
            raise LocalProtocolError(f"process {process} is not present and cannot leave")
        self.gone |= 1 << process
        return []

    def expel(self, process: int) -> list[Effect]:
        return [] if 0 <= process < self.n and self.gone >> process & 1 else self.leave(process)

    def close(self, process: int) -> list[Effect]:
        self._check_departed(process)
        return []

    def forget(self, process: int) -> None:
        self._check_departed(process)
        if self.facts.membership.recycles:
            self.forgotten |= 1 << process

    def _check_departed(self, process: int) -> None:
        if not 0 <= process < self.n or not self.gone >> process & 1:
            raise LocalProtocolError(f"process {process} has not left")

    # Events.

    def destinations(self, to: Iterable[int], payload: bytes) -> int:
        """The destinations of a multicast as a bit set, or an error; the event is not counted yet."""
        try:
            members = tuple(to)
        except TypeError:
            raise LocalProtocolError(f"destinations are a list, as in [{to!r}], not {to!r}") from None
        if not members:
            raise LocalProtocolError("a message needs at least one destination")
        if not isinstance(payload, bytes):
            raise LocalProtocolError(f"a payload is bytes, not {type(payload).__name__}")
        if min(members) >= 0 and max(members) < self.n:
            dests = pack(members)
            if not dests & self.gone:
                return dests
        member = next(m for m in members if not 0 <= m < self.n or self.gone >> m & 1)
        state = "has left" if 0 <= member < self.n else f"is not among {self.n} processes"
        raise LocalProtocolError(f"process {member} {state} and cannot be sent to")

    def everybody(self, to: Iterable[int], payload: bytes) -> int:
        """As `destinations`, for protocols that only send to all present processes, us included or not."""
        dests = self.destinations(to, payload)
        left_out = self.present & ~dests & ~(1 << self.me)
        if left_out:
            names = ", ".join(map(str, unpack(left_out)))
            raise LocalProtocolError(f"only broadcasts are ordered here; this one leaves out {names}")
        return dests

    def address(self, to: Iterable[int], payload: bytes) -> int:
        """The destinations of a multicast as a bit set; raises if the protocol does not allow them."""
        return self.destinations(to, payload)

    def stamp(self, clock: int, dests: int, payload: bytes) -> list[Effect]:
        """The effects that send the new message M(me, clock)."""
        raise NotImplementedError("a protocol has `stamp`, or a `multicast` of its own")

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.address(to, payload)
        clock = self.next_clock()
        return Multicast(clock, self.stamp(clock, dests, payload))

    @abstractmethod
    def receive(self, message: Any) -> list[Any]: ...

    def tick(self) -> int:
        return self.next_clock()

    def next_clock(self, after: int = 0) -> int:
        """The clock of a new event; it is also larger than `after`."""
        clock = (self.clock if self.clock >= after else after) + 1
        if clock >= CLOCK_LIMIT:
            raise LocalProtocolError("the clock has reached its limit of 2^63 events")
        self.clock = clock
        self.events += 1
        return clock

    def arrival(self) -> int:
        """Count the arrival of a message as a local event; returns the number of that event."""
        self.events += 1
        return self.events

    def delivery(self, message: Any) -> Deliver:
        self.events += 1
        return Deliver(message.sender, message.clock, message.payload)

    def to_each(self, message: Any, dests: int) -> list[Effect]:
        return [Send(d, message) for d in unpack(dests)]

    def to_others(self, message: Any, dests: int) -> list[Effect]:
        """Send the same message to each process in `dests`; if we are in the set, deliver it here at once."""
        effects = self.to_each(message, dests & ~(1 << self.me))
        return [*effects, self.delivery(message)] if dests >> self.me & 1 else effects

    # Refusals.

    def check(self, received: Any, kind: type) -> None:
        """Raise if no correct peer can have sent this message to us; the state is unchanged."""
        if not isinstance(received, kind):
            raise RemoteProtocolError(f"not a {kind.__name__}: {received!r:.100}")
        message: Any = received
        if message.n > self.n:
            why = f"comes from a system of {message.n} processes and we know {self.n}: "
            raise refusal(message, why + "join() the new ones, then receive it again")
        if not 0 <= message.sender < message.n or not 0 < message.clock < CLOCK_LIMIT:
            raise refusal(message, f"has no sender among {self.n} processes, or no clock")
        if not message.dests >> self.me & 1:
            raise refusal(message, f"is not addressed to process {self.me}")
        if message.receiver is not None and message.receiver != self.me:
            raise refusal(message, f"came in the copy made for process {message.receiver}")
        if message.sender == self.me and message.clock > self.clock:
            raise refusal(message, "claims to be ours, and we never sent it")

    def check_known(self, message: Any, clock: int) -> None:
        """Raise if a message depends on an event of ours at this clock that has not happened."""
        if clock > self.clock:
            raise refusal(message, "depends on a message we never sent")

    # Snapshots.

    def snapshot(self) -> bytes:
        identity = (self.me, self.n, self.gone, self.clock, self.events)
        return seal(self.facts.name, process=identity, **self._saved())

    def restore(self, data: bytes) -> None:
        before = dict(vars(self))  # `load` replaces these values and mutates none
        with opened(self.facts.name, data) as state:
            try:
                self.me, self.n, self.gone, self.clock, self.events = state["process"]
                if not 0 <= self.me < self.n:
                    raise LocalProtocolError(
                        f"process {self.me} is not among {self.n} processes numbered from 0"
                    )
                self._loaded(state)
            except BaseException:
                vars(self).clear()
                vars(self).update(before)
                raise

    def _saved(self) -> State:
        return self.save() | {"forgotten": self.forgotten}

    def _loaded(self, state: State) -> None:
        self.forgotten = state["forgotten"]
        self.load(state)


def refusal(message: Any, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"M({message.sender}, {message.clock}) {why}")
