"""The same trace has the same sentence and the same exit code, whoever is asked."""

import json
from html import escape

import pytest

from causality import traces
from happened.cli import main
from happened.trace import write_jsonl


def send(message, *to):
    return {"kind": "send", "message": message, "to": list(to)}


def deliver(message):
    return {"kind": "deliver", "message": message}


QUESTION = {
    "alice": [send("question", "bob", "carol")],
    "bob": [deliver("question"), send("answer", "carol")],
}
HOLDS = QUESTION | {"carol": [deliver("question"), deliver("answer")]}
LOST = QUESTION | {"carol": [deliver("answer")]}
CYCLIC = HOLDS | {
    "alice": [{"kind": "internal", "causes": [{"process": "carol", "seq": 2}]}, *HOLDS["alice"]]
}

CASES = {
    "holds": (HOLDS, 0, "causal order holds: 3 deliveries examined, no violation"),
    "violated": (
        QUESTION | {"carol": [deliver("answer"), deliver("question")]},
        1,
        "causal order VIOLATED: 3 deliveries examined, 1 of them too early",
    ),
    "duplicated": (
        HOLDS | {"carol": [*HOLDS["carol"], deliver("answer")]},
        1,
        "causal order holds: 3 deliveries examined, no violation; but 1 duplicated",
    ),
    "misdelivered": (
        HOLDS | {"dave": [deliver("answer")]},
        1,
        "causal order holds: 3 deliveries examined, no violation; but 1 misdelivered",
    ),
    "never sent": (
        HOLDS | {"dave": [deliver("rumour")]},
        1,
        "causal order holds: 3 deliveries examined, no violation; but 1 never sent",
    ),
    "empty": ({}, 3, "causal order undecided: no deliveries to judge"),
    "lost cause": (
        LOST,
        3,
        "causal order undecided: 2 deliveries examined, none of them too early; but 1 message was never "
        "delivered where one sent causally after was, unless that is beyond the end of the trace "
        "(see --complete)",
    ),
    "lost cause of a complete trace": (
        LOST,
        1,
        "causal order VIOLATED: 2 deliveries examined, none of them too early; but 1 message was never "
        "delivered where one sent causally after was",
    ),
    "cyclic": (
        CYCLIC,
        2,
        "causal order undecided: no deliveries to judge; but 6 rows are quarantined and not judged",
    ),
}


@pytest.fixture
def ask(spark, tmp_path, capsys, monkeypatch):
    """Run a command on the session there is, and say how it ended and with which first line."""
    monkeypatch.setattr("happened.spark.session.session", lambda master=None, **_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)

    def ask(command, path, *options):
        words = ["analyze", "--only", "order"] if command == "order" else [command]
        out = ["--out", str(tmp_path / command)] if command != "check" else []
        code = main([*words, str(path), *out, *options])
        return code, capsys.readouterr().out.splitlines()[0]

    return ask


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_and_one_exit_code(ask, tmp_path, case):
    chains, code, sentence = CASES[case]
    path = tmp_path / "trace.jsonl"
    write_jsonl(traces.table(traces.number(chains)), path)
    options = ["--complete"] if "complete" in case else []
    for command in ("check", "analyze", "order"):
        assert ask(command, path, *options) == (code, sentence), command
    assert escape(sentence) in (tmp_path / "analyze" / "report.html").read_text()
    for command in ("analyze", "order"):
        assert json.loads((tmp_path / command / "summary.json").read_text())["complete"] is bool(options)
