"""The network as a value: how long packets take, and what may go wrong on their way.

No packet is ever lost: packets are late, doubled, or held back by a partition until it heals. Times are
seconds in texts, and nanoseconds inside (whole numbers, so that a replay is exact).

    constant:X             X seconds
    uniform:A:B            between A and B
    exp:MEAN               exponential
    lognormal:MEDIAN:SIGMA SIGMA is the logarithm's standard deviation: a long tail
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Delay:
    """A distribution of delays, given by its text form."""

    name: str
    parameters: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.name not in _DISTRIBUTIONS:
            raise ValueError(f"no delay is called {self.name!r}; there are: {', '.join(DELAYS)}")
        form, fits, _ = _DISTRIBUTIONS[self.name]
        if len(self.parameters) != form.count(":"):
            raise ValueError(f"delay {self.name} is written {form}, in seconds")
        if not all(map(math.isfinite, self.parameters)) or not fits(*self.parameters):
            raise ValueError(f"delay {self} makes no sense: {form} needs times of at least 0, in order")

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{parameter:g}" for parameter in self.parameters)])

    def draw(self, rng: Random) -> int:
        """One delay in nanoseconds."""
        _, _, sample = _DISTRIBUTIONS[self.name]
        return int(sample(rng, *self.parameters) * SECOND)


# name -> (its text form, a check of its parameters, a function that draws one sample in seconds)
_DISTRIBUTIONS: dict[str, tuple[str, Callable[..., bool], Callable[..., float]]] = {
    "exp": ("exp:MEAN", lambda mean: mean >= 0, lambda rng, mean: mean * rng.expovariate(1.0)),
    "uniform": ("uniform:A:B", lambda low, high: 0 <= low <= high, Random.uniform),
    "constant": ("constant:X", lambda delay: delay >= 0, lambda rng, delay: delay),
    "lognormal": (
        "lognormal:MEDIAN:SIGMA",
        lambda median, sigma: median >= 0 and sigma >= 0,
        lambda rng, median, sigma: median * math.exp(rng.gauss(0.0, sigma)),
    ),
}
DELAYS = tuple(form for form, _, _ in _DISTRIBUTIONS.values())


@dataclass(frozen=True, slots=True)
class Partition:
    """From `start` until `end` (seconds) no packet passes between `island` and the other processes."""

    start: float
    end: float
    island: frozenset[int]

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < float("inf"):
            raise ValueError(
                f"a partition starts, and heals later, not from {self.start} until {self.end} s: "
                "one that never heals would lose messages"
            )
        if not self.island:
            raise ValueError("a partition cuts off at least one process")

    def __str__(self) -> str:
        return f"{self.start:g}:{self.end:g}:" + ",".join(f"p{p}" for p in sorted(self.island))


@dataclass(frozen=True, slots=True)
class Network:
    delay: Delay = Delay("exp", (0.1,))
    fifo: bool = False  # packets of one channel arrive in the order sent
    duplicate: float = 0.0  # probability that a packet arrives twice
    partitions: tuple[Partition, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.duplicate <= 1:
            raise ValueError(f"the probability of a duplicate is between 0 and 1, not {self.duplicate}")


class SimulatedLinks:
    """The channels of one run; they decide when a packet that leaves now arrives."""

    def __init__(self, network: Network, delays: Random, duplicates: Random) -> None:
        self._network = network
        self._delays = delays
        self._duplicates = duplicates
        self._latest: dict[tuple[int, int], int] = {}  # per channel, if links are FIFO: its last arrival
        ordered = sorted(network.partitions, key=lambda partition: partition.start)
        self._partitions = [(int(p.start * SECOND), int(p.end * SECOND), p.island) for p in ordered]

    def arrivals(self, sender: int, to: int, now: int, delay: int | None = None) -> Sequence[int]:
        """The packet's arrivals in ns: two if the network doubles it. Without `delay`, one is drawn."""
        if delay is None:
            delay = self._network.delay.draw(self._delays)
        delays, share = [delay], self._network.duplicate
        if share and self._duplicates.random() < share:
            delays.append(self._network.delay.draw(self._duplicates))
        return tuple(self._arrival(sender, to, now, each) for each in delays)

    def _arrival(self, sender: int, to: int, now: int, delay: int) -> int:
        arrival = self.direct(sender, to, now, delay)
        if self._network.fifo:
            arrival = max(arrival, self._latest.get((sender, to), 0))
            self._latest[sender, to] = arrival
        return arrival

    def direct(self, sender: int, to: int, now: int, delay: int) -> int:
        """When a packet with this delay would arrive if a FIFO link had no other packets ahead of it."""
        arrival = now + delay
        for start, end, island in self._partitions:
            # A packet that cannot arrive before the partition begins leaves again when it heals.
            if now < end and arrival >= start and (sender in island) != (to in island):
                now = end
                arrival = end + delay
        return arrival


def parse_delay(text: str) -> Delay:
    """The distribution that this text names; the ValueError lists the valid forms."""
    name, *numbers = text.split(":")
    try:
        parameters = tuple(map(float, numbers))
    except ValueError:
        raise ValueError(f"delay {text!r} is not understood; there are: {', '.join(DELAYS)}") from None
    return Delay(name, parameters)


def parse_partition(text: str) -> Partition:
    """Parse START:END:p0,p1,…; the ValueError says what is valid."""
    parts = text.split(":")
    names = parts[2].split(",") if len(parts) == 3 else []
    if not names or not all(name[:1] == "p" and name[1:].isascii() and name[1:].isdigit() for name in names):
        raise ValueError(f"a partition is written START:END:p0,p1 (seconds, processes), not {text!r}")
    try:
        start, end = float(parts[0]), float(parts[1])
    except ValueError:
        raise ValueError(
            f"a partition starts and ends at a time in seconds, as in 1.5:3:p0, not {text!r}"
        ) from None
    return Partition(start, end, frozenset(int(name[1:]) for name in names))
