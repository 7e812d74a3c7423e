"""What protocols that send when they receive add to the first-hand transmissions, and how late they are."""

from functools import partial

import pytest

from happened.ordering import create, protocols
from happened.sim.ledger import Ledger
from happened.sim.network import Network
from happened.sim.simulation import Simulation
from happened.sim.workload import Workload
from oracles.centralized import AcknowledgedMulticast


def pattern_for(name):
    casts = protocols()[name].assumes.casts
    return next(cast for cast in ("multicast", "unicast", "broadcast") if cast in casts)


def run(name, seed, *, processes=5, messages=300, pattern=None):
    simulation = Simulation(
        partial(create, name),
        processes,
        messages,
        seed=seed,
        workload=Workload(pattern or pattern_for(name)),
        network=Network(fifo=protocols()[name].assumes.fifo_links),
        ledger=Ledger(),
    )
    return simulation.run(), simulation.ledger.totals()


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("ks", lambda n, messages, deliveries: 0),
        ("acknowledged", lambda n, messages, deliveries: deliveries),
        ("cbcast", lambda n, messages, deliveries: deliveries),
        ("psync", lambda n, messages, deliveries: 0),
        ("flooding", lambda n, messages, deliveries: messages * (n - 1) * (n - 2)),
    ],
)
def test_what_is_added_to_the_first_hand_transmissions_is_counted(name, added, seed):
    left, totals = run(name, seed)
    assert not left
    assert totals["added"] == added(5, totals["messages"], totals["deliveries"])
    assert totals["transmissions"] == totals["deliveries"] + totals["added"]


@pytest.mark.parametrize("name", ["agreed", "causal-total"])
def test_three_phases_add_two_transmissions_and_now_and_then_how_far_a_process_is(name, seed):
    _, totals = run(name, seed)
    said = totals["added"] - 2 * totals["deliveries"]
    assert 0 < said <= 4 * totals["deliveries"] / 32
    _, totals = run(name, seed, pattern="unicast")  # whose final timestamps nobody else can lack
    assert totals["added"] == 2 * totals["deliveries"]


def test_a_sequencer_adds_what_its_coordinator_relays(seed):
    """Of another's broadcast only the request is first-hand, the coordinator being a destination. Besides,
    the four others say after every 32 deliveries how far they are, and hear after 32 how far all are."""
    _, totals = run("sequencer", seed, pattern="broadcast", messages=500)
    assert totals["deliveries"] == 4 * 500
    said = totals["transmissions"] - totals["deliveries"]
    assert 0 < said <= 2 * 4 * 500 / 32
    by_others, rest = divmod(totals["added"] - said, 3)
    assert rest == 0 and 300 < by_others < 500


def test_first_hand_transmissions_take_the_same_time_under_every_protocol(seed):
    """So protocols that wait no longer than causal order asks for are late by the same times."""
    late = {name: run(name, seed, pattern="broadcast")[1]["late"] for name in ("ks", "psync", "bss")}
    assert late["ks"] == late["psync"] == late["bss"] and late["ks"]["mean"] > 0
    assert run("cbcast", seed, pattern="broadcast")[1]["late"]["mean"] < late["ks"]["mean"]
    assert run("agreed", seed, pattern="broadcast")[1]["late"]["mean"] > late["ks"]["mean"]


def test_what_never_leaves_its_sender_is_reported_as_undelivered(seed):
    class Stuck(AcknowledgedMulticast):
        def receive(self, message):
            return [effect for effect in super().receive(message) if not hasattr(effect, "to")]

    simulation = Simulation(
        Stuck, 3, 20, seed=seed, workload=Workload("unicast"), control_sizes=lambda m: [0] * len(m)
    )
    left = simulation.run()
    totals = simulation.ledger.totals()
    assert len(left) == totals["messages"] - totals["deliveries"] > 0
    assert {entry.since for entry in left} == {None}
