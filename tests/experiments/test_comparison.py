"""The comparison: one schedule for all, refusals instead of wrong figures, intervals, readable plots."""

import pyarrow.parquet as pq
import pytest

from happened.core.errors import LocalProtocolError
from happened.experiments.compare import MEASURES, SCHEMA, Comparison, compare, summarise
from happened.experiments.runs import estimate, write_rows
from happened.sim.network import Network
from happened.sim.workload import Workload


def rows(*protocols, processes=(4,), seeds=(1, 2), messages=150, pattern="multicast", fifo=False):
    comparison = Comparison(protocols, processes, seeds, messages, Workload(pattern), Network(fifo=fifo))
    return list(compare(comparison))


def by_protocol(found):
    return {summary.protocol: summary for summary in summarise(found)}


def test_protocols_that_wait_no_longer_than_needed_hold_the_same_messages_for_the_same_time():
    found = by_protocol(rows("ks", "rst", "ses", seeds=(1, 2, 3)))
    assert found["ks"].estimates["held"] == found["rst"].estimates["held"] == found["ses"].estimates["held"]
    assert found["ks"].estimates["added_delay"] == found["rst"].estimates["added_delay"]
    assert found["ks"].estimates["entries"].mean < found["rst"].estimates["entries"].mean == 16
    assert found["rst"].estimates["entries"].error == 0 < found["ks"].estimates["entries"].error


def test_every_figure_but_the_time_it_took_is_repeatable():
    clockless = [m.name for m in MEASURES if not m.name.endswith("_cpu")]
    first, again = rows("ks", "agreed"), rows("ks", "agreed")
    assert [[row[name] for name in clockless] for row in first] == [
        [row[name] for name in clockless] for row in again
    ]
    assert all(row["send_cpu"] > 0 and row["delivery_cpu"] > 0 for row in first)
    assert {row["seed"] for row in first} == {1, 2} and first[0]["entries"] != first[1]["entries"]


@pytest.mark.parametrize(
    ("protocol", "pattern", "reason"),
    [
        ("acknowledged", "multicast", "offers only unicast"),
        ("psync", "unicast", "offers only broadcast"),
        ("flooding", "broadcast", "needs FIFO links"),
    ],
)
def test_a_protocol_outside_its_assumptions_has_a_reason_and_no_figure(protocol, pattern, reason):
    ticks = []
    comparison = Comparison((protocol, "ks"), (3,), (1,), 50, Workload(pattern))
    found = by_protocol(list(compare(comparison, ticks.append)))
    assert reason in found[protocol].not_applicable and found[protocol].estimates == {}
    assert found["ks"].not_applicable is None and found["ks"].estimates["control_bytes"].mean > 0
    assert sum(ticks) == 2 * 50


def test_flooding_applies_once_links_are_fifo():
    found = by_protocol(rows("flooding", pattern="broadcast", fifo=True))["flooding"]
    assert found.not_applicable is None
    assert found.estimates["added"].mean == 3 * 2 and found.estimates["entries"].mean == 0


def test_sizes_count_every_transmission_per_delivery():
    found = by_protocol(rows("agreed", pattern="unicast"))["agreed"]
    assert found.estimates["entries"].mean == 3  # one number in each of three phases
    assert found.estimates["added"].mean == 2


def test_an_unknown_protocol_or_nothing_to_compare_is_an_error():
    with pytest.raises(LocalProtocolError, match="'kss'"):
        rows("kss")
    with pytest.raises(LocalProtocolError, match="needs a protocol"):
        Comparison((), (3,), (1,))


@pytest.mark.parametrize(
    ("values", "mean", "error"),
    [([4.0], 4.0, 0.0), ([1.0, 3.0], 2.0, 12.706), ([2.0] * 5, 2.0, 0.0), ([0.0, 1.0] * 50, 0.5, 0.0997)],
    ids=["one", "two", "all equal", "many"],
)
def test_confidence_intervals_are_students(values, mean, error):
    found = estimate(values)
    assert found.mean == mean and found.error == pytest.approx(error, abs=1e-3)


def test_the_table_has_a_row_per_run(tmp_path):
    found = rows("ks", "acknowledged", processes=(3, 4))
    write_rows(found, SCHEMA, tmp_path / "compare.parquet")
    table = pq.read_table(tmp_path / "compare.parquet").to_pylist()
    assert len(table) == 2 * 2 * 2
    refused = [row for row in table if row["protocol"] == "acknowledged"]
    assert all(row["entries"] is None and "unicast" in row["not_applicable"] for row in refused)
    assert all(row["entries"] > 0 and row["undelivered"] == 0 for row in table if row["protocol"] == "ks")
