"""Five real processes with a tracker, killed with -9 and restarted: every timestamp they recorded is exact.

Judged from the union of their traces: in this process in the short version, and by Spark in the long one.
What each application was told, once that was certain, is what the trace has.
"""

import json
import subprocess
import sys

import pytest
from netcluster import NAMES, Cluster, schedule

from happened.causality.analysis import analyse
from happened.trace.tracker_attributes import tracker_attributes
from happened.tracking import Stamp, facts_of

TRACKERS = ["p1", "p2:2", "p3-reduced"]


def survive(tmp_path, seed, tracker, messages, *, duration, every, pace, timeout, **more):
    with Cluster(tmp_path, seed, messages=messages, pace=pace, tracker=tracker, **more) as cluster:
        cluster.suffer(schedule(seed, duration, every))
        assert cluster.kills >= 2
        cluster.wait(timeout)
    table = cluster.judge()
    print(f"{tracker}: {cluster.kills} kills, {cluster.cuts} cuts, {table.num_rows} events")
    return table


def recorded(table):
    """The attributes of every event that a tracker numbered, by process and number."""
    found = {}
    for row in table.select(["process", "label", "relevant", "attributes"]).to_pylist():
        told = dict(row["attributes"] or ())
        if "tracker" in told:
            assert row["relevant"] == ("null" not in told) == (row["label"] != "null event")
            found[row["process"], int(told["relevant_seq"])] = told
    return found


def told_to_applications(tmp_path):
    for name in NAMES:
        for line in (tmp_path / f"{name}.stamps").read_text().splitlines():
            yield Stamp.from_json(json.loads(line))


def check_told(tmp_path, tracker, found):
    """What an application was told and what the trace says of that event are the same."""
    count = 0
    for stamp in told_to_applications(tmp_path):
        expected = tracker_attributes(
            tracker,
            stamp.seq,
            vector=stamp.vector,
            dependencies=stamp.dependencies,
            predecessors=stamp.predecessors,
        )
        assert found[stamp.process, stamp.seq] == expected
        count += 1
    return count


@pytest.mark.parametrize(
    "tracker", [pytest.param(name, marks=[] if name == "p2:2" else [pytest.mark.slow]) for name in TRACKERS]
)
def test_every_timestamp_is_exact_whoever_was_killed(tmp_path, seed, tracker):
    table = survive(tmp_path, seed, tracker, 60, duration=1.5, every=0.35, pace=0.008, timeout=60)
    found = recorded(table)
    answers = analyse(table, questions=["verify-trackers"])
    assert answers.totals["tracker_stamps"] == len(found) > 100
    assert answers.totals["tracker_faults"] == 0, answers.table("trackers").to_pylist()[:5]
    assert check_told(tmp_path, tracker, found) > 50
    assert any("null" in told for told in found.values()) == ("dependencies" in facts_of(tracker).tells)


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
def test_every_timestamp_equals_the_one_recomputed_on_spark(tmp_path, seed, tracker):
    more = {"limits": {"first_retry": 0.02, "last_retry": 0.3, "heartbeat": 1.0, "compaction": 400_000}}
    settings = {"duration": 20, "every": 0.8, "pace": 0.004, "burst": 5, "timeout": 600}
    table = survive(tmp_path, seed, tracker, 4_000, **settings, **more)
    found = recorded(table)
    assert check_told(tmp_path, tracker, found) > 10_000
    command = [
        sys.executable,
        "-m",
        "happened",
        "analyze",
        str(tmp_path / "trace"),
        "--only",
        "verify-trackers",
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "answers"), "--json"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    print(summary)
    assert (summary["tracker_stamps"], summary["tracker_faults"]) == (len(found), 0)
