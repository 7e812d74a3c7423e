"""`happened compare`: exit code, table, files."""

import json

import pytest

from happened.cli import main
from happened.experiments.compare import MEASURES

SMALL = ["compare", "--messages", "60", "--seeds", "2"]


def test_the_table_is_aligned_and_says_what_does_not_apply(capsys):
    assert main([*SMALL, "--protocols", "ks,acknowledged", "--processes", "3:5:2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith("processes")] == ["3 processes", "5 processes"]
    header, figures = lines[1], lines[2]
    assert figures.startswith("ks ") and len(header) == len(figures)
    assert all(measure.title in header for measure in MEASURES) and "±" in figures
    assert lines[3].startswith("acknowledged not applicable: pattern 'multicast'")


def test_out_gets_the_rows_and_a_plot_of_each_measure(tmp_path, capsys):
    out = tmp_path / "new"
    assert main([*SMALL, "--protocols", "ks", "--processes", "3,4", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {
        "compare.parquet",
        *(f"{measure.name}.svg" for measure in MEASURES),
    }
    assert f"written to {out}" in capsys.readouterr().err
    assert main([*SMALL, "--protocols", "ks", "--out", str(out)]) == 2
    assert "has compare.parquet already" in capsys.readouterr().err


def test_json_gives_means_and_errors(capsys):
    assert main([*SMALL, "--protocols", "agreed,psync", "--processes", "3", "--json"]) == 0
    agreed, psync = json.loads(capsys.readouterr().out)
    assert agreed["estimates"]["entries"] == {"mean": 3.0, "error": 0.0} and agreed["not_applicable"] is None
    assert "broadcast" in psync["not_applicable"] and psync["estimates"] == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--protocols", "ks,hope"], "no ordering protocol is called 'hope'"),
        (["--processes", "5:3:1"], "numbers of at least 2"),
        (["--processes", "1"], "numbers of at least 2"),
        (["--processes", "1:5:0"], "numbers of at least 2"),
        (["--delay", "soon"], "no delay is called 'soon'"),
        (["--pattern", "shout"], "no pattern is called 'shout'"),
        (["--seeds", "0"], "needs a protocol, a number of processes and a seed"),
    ],
)
def test_bad_usage_exits_with_2_and_a_sentence(arguments, reason, capsys):
    try:
        code = main(["compare", "--messages", "10", *arguments])
    except SystemExit as stopped:  # argparse's own way out
        code = stopped.code
    assert code == 2
    out, err = capsys.readouterr()
    assert out == "" and reason in err and "Traceback" not in err


def test_a_file_is_not_a_directory(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([*SMALL, "--protocols", "ks", "--out", str(tmp_path / "file")]) == 2
    assert "is a file" in capsys.readouterr().err
