"""`happened stream`: what it says before Spark is started, and of what Spark says."""

import pytest

from happened.cli import main
from happened.cli.stream import _cause, _judge


def test_a_trace_that_is_not_there_is_refused_at_once(tmp_path, capsys):
    assert main(["stream", str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 2
    assert "nothing: no such file or directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "told, shown",
    [
        (
            "[STREAM_FAILED] Query\nhappened.core.errors.TraceFormatError: a.jsonl: is gone\n\tat",
            "a.jsonl: is gone",
        ),
        ("[SOMETHING_ELSE] no memory\n\tat org.apache", "[SOMETHING_ELSE] no memory"),
    ],
    ids=["ours", "Spark's"],
)
def test_of_a_failed_query_our_own_words_are_shown(told, shown):
    assert _cause(told) == shown


@pytest.mark.parametrize(
    "totals, code",
    [
        ({"messages": 3}, 0),
        ({"messages": 3, "causal_violations": 1, "quarantined": 1}, 1),
        ({"messages": 3, "quarantined": 1}, 2),
        ({}, 3),
    ],
    ids=["holds", "violated", "quarantined", "nothing to judge"],
)
def test_the_exit_code_says_what_was_found(totals, code, capsys):
    assert _judge(totals, as_json=True) == code
    capsys.readouterr()


@pytest.mark.parametrize(
    "words, told",
    [
        ("", "--otlp"),
        ("T --otlp", "leave TRACE out"),
        ("--otlp --follow", "--follow is about traces"),
        ("--otlp --master local[2]", "--master is about traces"),
        ("--otlp --otlp-grpc 4317", "HOST:PORT"),
        ("--otlp --otlp-http 127.0.0.1:70000", "HOST:PORT"),
        ("--otlp --otlp-grpc off --otlp-http off", "nothing can be received"),
        ("--otlp --settle 9 --window 5", "--window"),
        ("--otlp --settle 0", "positive"),
        ("--otlp --otlp-grpc 192.0.2.1:4317 --otlp-http off", "cannot listen on 192.0.2.1:4317"),
        ("--otlp --otlp-grpc off --otlp-http 192.0.2.1:4318", "cannot listen on 192.0.2.1:4318"),
    ],
)
def test_what_cannot_be_received_is_said_before_anything_is_done(words, told, tmp_path, capsys):
    try:
        code = main(["stream", *words.split(), "--out", str(tmp_path / "out")])
    except SystemExit as error:  # of argparse
        code = error.code
    assert code == 2
    assert told in capsys.readouterr().err
