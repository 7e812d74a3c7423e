"""`happened explore`: exit code, stdout, stderr, and the counterexample of a protocol without order."""

import json

import pytest

import effort
from happened import ordering
from happened.cli import main
from happened.core.orders import Order
from happened.tracking.knowledge import Knowledge
from oracles.unordered import Unordered


@pytest.fixture
def unordered():
    class Named(Unordered):
        facts = ordering.Facts(
            name="unordered",
            order=Order.CAUSAL,
            description="no order at all",
            paper="nobody",
            assumes=ordering.facts.Assumptions(casts=frozenset({"multicast", "unicast"})),
        )

    ordering.register(Named)
    yield
    ordering.unregister("unordered")


def test_ks_holds(capsys):
    assert main(["explore", "--processes", "3", "--messages", "2"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[:2] == [["order", "causal"], ["programs", "57"]]
    assert ["safety", "holds"] in rows and ["liveness", "holds"] in rows and ["optimality", "holds"] in rows
    assert err == ""


@pytest.mark.sampled
def test_a_protocol_can_be_judged_by_more_than_it_promises(capsys, some_programs):
    assert main(["explore", "--protocol", "chain-two", "--messages", "3"]) == 0
    assert main(["explore", "--protocol", "chain-two", "--messages", "3", "--order", "causal"]) == 1
    assert f"safety violated by {7 if effort.THOROUGH else 1} programs" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_violation_exits_with_1_and_its_shortest_schedule(unordered, capsys):
    assert main(["explore", "--protocol", "unordered", "--messages", "2"]) == 1
    out = capsys.readouterr().out
    assert "safety violated: 0 delivers M(0,2) before M(0,1)" in out
    assert out.splitlines()[-4:] == [
        "    1. 0 sends M(0,1) to {0}",
        "    2. 0 sends M(0,2) to {0}",
        "    3. 0 receives M(0,2)",
        "    4. 0 delivers M(0,2)",
    ]
    assert "optimality" not in out  # not judged: the machine does not tell its log


def test_json_gives_the_whole_result(unordered, capsys):
    arguments = "explore --protocol unordered --messages 2 --fifo --no-self --json"
    assert main(arguments.split()) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["programs"], result["fifo"], result["self_addressed"]) == (11, True, False)
    assert result["programs_violating"]["safety"] == len(result["violations"]) > 0
    first = result["violations"][0]
    assert first["program"] == "0: {1,2}; 1: {2}"
    assert first["schedule"][-1] == "2 delivers M(1,1)"


def test_casts_choose_the_programs(unordered, capsys):
    command = ["explore", "--protocol", "unordered", "--messages", "2", "--fifo", "--no-self", "--casts"]
    assert main([*command, "unicast"]) == 0
    assert main([*command, "multicast"]) == 1
    capsys.readouterr()
    assert main([*command, "broadcast"]) == 2
    assert "offers multicast, unicast, not broadcast" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--processes", "0"], "a positive whole number is needed, not '0'"),
        (["--messages", "many"], "a positive whole number is needed, not 'many'"),
        (["--protocol", "hope"], "no protocol is called 'hope'; there are: "),
        (["--processes", "1", "--no-self"], "can only send to itself"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(arguments, reason, capsys):
    try:
        code = main(["explore", *arguments])
    except SystemExit as stopped:  # argparse's own way out
        code = stopped.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == "" and reason in err and "Traceback" not in err


def test_a_tracker_is_explored(capsys):
    sizes = ["--processes", "3", "--messages", "2", "--relevant-events", "3"]
    for name in ("p1", "p2:1", "p3-reduced"):
        assert main(["explore", "--protocol", name, *sizes]) == 0
        assert "exact" in capsys.readouterr().out
    assert main(["explore", "--protocol", "p1", *sizes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["states"] > 500 and found["violations"] == [] and found["relevant"] == 3


def test_a_wrong_tracker_has_its_schedule_printed(capsys, monkeypatch):
    monkeypatch.setattr(Knowledge, "everyone_lacks_own", lambda knowledge: None)
    assert main(["explore", "--protocol", "p1", "--messages", "2", "--relevant-events", "2"]) == 1
    out = capsys.readouterr().out
    assert "WRONG" in out and "1's next event has the vector (1, 1, 0), not (0, 1, 0)" in out
    assert "  1. event at 0\n    2. 0 sends to 1\n    3. 1 receives from 0" in out


def test_what_a_tracker_is_not_asked_is_refused(capsys):
    for options, why in (
        (["--protocol", "p1-fifo"], "p1-fifo needs FIFO links; add --fifo"),
        (["--protocol", "p1", "--order", "causal"], "--order is for ordering protocols"),
        (["--protocol", "p2:x"], "a bound is a whole number"),
    ):
        assert main(["explore", *options]) == 2
        assert why in capsys.readouterr().err
    assert main(["explore", "--protocol", "differential", "--messages", "2", "--fifo"]) == 0
    with pytest.raises(SystemExit):
        main(["explore", "--protocol", "p9"])
    assert "no protocol is called 'p9'" in capsys.readouterr().err
