"""Every example does what its README says, as a user would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from happened.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def output(*command):
    done = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_store_keeps_causal_order():
    lines = output("examples/store.py")
    assert lines[1] == "dave reads at carol:  photo = party.jpg, album = hidden"
    assert lines[2] == "as bob wrote it"
    assert "album = hidden" in lines[3]


def test_without_order_the_anomaly_can_be_seen():
    lines = output("examples/store.py", "--order", "off")
    assert lines[0] == "bob reads at bob:     album = hidden"
    assert lines[1] == "dave reads at carol:  photo = party.jpg, album = public"
    assert lines[2].startswith("ANOMALY")
    assert "album = hidden" in lines[3], "a read that waits for what its client has seen is right even then"


def test_in_the_chat_the_answer_waits_for_the_question():
    assert output("examples/chat.py") == [
        "carol: [1] alice: is everybody here?",
        "carol: bob:1 is here, and waits for alice:2",
        "carol: [2] alice: has anyone seen my ring?",
        "carol: [3] bob, to [2]: it is in the kitchen",
    ]


def test_spans_of_nodes_say_what_an_answer_waited_for(tmp_path, capsys):
    lines = output("examples/spans.py", str(tmp_path / "spans.json"))
    assert lines[:3] == [
        "alice:1 has anyone seen my ring?",
        "bob:1 in the kitchen",
        "bob:1 waited for alice:1",
    ]
    assert main(["import", str(tmp_path / "spans.json"), "--out", str(tmp_path / "spans")]) == 0
    assert main(["check", str(tmp_path / "spans")]) == 0
    assert main(["ask", "why", str(tmp_path / "spans"), lines[3].removeprefix("span ")]) == 0
    said = capsys.readouterr().out
    assert "causal order holds: 3 deliveries examined, no violation" in said and "receive “hold”" in said


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert path.name in text


@pytest.mark.parametrize(
    ("story", "found"),
    [
        ("apart", "9 global states: possibly True, definitely False"),
        ("token", "5 global states: possibly False, definitely False"),
        ("rendezvous", "6 global states: possibly True, definitely True"),
    ],
)
def test_a_predicate_is_detected_from_relevant_events(story, found):
    lines = output("examples/predicate.py", story)
    assert lines[-1] == found
    assert ("possibly both were inside" in lines) == ("possibly True" in found)
