"""Thousands of processes on the wire: what is local stays small, and nobody is made to allocate much."""

import tracemalloc

import pytest

from happened import wire
from happened.core.errors import LocalProtocolError, RemoteProtocolError
from happened.experiments.growth import place
from happened.net.engine import Engine
from happened.ordering import create
from happened.ordering.causal.extended_history import HistoryEntry
from happened.ordering.causal.topological import HopMessage
from happened.ordering.facts import MANY_PROCESSES
from happened.wire.primitives import EXPANDED

N = 60_000


@pytest.mark.parametrize("protocol", ["topological", "zoned-ks"])
def test_a_message_crosses_sixty_thousand_processes_in_zones_of_ten(protocol):
    """From the last process to the first of another branch; every hop through its bytes."""
    machines = {}

    def machine(p):
        if p not in machines:
            machines[p] = create(protocol, p, N, place=place(p, N, 10))
        return machines[p]

    sent = machine(N - 1).multicast([7], b"far").effects
    hops, sizes, delivered = [effect for effect in sent if hasattr(effect, "to")], [], []
    while hops:
        to, message = hops.pop()
        frame = wire.encode(message)
        sizes.append(len(frame))
        again, size = wire.decode(frame)
        assert again == message and size == len(frame)
        for effect in machine(to).receive(again):
            if hasattr(effect, "to"):
                hops.append(effect)
            else:
                delivered.append((to, effect.sender, effect.payload))
    assert delivered == [(7, N - 1, b"far")]
    assert len(sizes) == 6 and max(sizes) < 100


def test_histories_name_any_of_them():
    sender, receiver = create("histories", N - 1, N), create("histories", 5, N)
    [(_, message)] = sender.multicast([5], b"").effects
    again, _ = wire.decode(wire.encode(message))
    [delivery] = receiver.receive(again)
    assert delivery.sender == N - 1


def test_a_log_that_may_be_the_square_of_them_is_refused():
    frame = wire.encode(create("ks", 0, 1025).multicast([1], b"").effects[0].message)
    with pytest.raises(RemoteProtocolError, match="not below 1025"):
        wire.decode(frame)
    with pytest.raises(LocalProtocolError, match="1025 members; messages of ks can name 1024"):
        Engine("p0", [f"p{i}" for i in range(1025)], "ks")
    Engine("p0", [f"p{i}" for i in range(1025)], "histories")


@pytest.mark.long
def test_sets_of_nearly_everybody_do_not_fill_the_memory():
    """Three bytes each on the wire, 8 KB in memory."""
    n = MANY_PROCESSES
    everybody = (1 << n) - 1
    most = EXPANDED // (n // 8)
    entries = [HistoryEntry(1, clock, everybody ^ 1 << clock) for clock in range(1, most + 100)]
    message = HopMessage(0, 9, n, 2, 0, 10**6, 2, 0, tuple(entries), b"")
    frame = wire.encode(message)
    assert len(frame) < 100_000
    del message, entries
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match="bytes of memory"):
        wire.decode(frame)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * EXPANDED
