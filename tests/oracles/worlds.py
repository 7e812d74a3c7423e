"""Small routed worlds by name, and programs that fit them."""

from dataclasses import dataclass, field
from itertools import product

from happened.core.destinations import pack
from happened.core.orders import Order
from happened.ordering.causal.histories import Histories
from happened.ordering.causal.topological import Topological
from happened.sim.explore import Explorer
from happened.sim.programs import Program
from oracles.places import Graph, grid, hop_places, path, ring, routed_places, star, two_gateways


@dataclass(frozen=True)
class World:
    graph: Graph
    tree: list
    witnesses: dict = field(default_factory=dict)
    separators: list | None = None  # None: every vertex cut of at most three members

    def places(self, **options):
        return routed_places(
            self.graph, self.tree, witnesses=self.witnesses, separators=self.separators, **options
        )


def links(n):
    return [(i, i + 1) for i in range(n - 1)]


WORLDS = {
    "line": World(path(4), links(4)),
    "star": World(star(4), [(0, 1), (0, 2), (0, 3)]),
    "tree": World(Graph(5, [(0, 1), (0, 2), (1, 3), (1, 4)]), [(0, 1), (0, 2), (1, 3), (1, 4)]),
    "ring": World(ring(4), links(4)),
    "ring of five": World(ring(5), links(5)),
    "grid": World(grid(2, 3), [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5)]),
    "two gateways": World(*two_gateways()),
    # One process on each side of three gateways: 1 forwards, 2 and 3 are its witnesses.
    "three gateways": World(
        Graph(5, [(d, p) for d in (1, 2, 3) for p in (0, 4)] + [(1, 2), (1, 3), (2, 3)]),
        [(0, 1), (1, 4), (1, 2), (1, 3)],
        {1: {2, 3}},
    ),
}


def explorer(places, machine=Topological, **options):
    def make(me, n):
        return machine(me, n, place=places[me], **options)

    return Explorer(make, len(places), order=Order.CAUSAL, fifo=False, optimal=False)


def explored(exploring, programs, *, stop=True):
    """(programs, states, violations); by default up to the first violation."""
    count = states = 0
    violations = []
    for program in programs:
        result = exploring.explore(program)
        count += 1
        states += result.states
        violations += result.violations
        if violations and stop:
            break
    return count, states, violations


def program(n, *sends):
    """From (process, destinations) in the order of each process."""
    return Program(tuple(tuple(pack(to) for p, to in sends if p == q) for q in range(n)))


def compositions(total, parts):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield first, *rest


def programs(choices, messages):
    """Every program in which process p sends to some of choices[p]."""
    for lengths in compositions(messages, len(choices)):
        slots = [product(choices[p], repeat=length) for p, length in enumerate(lengths)]
        yield from map(Program, product(*slots))


def subsets(bits, most=None):
    found, sub = [], bits
    while sub:
        if most is None or sub.bit_count() <= most:
            found.append(sub)
        sub = (sub - 1) & bits
    return sorted(found)


def hop_programs(places, messages):
    """Every program whose messages go to neighbours."""
    return programs([subsets(place.neighbours) for place in places], messages)


def routed_programs(n, messages, most=2, members=None):
    """Every program whose messages go to at most this many others."""
    members = pack(range(n) if members is None else members)
    choices = [subsets(members & ~(1 << p), most) if members >> p & 1 else [] for p in range(n)]
    return programs(choices, messages)


def hop_explorer(graph, machine=Histories, separators=None, **options):
    return explorer(hop_places(graph, separators), machine, **options)
