"""A node that was away catches up in bounded memory, and so do those who kept its messages."""

import time

import pytest
from netcluster import NAMES, QUICK, Cluster

MEGABYTE = 1 << 20


def catch_up(tmp_path, seed, messages, timeout, limit):
    """Erin is away while the others send; then she comes, and only listens."""
    more = {"limits": QUICK | {"compaction": 4 * MEGABYTE}, "trace": False, "size": 256, "flush": False}
    with Cluster(tmp_path, seed, messages=messages, pace=0, silent=["erin"], **more) as cluster:
        deadline = time.monotonic() + timeout
        while any(child.last.get("sent") != messages for child in cluster.children.values()):
            assert time.monotonic() < deadline, cluster.state(cluster.expected())
            time.sleep(0.1)
        waiting = sum(child.last["outbox"] for child in cluster.children.values())
        assert waiting >= cluster.expected()["erin"] > 2 * messages
        cluster.start("erin")
        cluster.wait(timeout)
    assert not cluster.again
    print(waiting, {name: f"{cluster.most_rss[name] / MEGABYTE:.0f} MB" for name in NAMES})
    assert cluster.most_rss["erin"] < limit * MEGABYTE


@pytest.mark.slow
def test_a_node_that_was_away_for_ten_thousand_messages_catches_up(tmp_path, seed):
    catch_up(tmp_path, seed, 4_000, 120, limit=120)


@pytest.mark.slow
def test_a_node_that_was_away_for_a_hundred_thousand_messages_catches_up(tmp_path, seed):
    catch_up(tmp_path, seed, 42_000, 1800, limit=120)
