"""Workloads as values: which process sends when, and to which destinations.

Each process sends after exponentially distributed pauses. A pattern draws the destinations of one send from
an injected generator and the present members, in increasing order; it never draws the sender, and draws no
destination if there is no other process. `parse_pattern` reads these text forms:

    unicast             one other process, uniformly
    multicast           k others, k uniform on 1 … n-1: n/2 on average, as in the study of Jang et al. (1997)
    broadcast           all others
    fanout:K            K others, uniformly (all of them if there are fewer)
    ring                the next process, the last one sending to the first
    client-server[:S]   the first S (default 1) are servers: clients ask a server, servers answer a client
    service[:S]         the same, but all servers together send as often as all clients together
    clusters[:K]        K (default 2) blocks of neighbours: one process, 9 times in 10 of the sender's block
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

Pattern = Callable[[Random, int, Sequence[int]], list[int]]
"""(generator, sender, members) -> destinations."""


@dataclass(frozen=True, slots=True)
class Workload:
    pattern: str = "multicast"
    interval: float = 0.1  # mean seconds between two sends of a process

    def __post_init__(self) -> None:
        parse_pattern(self.pattern)
        if not 0 < self.interval < float("inf"):
            raise ValueError(f"the mean interval between sends is a positive time, not {self.interval} s")


def others(sender: int, members: Sequence[int]) -> list[int]:
    return [member for member in members if member != sender]


def multicast(rng: Random, sender: int, members: Sequence[int]) -> list[int]:
    candidates = others(sender, members)
    return sorted(rng.sample(candidates, rng.randint(1, len(candidates)))) if candidates else []


def ring(rng: Random, sender: int, members: Sequence[int]) -> list[int]:
    following = members[(bisect_left(members, sender) + 1) % len(members)]
    return [following] if following != sender else []


@dataclass(frozen=True, slots=True)
class Fanout:
    size: int

    def __call__(self, rng: Random, sender: int, members: Sequence[int]) -> list[int]:
        candidates = others(sender, members)
        return sorted(rng.sample(candidates, min(self.size, len(candidates))))


@dataclass(frozen=True, slots=True)
class ClientServer:
    servers: int = 1

    def __call__(self, rng: Random, sender: int, members: Sequence[int]) -> list[int]:
        servers, clients = members[: self.servers], members[self.servers :]
        # Without clients, servers send to one another.
        return _one(rng, others(sender, clients if sender in servers and clients else servers))


@dataclass(frozen=True, slots=True)
class Service(ClientServer):
    def pace(self, sender: int, members: Sequence[int]) -> float:
        """How often a process sends, relative to a client: all servers send as often as all clients."""
        clients = len(members) - self.servers
        return max(clients / self.servers, 1.0) if sender in members[: self.servers] else 1.0


@dataclass(frozen=True, slots=True)
class Clusters:
    count: int = 2

    def __call__(self, rng: Random, sender: int, members: Sequence[int]) -> list[int]:
        n = len(members)
        cluster = bisect_left(members, sender) * self.count // n
        inside: list[int] = []
        outside: list[int] = []
        for place, member in enumerate(members):
            if member != sender:
                (inside if place * self.count // n == cluster else outside).append(member)
        leaves = rng.random() < 0.1
        return _one(rng, (outside or inside) if leaves else (inside or outside))


def _one(rng: Random, candidates: Sequence[int]) -> list[int]:
    return [rng.choice(candidates)] if candidates else []


_PLAIN: dict[str, Pattern] = {
    "unicast": lambda rng, sender, members: _one(rng, others(sender, members)),
    "multicast": multicast,
    "broadcast": lambda rng, sender, members: others(sender, members),
    "ring": ring,
}
_SIZED: dict[str, tuple[Callable[[int], Pattern], int | None]] = {
    "fanout": (Fanout, None),
    "client-server": (ClientServer, 1),
    "service": (Service, 1),
    "clusters": (Clusters, 2),
}
_SERVED = ("client-server[:S]", "service[:S]", "clusters[:K]")
PATTERNS = ("unicast", "multicast", "broadcast", "fanout:K", "ring", *_SERVED)


def parse_pattern(text: str) -> Pattern:
    """The pattern that this text names; the ValueError lists the valid forms."""
    name, colon, size_text = text.partition(":")
    if name in _PLAIN:
        if colon:
            raise ValueError(f"pattern {name} takes no number; write just {name!r}")
        return _PLAIN[name]
    if name not in _SIZED:
        raise ValueError(f"no pattern is called {name!r}; there are: {', '.join(PATTERNS)}")
    sized, default = _SIZED[name]
    if not colon and default is not None:
        return sized(default)
    if not size_text.isascii() or not size_text.isdigit() or int(size_text) < 1:
        raise ValueError(f"pattern {name} needs a positive whole number, as in '{name}:3', not {text!r}")
    return sized(int(size_text))


def cast_of(text: str) -> str:
    """The kind of send that a protocol must support for this pattern: unicast, multicast or broadcast."""
    name = text.partition(":")[0]
    return {"multicast": "multicast", "fanout": "multicast", "broadcast": "broadcast"}.get(name, "unicast")
