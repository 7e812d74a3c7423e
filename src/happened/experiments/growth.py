"""How control information grows with a system that is built of zones.

In    n processes in zones of `size`, joined in levels: the first process of each zone is its gateway, and
      `size` gateways form a zone of the next level, whose first member is its gateway. Each process sends to
      one other, 9 times in 10 of its own zone (`clusters`), with the simulator's usual times.
Out   for each protocol and n the mean entries and units per hop, hops per application message, and entries
      per application message, over the messages of the second half of the run.

A protocol without zones needs one hop, so its means per hop and per message are equal. If the number of
processes alone decides what a message carries, as with the n² numbers of `rst`, nothing is simulated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from ..core.places import Branch, Place, Separator
from ..ordering import Facts, Relays, create, protocols
from ..sim.network import Network, parse_delay
from ..sim.simulation import Simulation
from ..sim.workload import Workload
from .runs import Progress, run_to_the_end

DELAY = "exp:0.1"


def has_zones(facts: Facts) -> bool:
    """Whether messages of a protocol go through zones, from one router or gateway to the next."""
    return facts.copies.relays is Relays.ROUTERS


class Growth(NamedTuple):
    protocol: str
    processes: int
    messages: int  # of the whole run; zero if computed by formula
    per_hop: float
    units_per_hop: float  # the (sender, clock, destination) that these entries stand for
    hops: float  # per application message
    largest: int  # entries of one hop

    @property
    def per_message(self) -> float:
        return self.per_hop * self.hops


def place(me: int, n: int, size: int) -> Place:
    """The place of a process in zones of this size, in as many levels as n needs."""
    branches: list[Branch] = []
    sides: list[int] = []
    everybody, unit, level = (1 << n) - 1, 1, 0
    while unit < n and me % unit == 0:
        head = me - me % (unit * size)
        members = range(head, min(head + unit * size, n), unit)
        below = {member: ((1 << unit) - 1 << member) & everybody for member in members}
        within = sum(below.values())
        below[head] |= everybody & ~within
        branches += [Branch(other, below[other], level) for other in members if other != me]
        sides.append(everybody & ~below[me])
        unit, level = unit * size, level + 1
    neighbours = sum(1 << branch.towards for branch in branches)
    separators = (Separator(1 << me, tuple(sides)),) if len(sides) > 1 else ()
    return Place(neighbours, tuple(branches), separators)


def measure(
    protocol: str,
    n: int,
    messages: int,
    *,
    size: int = 10,
    seed: int = 1,
    filtering: bool = True,
    progress: Progress = None,
) -> Growth:
    """Simulate a protocol. Without `filtering`, gateways are not separators, as if unused links led past all
    of them and only cuts of the whole graph counted."""
    if size < 2 or n < size or n % size:
        raise LocalProtocolError(f"{n} processes do not make zones of {size}")
    facts = protocols()[protocol]
    if facts.promises.entries is not None:
        entries = facts.promises.entries(n)
        return Growth(protocol, n, 0, entries, entries, 1.0, entries)
    if messages < 2:
        raise LocalProtocolError(f"a run of {messages} messages has no second half to measure")

    def make(me: int, n: int) -> Any:
        if not has_zones(facts):
            return create(protocol, me, n)
        at = place(me, n, size)
        return create(protocol, me, n, place=at if filtering else at._replace(separators=()))

    sizes = _HopSizes(messages - messages // 2)
    simulation = Simulation(
        make,
        n,
        messages,
        seed=seed,
        workload=Workload(f"clusters:{n // size}"),
        network=Network(delay=parse_delay(DELAY)),
        control_sizes=sizes,
        progress=progress,
    )
    run_to_the_end(simulation)
    per_hop, units = sizes.entries / sizes.hops, sizes.units / sizes.hops
    return Growth(protocol, n, messages, per_hop, units, sizes.hops / (messages // 2), sizes.largest)


@dataclass(slots=True)
class _HopSizes:
    """Measures every hop message; replaces the function that tells the simulator encoded sizes."""

    to_skip: int  # messages
    skipped: set[tuple[int, int]] = field(default_factory=set)
    hops: int = 0
    entries: int = 0
    units: int = 0
    largest: int = 0

    def __call__(self, messages: Sequence[Any]) -> list[int]:
        for message in messages:
            name = (message.sender, message.clock)
            if len(self.skipped) < self.to_skip:
                self.skipped.add(name)
            elif name not in self.skipped:
                entries, units = message.size()
                self.hops += 1
                self.entries += entries
                self.units += units
                self.largest = max(self.largest, entries)
        return [0] * len(messages)


def mean_hops(n: int, size: int, local: float = 0.9) -> float:
    """The mean hops of a message that stays in its zone with probability `local`, and otherwise goes to any
    process outside, uniformly.

    size^(k+1) - size^k other processes share our zone at level k and no lower one. A message to them takes
    one hop there, and on either side one in each lower level whose gateway is another process: (size - 1) of
    size cases.
    """
    outside, hops, share = n - size, 0.0, (size - 1) / size
    if not outside:
        return 1.0
    unit, level = size, 1
    while unit < n:
        hops += (min(unit * size, n) - unit) / outside * (1 + 2 * share * level)
        unit, level = unit * size, level + 1
    return local + (1 - local) * hops
