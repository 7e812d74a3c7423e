"""`happened simulate` as a person or a pipe sees it: exit code, stdout, stderr."""

import json

import pytest

from happened import ordering
from happened.cli import main
from happened.core.orders import Order
from happened.sim.simulation import Simulation
from oracles.unordered import Unordered

SMALL = ["simulate", "--processes", "4", "--messages", "50"]


def test_a_run_prints_its_seed_and_what_it_cost(capsys):
    assert main([*SMALL, "--seed", "7"]) == 0
    out, err = capsys.readouterr()
    lines = {" ".join(line.split()[:-1]): line.split()[-1] for line in out.splitlines() if line}
    assert lines["seed"] == "7"
    assert lines["messages"] == "50"
    assert lines["undelivered"] == "0"
    for title in ("entries", "control bytes", "model bytes", "waiting, s"):
        assert title in out
    assert err == ""


def test_a_seed_is_drawn_printed_and_replays(capsys):
    assert main([*SMALL, "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert main([*SMALL, "--json", "--seed", str(drawn["parameters"]["seed"])]) == 0
    assert json.loads(capsys.readouterr().out) == drawn
    assert main([*SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["seed"] != drawn["parameters"]["seed"]


def test_every_option_reaches_the_run(tmp_path, capsys):
    options = "--protocol ks --pattern fanout:2 --interval 0.2 --delay uniform:0:1 --fifo --duplicate 0.5"
    cuts = "--partition 0.5:1:p0,p1 --partition 2:3:p3 --seed 1 --units --json"
    out = tmp_path / "run"
    assert main([*SMALL, *options.split(), *cuts.split(), "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["parameters"]["workload"] == {"pattern": "fanout:2", "interval": 0.2}
    assert summary["parameters"]["network"] == {
        "delay": "uniform:0:1",
        "fifo": True,
        "duplicate": 0.5,
        "partitions": ["0.5:1:p0,p1", "2:3:p3"],
    }
    assert summary["ledger"]["transmissions"] == 100
    assert sorted(path.name for path in out.iterdir()) == ["ledger", "summary.json", "trace"]


def test_an_earlier_run_is_replaced_only_by_force(tmp_path, capsys):
    arguments = [*SMALL, "--seed", "1", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    assert "happened check" in capsys.readouterr().out
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and "is not empty" in err and "--force" in err
    assert main([*arguments, "--force"]) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--pattern", "gossip"], "no pattern is called 'gossip'; there are: unicast"),
        (["--delay", "exp:soon"], "is not understood; there are: exp:MEAN"),
        (["--partition", "1:2"], "START:END:p0,p1"),
        (["--partition", "1:2:p9"], "the processes are p0 to p3"),
        (["--duplicate", "2"], "between 0 and 1"),
        (["--interval", "0"], "positive time"),
        (["--processes", "1"], "at least two processes"),
        (["--messages", "0"], "at least one message"),
        (["--protocol", "hope"], "invalid choice: 'hope'"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(arguments, reason, capsys):
    try:
        code = main([*SMALL, *arguments])
    except SystemExit as stopped:  # argparse's own way out
        code = stopped.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == "" and reason in err and "Traceback" not in err


def test_help_shows_an_example_and_the_forms_of_every_text(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for piece in ("example:", "happened help patterns", "summary.json"):
        assert piece in text
    assert main(["help", "patterns"]) == 0
    text = capsys.readouterr().out
    for piece in ("client-server[:S]", "lognormal:MEDIAN:SIGMA"):
        assert piece in text


def test_a_protocol_that_delivers_nothing_exits_with_1_and_says_what_is_missing(request, monkeypatch, capsys):
    class Deaf(Unordered):
        facts = ordering.Facts(
            name="deaf",
            order=Order.CAUSAL,
            description="delivers nothing",
            paper="nobody",
        )

        def receive(self, message):
            return []

    ordering.register(Deaf)
    request.addfinalizer(lambda: ordering.unregister("deaf"))
    monkeypatch.setitem(
        Simulation.__init__.__kwdefaults__, "control_sizes", lambda messages: [0] * len(messages)
    )  # no wire format for it
    assert main([*SMALL, "--protocol", "deaf", "--seed", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "never delivered" in line]) == 10
