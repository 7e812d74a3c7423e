"""docs/runtime.md, "From zero", as a newcomer follows it: the page's program and its commands in a folder."""

import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from brokers import broker
from netcluster import free_ports

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "docs" / "runtime.md").read_text().split("## From zero")[1].split("\n## ")[0]
(PROGRAM,) = re.findall(r"```python\n(.*?)```", SECTION, re.S)
(SHOWN,) = re.findall(r"in this order:\n\n```\n(.*?)```", SECTION, re.S)
ROWS = [line.split(" | ") for line in SECTION.splitlines() if "python lunch.py" in line and "| `" in line]


def commands(row):
    """What the page says to do before the program runs, but for the server."""
    text = re.search(r"`(.*?)`", row[1]).group(1)
    return [shlex.split(each) for each in text.split(" && ")]


def follow(folder, program, how, before=()):
    """Do what the page says; returns what carol's terminal shows."""
    (folder / "lunch.py").write_text(program)
    for _, *arguments in before:
        subprocess.run([sys.executable, "-m", "happened", *arguments], cwd=folder, check=True, timeout=60)
    command = [sys.executable, "lunch.py"]
    running = {
        name: subprocess.Popen([*command, name, how], cwd=folder, stdout=subprocess.PIPE, text=True)
        for name in ("carol", "bob", "alice")
    }
    watch = threading.Timer(90, lambda: [each.kill() for each in running.values()])
    watch.start()
    try:
        return "".join(running["carol"].stdout.readline() for _ in SHOWN.splitlines())
    finally:
        watch.cancel()
        for each in running.values():
            each.kill()
            each.wait()
            each.stdout.close()


def elsewhere():
    """The program at ports that are free here."""
    program = PROGRAM
    for port, free in zip(("7001", "7002", "7003"), free_ports(3), strict=True):
        assert program.count(port) == 1
        program = program.replace(port, str(free))
    return program


def test_the_page_has_a_way_for_each_kind_of_link():
    assert [re.search(r"lunch.py alice (\w+)", row[2]).group(1) for row in ROWS] == ["key", "tls", "nats"]


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS[:2], ids=["key", "tls"])
def test_a_first_ordered_message(row, tmp_path):
    how = re.search(r"lunch.py alice (\w+)", row[2]).group(1)
    assert follow(tmp_path, elsewhere(), how, commands(row)) == SHOWN


@pytest.mark.long
def test_a_first_ordered_message_through_a_broker(tmp_path):
    assert commands(ROWS[2]) == [["nats-server", "-js"]]
    with broker(tmp_path / "broker") as server:
        program = PROGRAM.replace("nats://127.0.0.1:4222", server.urls[0])
        assert program != PROGRAM
        assert follow(tmp_path, program, "nats") == SHOWN
