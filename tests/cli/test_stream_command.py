"""`happened stream`: what it says before Spark is started, and of what Spark says."""

import signal
from unittest.mock import Mock

import pytest

from happened.causality.judgement import judge_totals
from happened.cli import _parser, main
from happened.cli.analyzing import tell
from happened.cli.stream import _cause, _summary
from happened.receiving.receiver import Receiver
from happened.spark import session as spark_session
from happened.spark.live import live_job


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


@pytest.mark.parametrize("late, code", [(0, 0), (2, 0), (3, 2)])
def test_a_query_whose_python_process_starts_too_late_for_spark_is_started_again(
    late, code, tmp_path, monkeypatch, capsys
):
    told = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."
    ends = [Exception(told)] * late + [True]
    started = []

    def follow(*given, **more):
        started.append(more["checkpoint"])
        return Mock(awaitTermination=Mock(side_effect=[ends[len(started) - 1]]))

    monkeypatch.setattr(live_job, "follow", follow)
    monkeypatch.setattr(live_job, "last_manifest", Mock(return_value={"totals": {"deliveries_judged": 3}}))
    monkeypatch.setattr(spark_session, "session", Mock())
    assert main(["stream", str(tmp_path), "--out", str(tmp_path / "out")]) == code
    assert started == [str(tmp_path / "out" / "checkpoint")] * min(late + 1, 3)
    capsys.readouterr()


def judged(tmp_path, totals, words=""):
    """What is printed, and the exit code, after these totals were told of a trace in tmp_path."""
    (tmp_path / "trace").mkdir(exist_ok=True)
    given = ["stream", str(tmp_path), "--out", "live", *words.split()]
    arguments = _parser(given).parse_args(given)
    return tell(_summary(totals, arguments, tmp_path / "trace"), arguments, "")


@pytest.mark.parametrize(
    "totals, words, code",
    [
        ({"deliveries_judged": 3}, "", 0),
        ({"deliveries_judged": 3, "causal_violations": 1, "quarantined": 1}, "", 1),
        ({"deliveries_judged": 3, "duplicated": 1}, "", 1),
        ({"deliveries_judged": 3, "misdelivered": 1}, "", 1),
        ({"deliveries_judged": 3, "never_sent": 1}, "", 1),
        ({"deliveries_judged": 3, "quarantined": 1}, "", 2),
        ({"deliveries_judged": 3, "lost_causes": 1}, "", 3),
        ({"deliveries_judged": 3, "lost_causes": 1}, "--complete", 1),
        ({"messages": 3}, "", 3),
        ({}, "", 3),
    ],
)
def test_the_exit_code_is_that_of_the_one_judgement(totals, words, code, tmp_path, capsys):
    assert judged(tmp_path, totals, words) == code
    said = capsys.readouterr().out.splitlines()[0]
    summary = {"causal_violations": 0, "deliveries_judged": 0, "complete": bool(words), **totals}
    assert said == judge_totals(summary).sentence


def test_a_run_that_said_it_was_complete_is_judged_so_unless_it_is_followed(tmp_path, capsys):
    lost = {"deliveries_judged": 3, "lost_causes": 1}
    (tmp_path / "summary.json").write_text('{"complete": true}')
    assert judged(tmp_path, lost) == 1
    assert judged(tmp_path, lost, "--cut-off") == 3
    assert judged(tmp_path, lost, "--follow") == 3
    capsys.readouterr()


@pytest.mark.parametrize(
    "words, told",
    [
        ("", "--otlp"),
        ("TRACE --otlp", "leave TRACE out"),
        ("--otlp --follow", "--follow is about traces"),
        ("--otlp --complete", "--complete is about traces"),
        ("TRACE --follow --complete", "is not complete"),
        ("--otlp --master local[2]", "--master is about traces"),
        ("--otlp --otlp-grpc 4317", "HOST:PORT"),
        ("--otlp --otlp-http 127.0.0.1:70000", "HOST:PORT"),
        ("--otlp --otlp-grpc off --otlp-http off", "nothing can be received"),
        ("--otlp --settle 9 --remember 5", "--remember"),
        ("--otlp --settle 0", "positive"),
        ("--otlp --otlp-grpc 192.0.2.1:4317 --otlp-http off", "cannot listen on 192.0.2.1:4317"),
        ("--otlp --otlp-grpc off --otlp-http 192.0.2.1:4318", "cannot listen on 192.0.2.1:4318"),
    ],
)
def test_what_cannot_be_received_is_said_before_anything_is_done(words, told, tmp_path, capsys):
    try:
        words = words.replace("TRACE", str(tmp_path))
        code = main(["stream", *words.split(), "--out", str(tmp_path / "out")])
    except SystemExit as error:  # of argparse
        code = error.code
    assert code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_receiver_ends_with_its_judgement_wherever_the_signal_finds_it(
    number, tmp_path, monkeypatch, capsys
):
    rounds, look, before = [], Receiver.look, signal.getsignal(signal.SIGINT)

    def interrupted(receiver):
        if not rounds:  # the first, before anything is waited for
            signal.raise_signal(number)
        rounds.append(look(receiver))

    monkeypatch.setattr(Receiver, "look", interrupted)
    words = "--otlp --otlp-grpc off --otlp-http 127.0.0.1:0"
    assert main(["stream", *words.split(), "--out", str(tmp_path / "out")]) == 3
    assert "ended traces: 0" in capsys.readouterr().out and len(rounds) == 2
    assert signal.getsignal(signal.SIGINT) is before
