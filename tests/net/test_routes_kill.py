"""A process for every box of a topology; routers are killed -9 and come back with their journals, while
applications without a link between them exchange messages. Their traces are judged."""

from pathlib import Path

import pytest
from judged_on_spark import judge_on_spark
from sitecluster import SiteCluster, router_kills

from happened.ordering import Relays, protocols
from happened.topology import derive, load

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"
SITES = ["departments", "leaf-spine", "federation-ring"]
ROUTING = sorted(name for name, facts in protocols().items() if facts.copies.relays is Relays.ROUTERS)


def inner(file):
    """Those whose death cuts some pair of applications off: somebody else is behind them."""
    routes = derive(load(file))
    blocks = [name for block in routes.blocks for name in block]
    return sorted(name for name in routes.names if blocks.count(name) > 1)


def survive(tmp_path, seed, site, protocol, messages, *, duration, every, pace, timeout, **more):
    file = EXAMPLES / f"{site}.yaml"
    faults = router_kills(seed, inner(file), duration, every)
    with SiteCluster(
        tmp_path, seed, file, protocol=protocol, messages=messages, pace=pace, **more
    ) as cluster:
        cluster.until_under_way()
        cluster.suffer(faults)
        assert cluster.kills >= 1
        cluster.wait(timeout)
    trace = cluster.judge()
    print(f"{site}, {protocol}: {cluster.kills} routers killed, {trace.num_rows} events")
    return cluster, trace


@pytest.mark.parametrize(("site", "protocol"), list(zip(SITES, ROUTING, strict=False)))
def test_a_router_killed_and_restarted_loses_repeats_and_misorders_nothing(tmp_path, seed, site, protocol):
    survive(tmp_path, seed, site, protocol, 30, duration=0.1, every=1.0, pace=0.04, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ROUTING)
@pytest.mark.parametrize("site", SITES)
def test_routers_killed_again_and_again(tmp_path, seed, site, protocol):
    cluster, _ = survive(
        tmp_path, seed, site, protocol, 1500, duration=25, every=0.8, pace=0.02, burst=4, timeout=600
    )
    assert cluster.kills >= 10


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_hundred_thousand_messages_survive_on_their_routes(tmp_path, seed, protocol):
    """Routers are killed while they are sent, about forty times; then Spark judges."""
    file = EXAMPLES / "departments.yaml"
    topology = load(file)
    applications = len(topology.graph) - len(topology.routers)
    each = -(-100_000 // applications)
    limits = {"first_retry": 0.02, "last_retry": 0.3, "heartbeat": 1.0, "compaction": 2_000_000}
    more = {"duration": 60, "every": 1.5, "pace": 0.003, "burst": 10, "timeout": 3600, "limits": limits}
    cluster, trace = survive(tmp_path, seed, "departments", protocol, each, **more)
    assert cluster.kills >= 20
    judge_on_spark(tmp_path, protocols()[protocol].order, trace.num_rows, each * applications)
