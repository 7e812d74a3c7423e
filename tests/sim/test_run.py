"""A run's directory: what is written, what is refused, and that a seed writes the same tables again."""

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from happened.cli import main
from happened.core.errors import LocalProtocolError
from happened.sim.network import Network, Partition
from happened.sim.run import Parameters, simulate
from happened.sim.workload import Workload
from happened.trace import read

PARAMETERS = Parameters(seed=5, processes=4, messages=80, network=Network(duplicate=0.1))


def tables(out):
    return read(out / "trace"), pq.read_table(out / "ledger" / "transmissions.parquet")


def test_the_same_seed_writes_the_same_tables(tmp_path):
    summaries = [simulate(PARAMETERS, tmp_path / name) for name in ("first", "again")]
    assert summaries[0] == summaries[1]
    for first, again in zip(tables(tmp_path / "first"), tables(tmp_path / "again"), strict=True):
        assert first.equals(again) and first.num_rows
    other = Parameters(seed=6, processes=4, messages=80, network=Network(duplicate=0.1))
    simulate(other, tmp_path / "other")
    assert not tables(tmp_path / "other")[0].equals(tables(tmp_path / "first")[0])


def test_the_trace_and_the_ledger_agree_with_the_summary(tmp_path):
    summary = simulate(PARAMETERS, tmp_path / "run", units=True)
    trace, transmissions = tables(tmp_path / "run")
    kinds = trace["kind"].to_pylist()
    ledger = summary["ledger"]
    assert kinds.count("send") == ledger["messages"] == 80
    assert kinds.count("receive") == ledger["arrivals"] == sum(transmissions["copies"].to_pylist())
    assert kinds.count("deliver") == ledger["deliveries"] == ledger["transmissions"] == transmissions.num_rows
    rows = transmissions.to_pylist()
    assert ledger["entries"]["max"] == max(row["entries"] for row in rows)
    assert all(row["model_bytes"] == 6 * row["entries"] + 2 * row["units"] for row in rows)
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert summary == simulate(PARAMETERS)


def test_units_are_recorded_on_arrivals_when_asked(tmp_path):
    simulate(PARAMETERS, tmp_path / "run", units=True)
    trace, transmissions = tables(tmp_path / "run")
    recorded = {}
    for row in trace.to_pylist():
        if row["kind"] == "receive":
            recorded[row["message"], row["process"]] = dict(row["attributes"])["units"].split()
        else:
            assert row["attributes"] is None
    assert any(recorded.values())
    for row in transmissions.to_pylist():
        tokens = recorded[f"p{row['sender']}:{row['clock']}", f"p{row['to']}"]
        assert len(tokens) == row["units"]
        assert all(token.partition(">")[2] in ("p0", "p1", "p2", "p3") for token in tokens)


def test_a_directory_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(LocalProtocolError, match=r"is not empty.*--force"):
        simulate(PARAMETERS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_that_is_interrupted_leaves_nothing_that_looks_like_one(tmp_path):
    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(Parameters(seed=1, processes=3, messages=10_000), tmp_path / "run", progress=interrupt)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


def test_force_replaces_a_run_and_nothing_else(tmp_path):
    simulate(PARAMETERS, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    smaller = Parameters(seed=5, processes=3, messages=10)
    simulate(smaller, tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert tables(tmp_path)[0]["kind"].to_pylist().count("send") == 10
    assert json.loads((tmp_path / "summary.json").read_text())["parameters"]["messages"] == 10


def test_force_does_not_put_a_run_beside_answers_about_another(tmp_path):
    (tmp_path / "stamps").mkdir()
    (tmp_path / "stamps" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(LocalProtocolError, match=r"holds answers about a trace \(stamps\)"):
        simulate(PARAMETERS, tmp_path, force=True)


def test_a_file_is_not_a_directory(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(LocalProtocolError, match="is a file"):
        simulate(PARAMETERS, tmp_path / "run", force=True)


def test_the_summary_holds_every_parameter():
    cut = Partition(1.0, 2.5, frozenset({0, 3}))
    parameters = Parameters(5, "ks", 4, 3, Workload("ring", 0.2), Network(fifo=True, partitions=(cut,)))
    assert simulate(parameters)["parameters"] == {
        "seed": 5,
        "protocol": "ks",
        "processes": 4,
        "messages": 3,
        "tracker": None,
        "relevant": 0.1,
        "workload": {"pattern": "ring", "interval": 0.2},
        "network": {"delay": "exp:0.1", "fifo": True, "duplicate": 0.0, "partitions": ["1:2.5:p0,p3"]},
    }


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"processes": 1}, "at least two processes"),
        ({"messages": 0}, "at least one message"),
        ({"protocol": "hope"}, "no ordering protocol is called 'hope'; there are: .*ks"),
        ({"network": Network(partitions=(Partition(0, 1, frozenset({4})),))}, "the processes are p0 to p3"),
    ],
)
def test_parameters_that_make_no_run_are_refused(changes, reason):
    with pytest.raises(LocalProtocolError, match=reason):
        Parameters(**{"seed": 1, "processes": 4, "messages": 5, **changes})


KILLED = """
import os, sys
from pathlib import Path
from happened.sim.run import Parameters, simulate

def die(done):
    os._exit(9)

simulate(Parameters(seed=5, processes=4, messages=80), Path(sys.argv[1]), progress=die)
"""


def test_what_a_killed_run_left_is_cleaned_and_a_finished_one_stays(tmp_path, capsys):
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run")], check=False).returncode == 9
    simulate(PARAMETERS, tmp_path / "whole")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert main(["clean", str(tmp_path / "run")]) == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]
    assert capsys.readouterr().out.count("removed ") == 2
    main(["clean", str(tmp_path / "whole")])
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"trace", "ledger", "summary.json"}
    assert sorted(path.name for path in (tmp_path / "whole" / "trace").iterdir()) == ["part-000000.parquet"]


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(PARAMETERS, tmp_path / "run", progress=interrupt)
    assert not (tmp_path / "run").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt):
        simulate(PARAMETERS, tmp_path / "there", progress=interrupt)
    assert not [*(tmp_path / "there").iterdir()]
