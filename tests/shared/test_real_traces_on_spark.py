"""Every sample of EXPECTED.json, imported and then analysed on Spark in one run: the expected counts again.

All samples lie in one trace, as computations of their own, so that one analysis does for them all; it is done
twice, with the largest ones whole and with them cut into epochs. `make test-slow` does both on a cluster of
two workers and on Spark Connect too.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from causality.traces import rows_of
from happened import trace
from happened.causality.analysis import TABLES, analyse
from happened.spark.pipeline import analyze_path
from happened.trace.importing import import_files
from happened.trace.readers import Options
from spark.test_cluster import cluster_of
from spark.test_connect import python, server, without_java  # noqa: F401

MODES = {"whole": {}, "cut": {"whole_events": 4500, "epoch_events": 2000}}
NOT_EXPECTED = ("jaeger/testTrace.json", "otlp/kiali-bookinfo-tempo.json")
"""Formats of which no counts are expected: held against the kernels below."""


@pytest.fixture(scope="module")
def expected(shared_traces):
    return json.loads((shared_traces / "EXPECTED.json").read_text())


@pytest.fixture(scope="module")
def samples(shared_traces, expected, tmp_path_factory):
    """One trace of them all, and the computations of each file."""
    folder = tmp_path_factory.mktemp("samples")
    computations = {}
    options = Options(parsers=str(shared_traces / "shiviz" / "parsers.json"))
    (folder / "trace").mkdir()
    for name in dict.fromkeys([key.partition("#")[0] for key in expected] + [*NOT_EXPECTED]):
        imported = folder / name.replace("/", "-")
        of_format = options if name.startswith("shiviz/") else Options()
        import_files([shared_traces / name], imported, options=of_format)
        for part in (imported / "trace").glob("*.parquet"):
            shutil.move(part, folder / "trace" / f"{imported.name}-{part.name}")
            names = pq.read_table(folder / "trace" / f"{imported.name}-{part.name}")["computation"]
            computations.setdefault(name, set()).update(names.unique().to_pylist())
    assert sum(map(len, computations.values())) == len(set().union(*computations.values()))
    return folder / "trace", computations


@pytest.fixture(scope="module")
def analysed(spark, samples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    return {
        mode: (folder / mode, analyze_path(spark, samples[0], folder / mode, **options))
        for mode, options in MODES.items()
    }


@pytest.fixture(params=MODES)
def answers(request, analysed):
    return analysed[request.param]


def per_computation(out):
    """What the tables say of each computation, under the names of EXPECTED.json."""
    stamps = pq.read_table(out / "stamps").combine_chunks()
    clocks = stamps["clock"].combine_chunks()
    past = np.add.reduceat(clocks.values.to_numpy(), clocks.offsets.to_numpy()[:-1], dtype=np.int64)
    sums = pa.table({"computation": stamps["computation"], "past": past})
    counts = {}
    for row in sums.group_by("computation").aggregate([("past", "sum"), ("past", "count")]).to_pylist():
        events, ordered = row["past_count"], row["past_sum"] - row["past_count"]
        counts[row["computation"]] = {
            "events": events,
            "ordered_pairs": ordered,
            "concurrent_pairs": events * (events - 1) // 2 - ordered,
        }
    processes = pq.read_table(out / "epochs", columns=["computation", "process", "epoch"])
    processes = processes.filter(pc.equal(processes["epoch"], 0))
    for name, table in (("processes", processes), ("reduction_edges", pq.read_table(out / "predecessors"))):
        found = dict(zip(*(column.to_pylist() for column in _counted(table)), strict=True))
        for computation, of in counts.items():
            of[name] = found.get(computation, 0)
    return counts


def _counted(table):
    counted = table["computation"].combine_chunks().value_counts()
    return counted.field("values"), counted.field("counts")


COUNTED_AS = {
    "events": "events", "nodes": "events", "hosts": "processes", "agents": "processes",
    "reduction_edges": "reduction_edges", "ordered_pairs": "ordered_pairs",
    "concurrent_pairs": "concurrent_pairs",
}  # fmt: skip
"""Fields of EXPECTED.json that the tables answer; the others are the import's or need a brute force."""


def test_every_expected_count_is_in_the_tables(answers, samples, expected):
    out, _ = answers
    counts = per_computation(out)
    compared = 0
    for key, fields in expected.items():
        file, _, run = key.partition("#")
        names = [name for name in samples[1][file] if not run or name.endswith(f"#{run}")]
        for field, value in fields.items():
            if field == "traces":
                assert len(names) == value, key
            elif field in COUNTED_AS:
                counted = "processes" if (file[:9], field) == ("etcd-raft", "nodes") else COUNTED_AS[field]
                assert sum(counts[name][counted] for name in names) == value, (key, field)
                compared += 1
    assert compared > 200


def test_the_summary_is_the_sum_of_the_tables(answers):
    out, summary = answers
    counts = per_computation(out)
    assert summary["computations"] == len(counts) > 250
    for name in ("events", "processes", "ordered_pairs", "concurrent_pairs", "reduction_edges"):
        assert summary[name] == sum(of[name] for of in counts.values()), name
    assert summary["quarantined"] == 0


def test_logged_clocks_are_the_recomputed_ones(answers):
    """Of the token logs, the ring elections and ShiViz's logs."""
    out, summary = answers
    assert summary["clocks_logged"] > 10_000
    assert summary["clock_mismatches"] == summary["clock_regressions"] == summary["clock_impossible"] == 0
    assert pq.read_table(out / "clocks").num_rows == 0


def test_whole_and_cut_say_the_same(analysed):
    (whole, said), (cut, also_said) = analysed.values()
    assert said == also_said
    epochs = pc.max(pq.read_table(cut / "stamps", columns=["epoch"])["epoch"]).as_py()
    assert epochs > 3
    for name in ("predecessors", "clocks"):
        rows = [sorted(pq.read_table(out / name).to_pylist(), key=str) for out in (whole, cut)]
        assert rows[0] == rows[1], name


def test_the_kernels_say_the_same(analysed, samples):
    _, summary = analysed["whole"]
    expected = analyse(trace.read(samples[0]))
    compared = summary.keys() & expected.totals.keys()
    assert {name: summary[name] for name in compared} == {name: expected.totals[name] for name in compared}
    assert {"messages", "lost", "fifo_violations", "causal_violations"} <= compared
    assert summary["causal_violations"] > 0
    assert all((analysed["whole"][0] / name).is_dir() for name in TABLES)


ELSEWHERE = """
import json, sys
from pathlib import Path
from happened.spark.pipeline import analyze_path
from happened.spark.session import session

master, trace, out, modes = sys.argv[1:]
spark = session(master)
told = {
    mode: analyze_path(spark, Path(trace), Path(out) / mode, **options)
    for mode, options in json.loads(modes).items()
}
print(json.dumps(told))
"""


def the_same_elsewhere(done, folder, samples):
    """Both analyses, made by a process that is done, have the rows that the kernels have."""
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.strip().splitlines()[-1])
    expected = analyse(trace.read(samples[0]))
    for mode in MODES:
        for name in TABLES:
            found = pq.read_table(folder / mode / name)
            assert rows_of(found, name) == rows_of(expected.table(name), name), (mode, name)
        assert told[mode]["events"] == expected.totals["events"]


@pytest.mark.slow
def test_the_same_rows_on_a_cluster_of_two_workers(samples, tmp_path):
    with cluster_of(tmp_path) as (url, _):
        command = [sys.executable, "-c", ELSEWHERE, url, samples[0], tmp_path / "out", json.dumps(MODES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    the_same_elsewhere(done, tmp_path / "out", samples)


@pytest.mark.slow
def test_the_same_rows_on_spark_connect(samples, server, tmp_path):  # noqa: F811
    done = without_java("-c", ELSEWHERE, server, samples[0], tmp_path / "out", json.dumps(MODES))
    the_same_elsewhere(done, tmp_path / "out", samples)
