"""happened import: exit code, stdout, stderr."""

import json
from pathlib import Path

import pytest

from happened.cli import main

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def run(tmp_path, capsys):
    def run(*arguments):
        code = main(["import", *map(str, arguments), "--out", str(tmp_path / "out")])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_an_import_says_what_it_made_and_can_be_checked(run, tmp_path, capsys):
    code, out, err = run(FIXTURES / "tokens.log")
    assert (code, err) == (0, "")
    told = dict(line.split()[:2] for line in out.splitlines()[:6])
    assert told == {
        "format": "tokens", "computations": "1", "processes": "2", "events": "6", "messages": "2",
        "quarantined": "0",
    }  # fmt: skip
    assert main(["check", str(tmp_path / "out")]) == 0
    assert "causal order holds: 2 deliveries examined" in capsys.readouterr().out


def test_what_was_left_out_is_said_on_stderr_and_counted_on_stdout(run, tmp_path):
    path = tmp_path / "ring.trace"
    path.write_text("0 1 active\n" + "nonsense\n" * 7)
    code, out, err = run(path)
    assert code == 0
    assert "quarantined               7" in out
    assert err.splitlines()[0] == f"{path}:2: is not `node v0,v1,… event args` | nonsense"
    assert err.splitlines()[-1] == "… and 2 more, in the quarantine"


def test_strict_is_an_error(run, tmp_path):
    path = tmp_path / "ring.trace"
    path.write_text("0 1 active\nnonsense\n")
    code, out, err = run(path, "--strict")
    assert (code, out) == (2, "")
    assert f"{path}:2" in err and "without --strict" in err
    assert not (tmp_path / "out").exists()


def test_a_wrong_expression_is_an_error_that_shows_the_line(run):
    code, out, err = run(FIXTURES / "two-runs.log", "--regex", r"(?<host>\d{9}) (?<clock>{.*}) (?<event>.*)")
    assert (code, out) == (2, "")
    assert "matches 0 of 8 lines" in err and "=== first ===" in err


def test_runs_are_separated_by_a_delimiter(run):
    regex = r"\S+ (?<event>.*)\n(?<host>\w+) (?<clock>.*)"
    code, out, err = run(
        FIXTURES / "two-runs.log", "--regex", regex, "--delimiter", "^=== (?<trace>.*) ===$", "--json"
    )
    assert (code, err) == (0, "")
    assert json.loads(out)["computations"] == 2


@pytest.mark.parametrize(("match", "fate"), [("unique", "left unmatched"), ("fifo", "matched in FIFO order")])
def test_ambiguity_is_reported(run, match, fate):
    code, out, _ = run(FIXTURES / "raft.ndjson", "--match", match)
    assert code == 0
    assert f"ambiguous                 1  receives that could be of several sends, {fate}" in out


EMPTY_FILES = {
    "nothing": ("", "is empty: no events"),
    "blank lines": ("\n \n", "is empty: no events"),
    "no resources": ('{"resourceSpans": []}', "holds no events"),
    "no spans": ('{"resourceSpans": [{"scopeSpans": [{"spans": []}]}]}', "holds no events"),
    "a trace without spans": (
        '{"data": [{"traceID": "1", "spans": [], "processes": {}}]}',
        "holds no events",
    ),
}


@pytest.mark.parametrize("name", EMPTY_FILES)
def test_a_file_without_events_is_an_error(run, tmp_path, name):
    text, reason = EMPTY_FILES[name]
    (tmp_path / "log").write_text(text)
    code, out, err = run(tmp_path / "log")
    assert (code, out) == (2, "")
    assert reason in err and len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_an_empty_file_among_others_is_named(run, tmp_path):
    (tmp_path / "none").touch()
    code, out, err = run(FIXTURES / "tokens.log", tmp_path / "none")
    assert code == 0 and "tokens" in out
    assert f"{tmp_path / 'none'}: is empty: no events" in err


def test_json_that_is_nested_too_deeply_is_an_error(run, tmp_path):
    for text in ("[" * 100_000, '{"resourceSpans":' + "[" * 100_000):
        (tmp_path / "log").write_text(text)
        code, _, err = run(tmp_path / "log")
        assert code == 2 and "Traceback" not in err


def test_an_output_that_is_there_is_an_error(run, tmp_path):
    (tmp_path / "out").mkdir()
    code, _, err = run(FIXTURES / "tokens.log")
    assert code == 2
    assert "is already there; import elsewhere, or replace it with --force" in err
