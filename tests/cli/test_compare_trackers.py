"""`happened compare --trackers`: exit code, stdout, stderr, curves, and the figures of docs/tracking.md."""

import json
from xml.etree import ElementTree

import pyarrow.compute as pc
import pytest

import effort
from happened import trace
from happened.cli import main


def track(capsys, *arguments):
    assert main(["compare", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return {(row["protocol"], row["processes"]): row for row in json.loads(out)["rows"]}


def test_a_table_with_confidence_intervals(capsys):
    arguments = "compare --trackers vector,p1,p2:2 --processes 4:6:2 --messages-each 30 --seeds 3"
    assert main(arguments.split()) == 0
    out, err = capsys.readouterr()
    head, titles, *rows = out.splitlines()
    assert "3 seeds from 1" in head and "null events" in titles and err == ""
    assert [row.split()[:2] for row in rows] == [
        [name, n] for name in ("vector", "p1", "p2:2") for n in ("4", "6")
    ]
    assert "4.00 ±0.00" in rows[0] and " 2 " in rows[4]


def test_a_seed_replays_and_protocols_share_computations(capsys):
    arguments = ["--trackers", "p1,p3-reduced,p3", "--processes", "8", "--seeds", "2", "--seed", "7"]
    found = track(capsys, *arguments)
    assert found == track(capsys, *arguments)
    assert found["p1", 8]["entries"]["mean"] < found["p3-reduced", 8]["entries"]["mean"] < 8
    assert found["p3", 8]["entries"]["mean"] == 8


def test_curves_are_pictures_without_which_the_table_still_comes(capsys, tmp_path):
    arguments = [
        "--trackers",
        "vector,p1",
        "--processes",
        "3:5:1",
        "--messages-each",
        "20",
        "--pattern",
        "clusters:2",
    ]
    assert main(["compare", *arguments, "--out", str(tmp_path / "curves")]) == 0
    assert "vector" in capsys.readouterr().out
    pictures = sorted(path.name for path in (tmp_path / "curves").iterdir())
    assert pictures == [
        f"clusters-2-{what}.svg" for what in ("bits", "entries", "memory", "model-bits", "null-events")
    ]
    text = " ".join(ElementTree.parse(tmp_path / "curves" / pictures[1]).getroot().itertext())
    assert "entries per message" in text and "p1" in text and "vector" in text


# Mean entries per message with 10 % relevant events, and null events per message, that a prototype measured.
FIGURES = {
    "unicast": {10: (6.8, 6.1, 4.2, 7.8), 50: (44.3, 36.3, 39.9, 45.6)},
    "service:6": {50: (32.0, 29.6, 20.1, 34.3)},
    "clusters:10": {50: (29.3, 27.7, 13.6, 30.5)},
}
NULL_EVENTS = {1: 0.38, 2: 0.24, 4: 0.16, 8: 0.10}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("pattern", "n"),
    [
        pytest.param(pattern, n, marks=[pytest.mark.slow] if ":" in pattern else [])
        for pattern in FIGURES
        for n in FIGURES[pattern]
    ],
)
def test_the_entries_of_the_prototype_within_a_tenth(pattern, n, capsys):
    names = ("p1", "p1-prime", "p1-fifo", "p3-reduced")
    arguments = ["--trackers", ",".join(names), "--processes", str(n), "--pattern", pattern]
    arguments += ["--seeds", "2" if effort.THOROUGH else "1"]
    found = track(capsys, *arguments)
    for name, expected in zip(names, FIGURES[pattern][n], strict=True):
        assert found[name, n]["entries"]["mean"] == pytest.approx(expected, rel=0.1), name


@pytest.mark.sampled
def test_the_null_events_of_the_prototype_within_a_tenth(capsys):
    names = ",".join(f"p2:{b}" for b in NULL_EVENTS)
    seeds = "5" if effort.THOROUGH else "1"
    found = track(capsys, "--trackers", names, "--processes", "30", "--messages-each", "50", "--seeds", seeds)
    for b, expected in NULL_EVENTS.items():
        row = found[f"p2:{b}", 30]
        assert row["null_events"]["mean"] == pytest.approx(expected, rel=0.1)
        assert row["most_entries"]["mean"] == b


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--trackers", "hope"], "no tracking protocol is called 'hope'"),
        (["--trackers", "p2:many"], "a bound is a whole number"),
        (["--processes", "1"], "numbers of at least 2"),
        (["--processes", "10:5:1"], "numbers of at least 2"),
        (["--processes", "ten"], "10,30 or 10:50:10"),
        (["--pattern", "gossip"], "no pattern is called 'gossip'"),
        (["--relevant", "1.5"], "a probability in 0 … 1"),
        (["--seeds", "0"], "at least one message per process, and one seed"),
        (["--out", __file__], "is a file"),
        (["--messages", "20"], "--messages is for ordering protocols: leave it out with --trackers"),
        (["--delay", "exp:1"], "--delay is for ordering protocols"),
        (["--protocols", "ks"], "not allowed with"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(arguments, reason, capsys):
    try:
        code = main(["compare", "--trackers", "vector", *arguments])
    except SystemExit as stopped:  # argparse's own way out
        code = stopped.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == "" and reason in err and "Traceback" not in err


def test_direct_says_what_it_needs(capsys):
    assert main(["compare", "--trackers", "direct", "--messages-each", "20"]) == 2
    assert "produce a relevant event before sending" in capsys.readouterr().err


def test_a_tracker_rides_on_simulated_messages_and_is_charged(capsys, tmp_path):
    arguments = "simulate --processes 5 --messages 200 --tracker p3-reduced --relevant 0.3 --seed 3 --out"
    assert main([*arguments.split(), str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "tracker entries" in out and "tracker bytes" in out
    told = trace.read(tmp_path / "run" / "trace").filter(pc.field("relevant")).to_pylist()
    assert len(told) > 50 and all("predecessors" in dict(row["attributes"]) for row in told)
    assert main(["check", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["simulate", "--tracker", "hope"]) == 2
    assert "no tracking protocol is called 'hope'" in capsys.readouterr().err
