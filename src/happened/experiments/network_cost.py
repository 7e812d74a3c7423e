"""What protocols would carry over a network, keep and delay, for random traffic or for a recorded trace.

In    a terrain; a workload and delays, or recorded computations.
Out   one Cost for the optimal protocol, which sends directly, and one for each protocol that relays.

Control information is counted on every link that it crosses: a message sent directly carries the same bytes
over all links of its route, a relayed message carries what each hop needs. *Kept* is what a process remembers
about messages that may not have been delivered everywhere, measured after each of its events.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..ordering import DEFAULT, having, protocols
from ..ordering.capabilities import KeepsLog
from ..sim.automaton import Factory
from ..sim.ledger import Ledger, Transmission
from ..sim.network import Network
from ..sim.simulation import Simulation
from ..sim.terrain import Terrain, relays
from ..sim.workload import Workload
from .replay import Recording, Replay
from .runs import Progress, Watched, run_to_the_end


class Cost(NamedTuple):
    protocol: str
    messages: int
    deliveries: int
    crossings: float  # links crossed per message, all its copies together
    entries: float  # per link crossed
    control_bytes: float  # per link crossed, as encoded
    kept: float | None  # units, after each event of a process with an application; None if it is not known
    kept_by_routers: float | None  # units, after each event of a process without an application
    delay: float | None  # seconds per delivery beyond the earliest possible; None if no times are known

    @property
    def bytes_per_message(self) -> float:
        return self.control_bytes * self.crossings


def candidates() -> tuple[str, ...]:
    """The names of the optimal protocol, which does not relay, and of the protocols that relay."""
    return (DEFAULT, *(name for name in protocols() if relays(name)))


def simulated(
    protocol: str,
    terrain: Terrain,
    messages: int,
    *,
    seed: int,
    workload: Workload,
    network: Network,
    progress: Progress = None,
) -> Cost:
    keepers, ledger = _Keepers(terrain.factory(protocol)), _Crossings(terrain)
    simulation = Simulation(
        keepers,
        terrain.processes(protocol),
        messages,
        seed=seed,
        workload=workload,
        network=network,
        terrain=terrain,
        ledger=ledger,
        progress=progress,
    )
    run_to_the_end(simulation)
    totals = ledger.totals()
    counted = ledger.crossed + Counter(messages=messages, deliveries=totals["deliveries"])
    return _cost(protocol, terrain, counted, keepers, totals["late"]["mean"])


def replayed(protocol: str, terrain: Terrain, recorded: Iterable[Recording]) -> Cost:
    """The cost on recorded computations; their processes must be numbered as in the terrain (`numbered`)."""
    keepers, tally = _Keepers(terrain.factory(protocol)), Counter[str]()
    for recording in recorded:
        if recording.computation.slot_dest.size:
            tally.update(Replay(protocol, recording, terrain, keepers).run())
    delay = tally["late_ns"] / tally["timed"] / 1e9 if tally["timed"] else None
    return _cost(protocol, terrain, tally, keepers, delay)


def _cost(
    protocol: str, terrain: Terrain, counted: Counter[str], keepers: "_Keepers", delay: float | None
) -> Cost:
    messages, crossings = max(counted["messages"], 1), max(counted["crossings"], 1)
    return Cost(
        protocol,
        counted["messages"],
        counted["deliveries"],
        counted["crossings"] / messages,
        counted["crossed_entries"] / crossings,
        counted["crossed_bytes"] / crossings,
        keepers.mean(lambda me: me < terrain.applications),
        keepers.mean(lambda me: me >= terrain.applications),
        delay,
    )


class _Crossings(Ledger):
    """A ledger that counts what transmissions carry on each link."""

    def __init__(self, terrain: Terrain) -> None:
        super().__init__()
        self._terrain = terrain
        self.crossed: Counter[str] = Counter()

    def transmission(self, made: Transmission) -> None:
        super().transmission(made)
        links = self._terrain.links(made.sender, made.to)
        self.crossed["crossings"] += links
        self.crossed["crossed_entries"] += links * made.entries
        self.crossed["crossed_bytes"] += links * made.control_bytes


class _Keepers:
    """Makes machines, and measures how much they keep."""

    def __init__(self, make: Factory) -> None:
        self._make = make
        self._kept: Counter[int] = Counter()  # by process: units, summed over its events
        self._events: Counter[int] = Counter()

    def __call__(self, me: int, n: int) -> Any:
        machine = self._make(me, n)
        log = having(machine, KeepsLog)

        def look(name: str, before: int) -> None:
            if log is not None:
                self._kept[me] += log.log_size()[1]
                self._events[me] += 1

        return Watched(machine, int, look)

    def mean(self, wanted: Callable[[int], bool]) -> float | None:
        events = sum(count for me, count in self._events.items() if wanted(me))
        return sum(kept for me, kept in self._kept.items() if wanted(me)) / events if events else None
