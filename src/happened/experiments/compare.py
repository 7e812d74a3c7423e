"""What each protocol costs on the same schedule.

In    protocols, numbers of processes, a workload, a network, seeds. One seed gives every protocol the same
      sends at the same times to the same processes, and first-hand transmissions with the same delays.
Out   one row per protocol, number of processes and seed, with the measures below; or with the reason why the
      protocol does not apply, if the workload is outside its assumptions.

Sizes are per delivery and count every transmission, so that a protocol which adds messages pays for them; for
a protocol that adds none they are the means per transmission that the papers give.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from time import process_time_ns
from typing import Any, NamedTuple, cast

import pyarrow as pa

from ..core.errors import LocalProtocolError, ProtocolError
from ..ordering import create
from ..sim.automaton import Factory
from ..sim.ledger import Ledger
from ..sim.network import Network
from ..sim.run import Parameters
from ..sim.simulation import Simulation
from ..sim.terrain import Terrain
from ..sim.workload import Workload
from .runs import Estimate, Progress, Watched, estimate


class Measure(NamedTuple):
    name: str
    title: str  # the heading of the measure's column
    meaning: str


MEASURES = (
    Measure("entries", "entries", "dependency entries per delivery"),
    Measure("control_bytes", "bytes", "bytes of control information as encoded, per delivery"),
    Measure("model_bytes", "model bytes", "the same as Jang et al. (1997) count: 4-byte clocks, 2-byte ids"),
    Measure("log_units", "log", "units in the sender's log after a send"),
    Measure("added", "added msgs", "transmissions per message beyond the first-hand ones"),
    Measure("held", "held", "messages held back at a process, seen by arrivals"),
    Measure("added_delay", "delay ms", "milliseconds between earliest possible arrival and delivery"),
    Measure("send_cpu", "us/send", "microseconds of CPU per send"),
    Measure("delivery_cpu", "us/deliver", "microseconds of CPU per delivery"),
)
SCHEMA = pa.schema(
    [
        ("protocol", pa.string()),
        ("processes", pa.int64()),
        ("seed", pa.int64()),
        *((measure.name, pa.float64()) for measure in MEASURES),
        ("undelivered", pa.int64()),
        ("not_applicable", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared: every protocol at every number of processes with every seed."""

    protocols: tuple[str, ...]
    processes: tuple[int, ...]
    seeds: tuple[int, ...]
    messages: int = 20_000  # in all, per run
    workload: Workload = field(default_factory=Workload)
    network: Network = field(default_factory=Network)
    terrain: Terrain | None = None  # the applications of the terrain are the processes

    def __post_init__(self) -> None:
        if not self.protocols or not self.processes or not self.seeds:
            raise LocalProtocolError("a comparison needs a protocol, a number of processes and a seed")

    @property
    def runs(self) -> int:
        return len(self.protocols) * len(self.processes) * len(self.seeds)


Row = dict[str, Any]


def compare(comparison: Comparison, progress: Progress = None) -> Iterator[Row]:
    """The rows, run by run."""
    for n, protocol, seed in product(comparison.processes, comparison.protocols, comparison.seeds):
        yield _row(comparison, protocol, n, seed, progress)


def _row(comparison: Comparison, protocol: str, processes: int, seed: int, progress: Progress) -> Row:
    row: Row = {"protocol": protocol, "processes": processes, "seed": seed}
    sent = 0

    def count(messages: int) -> None:
        nonlocal sent
        sent += messages
        if progress is not None:
            progress(messages)

    create(protocol, 0, 2)  # raises if the name is unknown; such a protocol is not just inapplicable
    common = (comparison.messages, comparison.workload, comparison.network)
    try:
        parameters = Parameters(seed, protocol, processes, *common, terrain=comparison.terrain)
        return row | _measured(parameters, count)
    except ProtocolError as error:  # the protocol's facts, or a machine during the run, refused the workload
        if progress is not None:
            progress(comparison.messages - sent)
        return row | {"not_applicable": str(error)}


def _measured(parameters: Parameters, progress: Callable[[int], object]) -> Row:
    terrain, protocol = parameters.terrain, parameters.protocol
    make: Factory = partial(create, protocol) if terrain is None else terrain.factory(protocol)
    spent = Counter[str]()  # CPU time, in ns

    def spend(name: str, start: int) -> None:
        spent[name] += process_time_ns() - start

    simulation = Simulation(
        cast(Factory, lambda me, n: Watched(make(me, n), process_time_ns, spend)),
        parameters.processes if terrain is None else terrain.processes(protocol),
        parameters.messages,
        seed=parameters.seed,
        workload=parameters.workload,
        network=parameters.network,
        terrain=terrain,
        ledger=Ledger(),
        progress=progress,
    )
    undelivered = simulation.run()
    totals = simulation.ledger.totals()
    deliveries, messages = max(totals["deliveries"], 1), totals["messages"]
    per_delivery = totals["transmissions"] / deliveries
    sizes = ("entries", "control_bytes", "model_bytes")
    return {
        **{name: totals[name]["mean"] * per_delivery for name in sizes},
        "log_units": totals["log_units"]["mean"] if totals["log_units"] is not None else None,
        "added": totals["added"] / messages,
        "held": totals["held"]["mean"],
        "added_delay": totals["late"]["mean"] * 1e3,
        "send_cpu": spent["multicast"] / messages / 1e3,
        "delivery_cpu": spent["receive"] / deliveries / 1e3,
        "undelivered": len(undelivered),
    }


class Summary(NamedTuple):
    protocol: str
    processes: int
    estimates: dict[str, Estimate]  # by measure; without measures that the protocol does not provide
    undelivered: int
    not_applicable: str | None


def summarise(rows: list[Row]) -> list[Summary]:
    """One summary over all seeds per protocol and number of processes, in the order of the rows."""
    runs: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["protocol"], row["processes"]), []).append(row)
    return [_summary(protocol, n, group) for (protocol, n), group in runs.items()]


def _summary(protocol: str, processes: int, rows: list[Row]) -> Summary:
    refused = next((row["not_applicable"] for row in rows if row.get("not_applicable")), None)
    if refused is not None:
        return Summary(protocol, processes, {}, 0, refused)
    told = [m.name for m in MEASURES if all(row[m.name] is not None for row in rows)]
    estimates = {name: estimate([row[name] for row in rows]) for name in told}
    return Summary(protocol, processes, estimates, sum(row["undelivered"] for row in rows), None)
