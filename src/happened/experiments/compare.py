"""What each protocol costs on the same schedule.

In    protocols, numbers of processes, a workload, a network, seeds. One seed gives every protocol the same
      sends at the same times to the same processes, and first-hand transmissions with the same delays.
Out   one row per protocol, number of processes and seed, with the measures below; or, instead of them, why
      the protocol does not apply: it is asked for something outside its assumptions.

Sizes are per delivery and count every transmission, so that a protocol which adds messages pays for them;
where nothing is added they are the means per transmission that the papers give.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from time import process_time_ns
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import LocalProtocolError, ProtocolError
from ..ordering import Effect, Machine, Multicast, create
from ..sim.automaton import Factory
from ..sim.ledger import Ledger
from ..sim.network import Network
from ..sim.run import Parameters
from ..sim.simulation import Simulation
from ..sim.terrain import Terrain
from ..sim.workload import Workload


class Measure(NamedTuple):
    name: str
    title: str  # as a column's head
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
    terrain: Terrain | None = None  # the processes are its applications

    def __post_init__(self) -> None:
        if not self.protocols or not self.processes or not self.seeds:
            raise LocalProtocolError("a comparison needs a protocol, a number of processes and a seed")

    @property
    def runs(self) -> int:
        return len(self.protocols) * len(self.processes) * len(self.seeds)


Row = dict[str, Any]


def compare(comparison: Comparison, progress: Callable[[int], object] | None = None) -> Iterator[Row]:
    """The rows, run by run; `progress` is called with the number of messages since the last call."""
    for n in comparison.processes:
        for protocol in comparison.protocols:
            for seed in comparison.seeds:
                yield _row(comparison, protocol, n, seed, progress)


def _row(
    comparison: Comparison,
    protocol: str,
    processes: int,
    seed: int,
    progress: Callable[[int], object] | None,
) -> Row:
    row: Row = {"protocol": protocol, "processes": processes, "seed": seed}
    sent = 0

    def count(messages: int) -> None:
        nonlocal sent
        sent += messages
        if progress is not None:
            progress(messages)

    _check_known(protocol)
    try:
        parameters = Parameters(
            seed,
            protocol,
            processes,
            comparison.messages,
            comparison.workload,
            comparison.network,
            terrain=comparison.terrain,
        )
        return row | _measured(parameters, count)
    except ProtocolError as error:  # refused by the protocol's facts, or by a machine during the run
        if progress is not None:
            progress(comparison.messages - sent)
        return row | {"not_applicable": str(error)}


def _check_known(protocol: str) -> None:
    create(protocol, 0, 2)  # an unknown name is a mistake, not a protocol that does not apply


class Timed:
    """A machine that counts the CPU time of its two inputs, in ns."""

    def __init__(self, make: Factory, me: int, n: int) -> None:
        self.wrapped: Machine = make(me, n)
        self.sending = self.receiving = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def multicast(self, to: Any, payload: bytes) -> Multicast:
        start = process_time_ns()
        made = self.wrapped.multicast(to, payload)
        self.sending += process_time_ns() - start
        return made

    def receive(self, message: Any) -> list[Effect]:
        start = process_time_ns()
        effects = self.wrapped.receive(message)
        self.receiving += process_time_ns() - start
        return effects


def _measured(parameters: Parameters, progress: Callable[[int], object]) -> Row:
    terrain, protocol = parameters.terrain, parameters.protocol
    make: Factory = partial(create, protocol) if terrain is None else terrain.factory(protocol)
    simulation = Simulation(
        cast(Factory, partial(Timed, make)),
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
        "send_cpu": sum(machine.sending for machine in simulation.machines) / messages / 1e3,  # type: ignore[attr-defined]
        "delivery_cpu": sum(machine.receiving for machine in simulation.machines) / deliveries / 1e3,  # type: ignore[attr-defined]
        "undelivered": len(undelivered),
    }


class Estimate(NamedTuple):
    mean: float
    error: float  # half the 95 % confidence interval; 0 with one seed, which gives none


# The 97.5 % quantile of Student's t by degrees of freedom; beyond them the normal distribution is close
# enough.
_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)


def estimate(values: list[float]) -> Estimate:
    freedom = len(values) - 1
    if freedom < 1:
        return Estimate(fmean(values), 0.0)
    quantile = _T[freedom - 1] if freedom <= len(_T) else 2.04 if freedom < 60 else 1.96
    return Estimate(fmean(values), quantile * stdev(values) / sqrt(freedom + 1))


class Summary(NamedTuple):
    protocol: str
    processes: int
    estimates: dict[str, Estimate]  # by measure; without those that the protocol does not have
    undelivered: int
    not_applicable: str | None


def summarise(rows: list[Row]) -> list[Summary]:
    """Over the seeds: one summary per protocol and number of processes, in the order of the rows."""
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


def write_rows(rows: list[Row], file: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file, compression="zstd")
