"""Real processes under harm, over each transport, and a judge that shares no code with the runtime.

`make test` does a little over each transport. `make test-slow` does at least 500 kills, stops, cuts, flips,
repetitions, forks and copies, spread over transports and protocols. `pytest --seed N` repeats what is done,
in which order, to whom; when a kill hits is up to the machine.
"""

import asyncio

import pytest

from harness.conductor import NAMES, Plan, World, make_secrets
from harness.harms import do_harm, draw, kinds_of
from harness.judge import judge

QUICK = {"pace": 0.1}
SHORT = (
    (Plan("key", "ks", **QUICK), ("die", "flip", "old copy", "cut", "replay")),
    (Plan("tls", "ks", **QUICK), ("stop", "cut", "fork", "second process", "kill")),
    (Plan("nats", "ks", **QUICK), ("cut", "kill broker", "old copy")),
    (Plan("nats-plain", "ks", **QUICK), ("flip", "kill", "flip", "flip", "flip")),
    (Plan("key", "ks", is_signed=True, is_parking=True), ("lonely copy", "away", "flip")),
)

BROADCAST = {"is_broadcast": True}
TOTAL, BOTH = {"promises": ("total",)}, {"promises": ("causal", "total")}
FOUR = {"members": NAMES}
LONG = (
    (Plan("key", "ks", **FOUR), 60),
    (Plan("key", "rst"), 40),
    (Plan("key", "agreed", **TOTAL), 40),
    (Plan("key", "serialized-multicast"), 40),
    (Plan("key", "prs"), 40),
    (Plan("tls", "pruning", **FOUR), 50),
    (Plan("tls", "causal-total", **BOTH), 40),
    (Plan("tls", "bss", **BROADCAST), 40),
    (Plan("tls", "histories"), 40),
    (Plan("nats", "ks"), 60),
    (Plan("nats", "sequencer", **BOTH), 50),
    (Plan("nats", "ses"), 40),
    (Plan("nats-plain", "ks"), 60),
    (Plan("key", "sequencer", is_signed=True, **BOTH), 40),
    (Plan("nats", "prs", is_signed=True), 40),
    (Plan("tls", "ks", is_signed=True, is_parking=True), 40),
    (Plan("key", "rst", is_parking=True, **FOUR), 40),
)


@pytest.fixture(scope="session")
def secrets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secrets")
    make_secrets(directory)
    return directory


async def run(world, names, lives):
    """What was done, and what the judge says of it; the logs stay in the world's directory."""
    async with world:
        done = await do_harm(world, names)
        await world.settle(lives)
        promises = world.plan.promises
        judgement = judge(world.logs(), causal="causal" in promises, total="total" in promises)
        return done, [*world.faults, *judgement.faults], judgement


def survives(world, names, lives=1):
    plan = world.plan
    print(f"{plan}; logs in {world.directory}")
    done, faults, judgement = asyncio.run(run(world, names, lives))
    print(dict(done), judgement)
    assert faults == [], f"{len(faults)} faults; first: {[str(fault) for fault in faults[:5]]}"
    assert done.total() == len(names)
    assert judgement.handed_over > 10 * len(plan.members), "too little happened to judge"
    if "causal" in plan.promises:
        assert judgement.pairs > judgement.handed_over, "too little was ordered to judge"


@pytest.mark.long
@pytest.mark.parametrize(("plan", "names"), SHORT, ids=[plan.name for plan, _ in SHORT])
def test_a_little_harm_breaks_no_promise(plan, names, tmp_path, secrets, seed):
    survives(World(plan, tmp_path, secrets, seed), names, lives=0)


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "count"), LONG, ids=[plan.name for plan, _ in LONG])
def test_much_harm_breaks_no_promise(plan, count, tmp_path, secrets, seed):
    survives(World(plan, tmp_path, secrets, seed), draw(plan, seed, count))


def test_harm_is_done_five_hundred_times_and_everywhere():
    assert sum(count for _, count in LONG) >= 500
    assert {plan.transport for plan, _ in LONG} == {plan.transport for plan, _ in SHORT}
    for plan, count in LONG:
        kinds = kinds_of(plan)
        assert set(draw(plan, 1, count)) == set(kinds) and len(draw(plan, 1, count)) == count
        assert draw(plan, 1, count) == draw(plan, 1, count) != draw(plan, 2, count)
