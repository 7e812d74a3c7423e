"""A communication graph in the simulator, and how long messages take over its links.

Processes are indices; those with an application come first. A protocol that relays has a machine for every
process, and each hop is a transmission over one link. A protocol that does not relay has machines only for
the applications; its messages cross the links of the same route unchanged.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random

from ..core.errors import require
from ..core.places import Place
from ..ordering import Machine, Relays, create, protocols
from .automaton import Factory
from .network import Delay


@dataclass(frozen=True)
class Terrain:
    source: str  # the file that describes the graph
    names: tuple[str, ...]  # applications first, then routers
    applications: int
    places: tuple[Place, ...]

    def __post_init__(self) -> None:
        why = f"{self.source} has fewer than two processes with an application: nobody can send"
        require(self.applications >= 2, why)

    def processes(self, protocol: str) -> int:
        """The number of machines that a protocol has on this terrain."""
        return len(self.names) if relays(protocol) else self.applications

    def factory(self, protocol: str) -> Factory:
        return partial(_placed, protocol, self.places) if relays(protocol) else partial(create, protocol)

    def path(self, start: int, goal: int) -> list[int]:
        """The path between two processes, both ends included: their common link, or else their route."""
        way = [start]
        while start != goal:
            place = self.places[start]
            if place.neighbours >> goal & 1:
                start = goal
            else:
                start = next(branch.towards for branch in place.branches if branch.behind >> goal & 1)
            way.append(start)
        return way

    def links(self, start: int, goal: int) -> int:
        """The number of links that a transmission crosses."""
        return len(self.path(start, goal)) - 1


def relays(protocol: str) -> bool:
    """Whether routers forward the messages of this protocol."""
    return protocols()[protocol].copies.relays is Relays.ROUTERS


def _placed(protocol: str, places: Sequence[Place], me: int, n: int) -> Machine:
    return create(protocol, me, n, place=places[me])


class Roads:
    """Delays over a terrain's links: a message takes the same time over a link under every protocol."""

    def __init__(self, terrain: Terrain, delay: Delay, seed: int) -> None:
        self._terrain = terrain
        self._delay = delay
        self._seed = seed
        # Per process: the messages that its application has planned, and those of them already sent.
        self._planned, self._left = Counter[int](), Counter[int]()
        self._nth: dict[tuple[int, int], int] = {}  # per message: its number among its sender's messages

    def plan(self, process: int, to: Sequence[int]) -> list[int]:
        """The delays in ns of an application's next message, one for each destination."""
        self._planned[process] += 1
        return [self.delay(process, self._planned[process], process, d) for d in to]

    def leave(self, process: int, clock: int) -> None:
        """Record that the next planned message of a process is sent with this clock."""
        self._left[process] += 1
        self._nth[process, clock] = self._left[process]

    def travel(self, name: tuple[int, int], start: int, goal: int, dice: Random) -> int:
        """A message's travel time in ns between two processes; from `dice` if no application sent it."""
        if name in self._nth:
            return self.delay(name[0], self._nth[name], start, goal)
        return sum(self._delay.draw(dice) for _ in range(self._terrain.links(start, goal)))

    def delay(self, sender: int, nth: int, start: int, goal: int) -> int:
        """The delay in ns of the nth message of a sender's application between two processes."""
        way, named = self._terrain.path(start, goal), f"{self._seed}/{sender}/{nth}"
        return sum(self._delay.draw(Random(f"{named}/{a}/{b}")) for a, b in pairwise(way))
