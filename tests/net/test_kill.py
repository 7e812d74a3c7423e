"""Five real processes, killed with -9 and cut from one another at random; their traces tell the rest.

The seed decides who is killed and cut, when and for how long, and what everybody sends: --seed N repeats it.
"""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from judged_on_spark import judge_on_spark
from netcluster import NAMES, Cluster, schedule

import effort
from happened.causality import check_order
from happened.core.errors import TraceFormatError
from happened.ordering import protocols

OVERLAPPING = [["alice", "bob", "carol"], ["carol", "dave"], ["dave", "erin", "alice"], NAMES]
OPTIONS = {"bss-groups": {"groups": OVERLAPPING}}
CLAIM = sorted(protocols())
"""Every protocol claims some order on reliable links, and none minds processes that are slow."""
SERIALIZED = [name for name in CLAIM if protocols()[name].assumes.serialized]


def survive(tmp_path, seed, protocol, messages, *, duration, every, pace, timeout, **more):
    faults = schedule(seed, duration, every)
    with Cluster(
        tmp_path, seed, protocol=protocol, messages=messages, pace=pace, options=OPTIONS.get(protocol), **more
    ) as cluster:
        cluster.suffer(faults)
        assert cluster.kills >= 2
        cluster.wait(timeout)
    trace = cluster.judge()
    print(f"{protocol}: {cluster.kills} kills, {cluster.cuts} cuts, {trace.num_rows} events")
    return trace


@pytest.mark.sampled
@pytest.mark.parametrize(
    "protocol",
    [*(pytest.param(each, marks=pytest.mark.slow) for each in ("ks", "causal-total")), "sequencer"],
)
def test_nothing_is_lost_repeated_or_misordered_by_kills_and_partitions(tmp_path, seed, protocol):
    messages, duration = (400, 4) if protocol == "ks" else (60, 2.5 if effort.THOROUGH else 1.5)
    survive(tmp_path, seed, protocol, messages, duration=duration, every=0.35, pace=0.008, timeout=90)


@pytest.mark.parametrize("protocol", [pytest.param(SERIALIZED[0], marks=pytest.mark.slow), *SERIALIZED[1:]])
def test_senders_that_share_a_token_are_serialized_whoever_is_killed(tmp_path, seed, protocol):
    """All send at once. What a message carries would not do if two had the token: the second is refused, and
    so is everything after it. That sends have one order shows in the total order of deliveries."""
    trace = survive(tmp_path, seed, protocol, 25, duration=1.0, every=0.4, pace=0.008, timeout=60)
    assert check_order(trace, "total").holds


@pytest.mark.slow
@pytest.mark.parametrize("protocol", CLAIM)
def test_a_hundred_thousand_messages_survive(tmp_path, seed, protocol):
    """Kills and partitions while they are sent, about forty; then Spark judges."""
    more = {"limits": {"first_retry": 0.02, "last_retry": 0.3, "heartbeat": 1.0, "compaction": 2_000_000}}
    more |= {"duration": 60, "every": 1.5, "pace": 0.003, "burst": 10, "timeout": 3600}
    trace = survive(tmp_path, seed, protocol, 20_000, **more)
    judge_on_spark(tmp_path, protocols()[protocol].order, trace.num_rows, 100_000)


def test_the_schedule_of_faults_is_a_function_of_the_seed(seed):
    assert schedule(seed, 10, 0.5) == schedule(seed, 10, 0.5) != schedule(seed + 1, 10, 0.5)


# The judge must be able to say no: each fault below is planted in what the processes left behind.


def test_planted_faults_are_found(tmp_path, seed):
    with Cluster(tmp_path, seed, messages=30, pace=0.001) as cluster:
        cluster.wait(60)
    cluster.judge()
    part = next(path for path in sorted((tmp_path / "trace").glob("*.parquet")))
    good = pq.read_table(part)
    last = good.num_rows - 1
    while good["kind"][last].as_py() != "deliver":
        last -= 1
    lost = good.slice(0, last)
    pq.write_table(lost, part)
    with pytest.raises(AssertionError):
        cluster.judge()
    delivered = pc.equal(good["kind"], "deliver").to_pylist()
    first = delivered.index(True)
    swapped = good["message"].to_pylist()
    swapped[first], swapped[last] = swapped[last], swapped[first]
    place = good.schema.get_field_index("message")
    pq.write_table(good.set_column(place, good.schema.field(place), [swapped]), part)
    with pytest.raises((AssertionError, TraceFormatError)):  # a violation, or an effect before its cause
        cluster.judge()
    pq.write_table(good, part)
    cluster.judge()
    cluster.again.append("alice:1")
    with pytest.raises(AssertionError, match="delivered again"):
        cluster.judge()
