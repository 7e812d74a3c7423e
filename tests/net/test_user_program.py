"""A user's program with everything that a node offers runs, and `mypy --strict` takes it."""

import subprocess
import sys
from pathlib import Path

import pytest

from happened import net
from happened.net import Message, Node, Subscription

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")

# What the parts of a node ask of each other, and what `with` and `async for` stand for.
INTERNAL = {"multicast_with", "name_of", "is_open", "finish", "revive", "is_journaled"}
INHERITED = {"payloads", "acknowledge", "acknowledge_and_multicast", "hand", "take", "take_nowait"}
# Of protocols whose application manages histories, and of nodes that begin with the state of another.
ELSEWHERE = {"history", "is_state"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_program_uses_everything_that_is_public():
    text = PROGRAM.read_text()
    offered = set(net.__all__) | public(Node) | public(Message)
    offered |= public(Subscription) - {"flush", "nack"} - INHERITED
    left_out = {name for name in offered - INTERNAL - ELSEWHERE if name not in text}
    assert left_out <= {"close"} and len(offered) > 70


def test_the_program_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.endswith("Causality.BEFORE") for line in lines)
    assert any(line.startswith("Order(item='bread', count=2)") for line in lines)


WRONG = {
    "Node('a', peers=['b'], telemetry='yes')": "telemetry",
    "Node('a', peers=['b'], guard='key')": "guard",
    "n: int = node.multicast_nowait('b', b'')": "assignment",
    "node.multicast_nowait(5, b'')": "arg-type",
    "message.nack(delay='1')": "arg-type",
    "message.processing().done": "attr-defined",
    "node.subscribe().ack": "attr-defined",
}


@pytest.mark.slow
def test_a_strict_type_checker_takes_it_and_finds_mistakes(tmp_path):
    wrong = tmp_path / "wrong.py"
    head = "from happened.net import Message, Node\n\ndef f(node: Node, message: Message) -> None:\n"
    wrong.write_text(head + "".join(f"    {line}\n" for line in WRONG))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file="),
            *(str(PROGRAM), str(wrong)),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        timeout=600,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert all("wrong.py" in line for line in errors), done.stdout + done.stderr
    found = {int(line.split(":")[1]) for line in errors}
    assert found == set(range(4, 4 + len(WRONG))), done.stdout
