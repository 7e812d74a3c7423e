"""`happened advise`: exit codes, table, document, file."""

import json

import pyarrow.parquet as pq
import pytest

from causality import traces
from happened.cli import main
from happened.experiments.advise import Optimality
from happened.sim.run import Parameters, simulate
from happened.trace import write_jsonl


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("advise") / "run"
    simulate(Parameters(1, processes=4, messages=80), out)
    return str(out)


def written(tmp_path, chains):
    file = tmp_path / "trace.jsonl"
    write_jsonl(traces.table(traces.number(chains)), file)
    return str(file)


def test_the_report_ranks_protocols_and_names_what_does_not_apply(run, capsys):
    assert main(["advise", run, "--protocols", "rst,ks,acknowledged"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("80 messages to ") and "1 computation of up to 4 processes" in lines[0]
    ranked = [line.split()[0] for line in lines if line.startswith(("ks ", "rst ", "acknowledged "))]
    assert ranked == ["ks", "rst", "acknowledged"]
    assert any("acknowledged not applicable: the trace is multicast" in line for line in lines)
    assert any(line.startswith("  FIFO links        BROKEN  ") for line in lines)
    assert lines[-1].startswith("optimal: ks carried = necessary, ")


def test_json_holds_figures_assumptions_and_the_optimum(run, capsys):
    assert main(["advise", run, "--protocols", "ks,bss", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ks, bss = document["protocols"]
    assert ks["protocol"] == "ks" and ks["control_bytes"] > 0 and ks["added_delay"] > 0
    assert bss["control_bytes"] is None and "broadcast" in bss["not_applicable"]
    assert document["optimality"]["holds"] and document["optimality"]["carried"] > 0
    unicast = document["assumptions"][0]
    assert (unicast["name"], unicast["holds"]) == ("unicast only", False)


def test_out_gets_a_row_per_protocol(run, tmp_path, capsys):
    assert main(["advise", run, "--protocols", "ks,ses", "--out", str(tmp_path / "new")]) == 0
    assert f"written to {tmp_path / 'new'}" in capsys.readouterr().err
    assert pq.read_table(tmp_path / "new" / "advice.parquet")["protocol"].to_pylist() == ["ks", "ses"]


def test_a_forbidden_order_is_accepted_as_arrivals_and_said_so(tmp_path, capsys):
    chains = {
        "a": [
            {"kind": "send", "message": "m", "to": ["b"]},
            {"kind": "send", "message": "n", "to": ["b"]},
        ],
        "b": [{"kind": "deliver", "message": "n"}, {"kind": "deliver", "message": "m"}],
    }
    assert main(["advise", written(tmp_path, chains)]) == 0
    out = capsys.readouterr().out
    assert "note: 1 of 2 recorded deliveries came in an order that no causal protocol allows" in out
    assert "0.50 ev" in out


def test_no_sends_leave_nothing_to_advise_on(tmp_path, capsys):
    path = written(tmp_path, {"a": [{"kind": "internal"}], "b": [{"kind": "receive", "message": "m"}]})
    assert main(["advise", path]) == 3
    assert "nothing to advise on" in capsys.readouterr().out


def test_what_is_no_trace_and_what_cannot_be_written_is_refused(run, tmp_path, capsys):
    assert main(["advise", str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["advise", run, "--out", str(tmp_path / "file")]) == 2
    assert main(["advise", run, "--master", "spark://nowhere:7077"]) == 2
    assert "needs --out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["advise", run, "--protocols", "kss"])


def test_a_ks_that_is_not_optimal_is_reported_loudly(run, monkeypatch, capsys):
    wrong = Optimality(carried=5, necessary=4, edges=3, differing=1)
    monkeypatch.setattr("happened.experiments.advise.compare_with_necessary", lambda *_: wrong)
    assert main(["advise", run, "--protocols", "ks"]) == 1
    assert "NOT OPTIMAL: ks carried 5 units and 4 are necessary" in capsys.readouterr().out
