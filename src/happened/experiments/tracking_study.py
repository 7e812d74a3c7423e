"""What trackers cost, measured: the same computations under each of them, repeated over seeds.

Processes send plain messages in virtual time; a relevant event follows a send or a delivery with a given
probability. The dice of a computation do not depend on its tracker, so protocols are compared on the same
events; those that need FIFO links get them. Means come with 95 % confidence intervals over the seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import NamedTuple

from ..core.errors import LocalProtocolError
from ..sim.network import Network
from ..sim.plain import Plain, control_sizes
from ..sim.riders import Riders
from ..sim.simulation import Simulation
from ..sim.workload import Workload
from ..tracking import create, facts_of
from .estimates import Estimate, estimate

MEASURES = ("entries", "most_entries", "bits", "model_bits", "null_events", "memory")


@dataclass(frozen=True, slots=True)
class Study:
    """What decides the computations: the same study gives the same events."""

    pattern: str = "unicast"
    relevant: float = 0.1  # probability of a relevant event after a send or a delivery
    messages: int = 200  # per process
    seeds: int = 5  # computations per point
    seed: int = 1  # of the first of them

    def __post_init__(self) -> None:
        Workload(self.pattern)
        if not 0 <= self.relevant <= 1:
            raise LocalProtocolError(f"relevant events have a probability in 0 … 1, not {self.relevant}")
        if self.messages < 1 or self.seeds < 1:
            raise LocalProtocolError("a study needs at least one message per process, and one seed")

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class Row(NamedTuple):
    protocol: str
    processes: int
    fifo: bool
    measures: dict[str, Estimate]


def study(
    settings: Study,
    names: Sequence[str],
    processes: Sequence[int],
    progress: Callable[[int], object] | None = None,
) -> list[Row]:
    """Every protocol at every number of processes; a name may carry a bound, as `p2:4` does."""
    rows = []
    for name in names:
        for n in processes:
            fifo = is_fifo(name)
            samples = []
            for seed in range(settings.seed, settings.seed + settings.seeds):
                samples.append(measure(settings, name, n, seed, fifo=fifo))
                if progress is not None:
                    progress(1)
            estimates = {key: estimate([sample[key] for sample in samples]) for key in MEASURES}
            rows.append(Row(name, n, fifo, estimates))
    return rows


def is_fifo(name: str) -> bool:
    create(name, 0, 2)  # a name nobody knows is refused in create's words
    return facts_of(name).fifo_links


def measure(settings: Study, name: str, n: int, seed: int, *, fifo: bool) -> dict[str, float]:
    if n < 2:
        raise LocalProtocolError(f"a computation needs at least two processes, not {n}")
    riders = Riders(partial(create, name), n, settings.relevant, Random(f"{seed}/relevant"))
    Simulation(
        Plain,
        n,
        settings.messages * n,
        seed=seed,
        workload=Workload(settings.pattern),
        network=Network(fifo=fifo),
        control_sizes=control_sizes,
        riders=riders,
    ).run()
    fare = riders.fare
    return {**fare.per_message(), "most_entries": fare.most_entries, "memory": riders.memory()}
