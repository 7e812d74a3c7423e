"""Five processes over real JetStream servers: what TCP links must survive, and the loss of servers as well.

Processes are killed, links cut; the union of their traces is judged by `causality`, which has the recorded
events and nothing else.
"""

import threading
import time

import pytest
from brokers import broker
from netcluster import Cluster, schedule

import effort


def run(folder, servers, seed, *, duration, every, timeout, server_faults=lambda servers: None, **plan):
    nats = {"servers": servers.urls, "replicas": len(servers.urls), "start_seconds": 60}
    folder.mkdir()
    with Cluster(folder, seed, nats=nats, **plan) as cluster:
        breaking = threading.Thread(target=server_faults, args=(servers,))
        breaking.start()
        cluster.suffer(schedule(seed, duration, every))
        breaking.join()
        cluster.wait(timeout)
    cluster.judge()
    assert cluster.kills or cluster.cuts, "nothing happened to anybody"
    return cluster


@pytest.mark.slow  # the short form is the harness's
def test_five_processes_over_one_server(tmp_path, seed):
    with broker(tmp_path / "broker") as servers:
        plan = {"messages": 300, "pace": 0.004, "duration": 2.5, "every": 0.5}
        run(tmp_path / "run", servers, seed, timeout=60, **plan)


@pytest.mark.slow
def test_a_cluster_of_three_loses_a_server(tmp_path, dice, seed):
    victim = dice.randrange(3)

    def lose(servers):
        time.sleep(1.5 if effort.THOROUGH else 1.0)
        servers.kill(victim)

    with broker(tmp_path / "broker", servers=3) as servers:
        plan = {"messages": 200, "pace": 0.01, "duration": 2.5, "every": 0.6, "timeout": 90}
        if effort.THOROUGH:
            plan |= {"messages": 300, "duration": 4, "every": 0.7}
        run(tmp_path / "run", servers, seed, server_faults=lose, **plan)
        assert servers.processes[victim].poll() is not None


@pytest.mark.slow
def test_a_cluster_of_three_loses_servers_in_turn(tmp_path, dice, seed):
    """100,000 messages; one server at a time is down, now and then."""

    def lose_in_turn(servers):
        for _ in range(8):
            time.sleep(dice.uniform(4, 8))
            victim = dice.randrange(3)
            servers.kill(victim)
            time.sleep(dice.uniform(2, 5))
            servers.start(victim)
            servers.wait_until_ready(120)

    with broker(tmp_path / "broker", servers=3) as servers:
        plan = {"messages": 20_000, "pace": 0.003, "duration": 60, "every": 3, "timeout": 1500}
        run(tmp_path / "run", servers, seed, server_faults=lose_in_turn, **plan)
