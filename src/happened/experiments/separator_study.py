"""The studies of Rodrigues and Veríssimo's chapter 7: how large timestamps are with and without separators.

In    the networks of Table 7.1 and Figures 7.5 and 7.6, rebuilt, since we lack the drawings and groups.
      Details that the text leaves open were fitted to Table 7.1 and Figure 7.5 (see docs/large-systems.md).
      Every process sends 10 messages a second, each to the others of one of its groups; a hop takes 50 ms on
      average, exponentially distributed; routes are derived from the topology.
Out   one `CaseResult` per case: mean entries per timestamp over the hop messages that the case selects, the
      mean size of causal histories at the hosts it names, and the paper's figure.

The paper does not say how it counts. A hop message has one timestamp, however many neighbours receive it, and
counts once here; a second mean counts it once for each receiver.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from ..ordering.causal.topological import HopMessage, Topological
from ..sim.network import Network, parse_delay
from ..sim.simulation import Simulation
from ..sim.workload import Workload
from ..topology import Topology, derive, from_document
from .runs import Progress, run_to_the_end

INTERVAL = 0.1  # seconds between two sends of a process, on average
DELAY = "exp:0.05"

Separators = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A network, the separators at which its routers filter, and the messages and hosts to measure."""

    study: str
    network: str
    topology: Topology
    filter_at: Separators
    timestamp_redundancy: bool = True  # R7
    group: str | None = None  # count only messages within this group; None: all messages
    hosts: tuple[str, ...] = ()  # the hosts whose causal histories are measured
    paper: str = ""

    @property
    def processes(self) -> int:
        return len(self.topology.applications)


class CaseResult(NamedTuple):
    case: Case
    entries: float  # per timestamp
    timestamps: int  # the number of timestamps in that mean
    entries_sent: float  # the mean in which a timestamp counts once for each receiver
    histories: dict[str, float]  # mean entries at each host, measured whenever any process sends


def table_7_1(processes: int) -> Topology:
    """Two sites of Figure 5.2; with ten processes two more in group A at n1 and two more in D at n3."""
    more = processes == 10
    at_n1, at_n3 = (["p7", "p8"], ["p9", "p10"]) if more else ([], [])
    zones = {
        "west": {"gateways": ["d1", "d2"], "zones": {"n1": ["p1", *at_n1], "n2": ["p2", "p3", "p4"]}},
        "east": {"gateways": ["d3"], "zones": {"n3": ["p5", "p6", *at_n3]}},
    }
    groups = {
        "A": ["p1", "p2", "p4", *at_n1],
        "B": ["p2", "p3", "p5"],
        "C": ["p1", "p6"],
        "D": ["p5", "p6", *at_n3],
    }
    return from_document({"zones": zones, "groups": groups})


def figure_7_5(small: int = 4, large: int = 28) -> Topology:
    """Two broadcast networks joined by one gateway; two pairs of processes talk across the gateway."""
    few, many = _hosts("p", small), _hosts("q", large)
    zones = {
        name: {"gateways": ["g"], "processes": hosts, "links": "all"}
        for name, hosts in (("small", few), ("large", many))
    }
    groups = {"G1": few, "G2": many, "G3": ["p1", "q1"], "G4": ["p2", "q2"]}
    return from_document({"zones": zones, "groups": groups})


def figure_7_6(hosts: int = 4) -> Topology:
    """Three broadcast networks, each with two gateways that both hear what leaves; pairs of hosts talk."""
    networks = {"1": _hosts("p", hosts), "2": _hosts("q", hosts), "3": _hosts("r", hosts)}
    zones = {
        f"network{k}": {"gateways": [f"g{k}", f"h{k}"], "processes": members, "links": "all"}
        for k, members in networks.items()
    }
    groups = {f"G{k}": members for k, members in networks.items()}
    across = {"X12": ["p1", "q1"], "X23": ["q2", "r1"], "X31": ["r2", "p2"]}
    return from_document({"zones": zones, "groups": groups | across})


def _hosts(letter: str, count: int) -> list[str]:
    return [f"{letter}{i}" for i in range(1, count + 1)]


def cases() -> list[Case]:
    return list(_cases())


def _cases() -> Iterator[Case]:
    paper = {6: ("3.55", "2.70", "2.10"), 10: ("3.46", "3.09", "2.76")}
    filters: tuple[Separators, ...] = ((), (("d3",),), (("d1", "d2"), ("d3",), ("n3",)))
    for n, figures in paper.items():
        topology = table_7_1(n)
        for filter_at, figure in zip(filters, figures, strict=True):
            hosts = ("p3", "d2", "d3")
            yield Case("Table 7.1", f"n = {n}", topology, filter_at, hosts=hosts, paper=figure)
    topology = figure_7_5()
    for redundancy, pair in ((False, ("32", "< 5")), (True, ("", ""))):
        for filter_at, figure in zip(((), (("g",),)), pair, strict=True):
            name = "4 and 28 hosts"
            yield Case("Figure 7.5", name, topology, filter_at, redundancy, "G1", ("p1",), figure)
    topology, boundaries = figure_7_6(), tuple((f"g{k}", f"h{k}") for k in (1, 2, 3))
    for filter_at in ((), boundaries):
        yield Case("Figure 7.6", "3 x 4 hosts", topology, filter_at, True, "G1", ("p1",))


def study(
    chosen: Iterable[Case], *, messages: int, seed: int, progress: Progress = None
) -> Iterator[CaseResult]:
    """One row for each case, from a run of `messages` application messages; all cases make the same sends."""
    if messages < 1:
        raise LocalProtocolError(f"a study needs at least one message, not {messages}")
    for case in chosen:
        yield measure(case, messages=messages, seed=seed, progress=progress)


def measure(case: Case, *, messages: int, seed: int, progress: Progress = None) -> CaseResult:
    # Witnesses get their copies but no reports, as in the paper, where no process reports what it forwards.
    routes = derive(case.topology, filter_at=case.filter_at, report=False)
    index = {name: i for i, name in enumerate(routes.names)}
    groups = {name: frozenset(index[m] for m in members) for name, members in case.topology.groups.items()}
    machines: dict[int, Topological] = {}

    def make(me: int, n: int) -> Any:
        machines[me] = Topological(
            me, n, place=routes.places[me], timestamp_redundancy=case.timestamp_redundancy
        )
        return machines[me]

    hosts = {name: index[name] for name in case.hosts}
    sizes = _HistorySizes(machines, groups.get(case.group or ""), hosts)
    simulation = Simulation(
        make,
        len(routes.names),
        messages,
        seed=seed,
        workload=Workload(interval=INTERVAL),
        pattern=_GroupPattern(tuple(groups.values())),
        network=Network(delay=parse_delay(DELAY)),
        control_sizes=sizes,
        progress=progress,
    )
    run_to_the_end(simulation)
    if not sizes.entries:
        raise LocalProtocolError(f"no message of group {case.group} in a run of {messages}; make it longer")
    histories = {name: fmean(seen) for name, seen in sizes.histories.items()}
    return CaseResult(case, fmean(sizes.entries), len(sizes.entries), fmean(sizes.sent), histories)


class _GroupPattern:
    """Chooses the other members of one of the sender's groups; routers have no groups and never send."""

    def __init__(self, groups: Sequence[frozenset[int]]) -> None:
        self._groups = groups

    def __call__(self, rng: Random, sender: int, members: Sequence[int]) -> list[int]:
        mine = [sorted(group - {sender}) for group in self._groups if sender in group]
        return rng.choice(mine) if mine else []


@dataclass(slots=True)
class _HistorySizes:
    """Measures every hop message; replaces the function that tells the simulator encoded sizes."""

    machines: dict[int, Topological]
    group: frozenset[int] | None
    hosts: dict[str, int]
    entries: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    histories: dict[str, list[int]] = field(default_factory=dict)

    def __call__(self, messages: Sequence[HopMessage]) -> list[int]:
        for message in {(m.relay, m.hop): m for m in messages}.values():
            if self.group is None or message.to | {message.sender} == self.group:
                self.entries.append(len(message.entries))
                self.sent += [len(message.entries)] * message.address.bit_count()
            if message.relay == message.sender:
                for name, host in self.hosts.items():
                    self.histories.setdefault(name, []).append(len(self.machines[host].history()))
        return [0] * len(messages)


class Baseline(NamedTuple):
    network: str
    what: str
    paper: int
    entries: int


def baselines() -> Iterator[Baseline]:
    """The entries that Table 7.1 compares with; the numbers of processes and members determine them."""
    for processes, matrix, vectors in ((6, 36, 10), (10, 100, 14)):
        topology = table_7_1(processes)
        members = sum(len(group) for group in topology.groups.values())
        yield Baseline(f"n = {processes}", "matrix clock", matrix, len(topology.applications) ** 2)
        yield Baseline(f"n = {processes}", "a vector per group", vectors, members)
