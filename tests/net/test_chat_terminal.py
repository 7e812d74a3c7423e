"""`happened node chat` at a terminal: a real pseudo-terminal, whose screen an emulator draws."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import sys
import termios

import pyte
import pytest
from netcluster import free_ports

ROWS, COLUMNS = 24, 60


class Screen(pyte.Screen):
    """Answers what a program asks of its terminal."""

    def write_process_input(self, data):
        os.write(self.terminal, data.encode())


class AtTerminal:
    """One chat, and what its terminal shows."""

    def __init__(self, process, terminal):
        self.process, self._terminal = process, terminal
        self.screen = Screen(COLUMNS, ROWS)
        self.screen.terminal = terminal
        self._stream = pyte.ByteStream(self.screen)
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(terminal, self._read)

    def _read(self):
        try:
            self._stream.feed(os.read(self._terminal, 65536))
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._terminal)
        self._news.set()

    @property
    def shown(self):
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def type(self, text):
        os.write(self._terminal, text.encode())

    async def until(self, condition):
        try:
            async with asyncio.timeout(30):
                while not condition(self.shown):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError("\n".join(self.shown)) from None

    async def meets(self, peer):
        await self.until(lambda shown: f"({peer} is there)" in shown and shown[-1] == "alice>")

    async def sees(self, *lines):
        """Wait until the screen ends with these lines."""
        await self.until(lambda shown: tuple(shown[-len(lines) :]) == lines)


@contextlib.asynccontextmanager
async def at_terminal(name, *arguments):
    controller, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    before = termios.tcgetattr(terminal)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "happened", "node", "chat", name, *arguments, "--plaintext"),
        **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
        env=os.environ | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    chat = AtTerminal(process, controller)
    try:
        yield chat
        async with asyncio.timeout(60):
            await process.wait()
        if process.returncode >= 0:  # it was not killed
            assert termios.tcgetattr(terminal) == before, "the terminal is left as it was"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(controller)
        os.close(controller)
        os.close(terminal)


@contextlib.asynccontextmanager
async def in_a_pipe(name, *arguments):
    pipes = dict.fromkeys(("stdin", "stdout"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "happened", "node", "chat", name, *arguments, "--plaintext"),
        **pipes,
        stderr=asyncio.subprocess.DEVNULL,
    )

    def say(text):
        process.stdin.write(text.encode() + b"\n")

    try:
        yield say, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def both(tmp_path=None):
    """The arguments of alice and of bob."""
    alice, bob = (f"127.0.0.1:{port}" for port in free_ports(2))
    journals = {} if tmp_path is None else {name: tmp_path / name for name in ("alice", "bob")}
    return [
        ["--listen", own, "--peer", peer, *(["--journal", str(journals[name])] if journals else [])]
        for name, own, peer in (("alice", alice, f"bob={bob}"), ("bob", bob, f"alice={alice}"))
    ]


def test_what_is_typed_stays_in_one_piece_while_lines_arrive():
    async def act():
        alice_at, bob_at = both()
        async with at_terminal("alice", *alice_at) as alice, in_a_pipe("bob", *bob_at) as (say, _):
            await alice.meets("bob")
            alice.type("hallo")
            await alice.sees("alice> hallo")
            say("is anybody there?")
            await alice.sees("[1] bob: is anybody there?", "alice> hallo")
            alice.type("\x1b[D" * 4)  # four to the left, behind the h
            say("hello?")
            await alice.sees("[1] bob: is anybody there?", "[2] bob: hello?", "alice> hallo")
            alice.type("\x1b[3~e")  # delete a character, type another
            await alice.sees("[2] bob: hello?", "alice> hello")
            alice.type("\r")
            await alice.sees("[2] bob: hello?", "[3] alice: hello", "alice>")
            long = "a line that is wider than the terminal, so that it goes on below"
            alice.type(long)
            await alice.until(lambda shown: shown[-1] == f"alice> {long}"[COLUMNS:])
            say("one more")
            first, rest = f"alice> {long}"[:COLUMNS], f"alice> {long}"[COLUMNS:]
            await alice.sees("[3] alice: hello", "[4] bob: one more", first.rstrip(), rest)
            alice.type("\x15/to bbo hi\r")
            await alice.sees("nobody is called bbo; did you mean bob?", "alice>")
            alice.type("/wh\t")
            await alice.sees("alice> /who")
            alice.type("\rone\rtwo\rthree")  # typed ahead, faster than it is said
            await alice.until(lambda shown: "alice (you), bob (there)" in shown)
            await alice.sees("[5] alice: one", "[6] alice: two", "alice> three")
            alice.type("\x15")
            alice.type("/quit\r")
        assert alice.process.returncode == 0

    asyncio.run(act())


def test_a_restart_goes_on_where_the_chat_was(tmp_path):
    """alice is killed; then her terminal shows what was said, bob's words come once, and lines keep their
    numbers."""

    async def act():
        alice_at, bob_at = both(tmp_path)
        async with in_a_pipe("bob", *bob_at) as (say, bob):
            async with at_terminal("alice", *alice_at) as alice:
                await alice.meets("bob")
                say("have you got it?")
                await alice.sees("[1] bob: have you got it?", "alice>")
                alice.type("/re 1 yes\r")
                await alice.sees("[2] alice, to [1]: yes", "alice>")
                alice.process.send_signal(signal.SIGKILL)
            say("are you still there?")
            async with at_terminal("alice", *alice_at) as alice:
                await alice.meets("bob")
                await alice.until(lambda shown: "[3] bob: are you still there?" in shown)
                numbered = [line for line in alice.shown if line.startswith("[")]
                assert numbered == [
                    "[1] bob: have you got it?",
                    "[2] alice, to [1]: yes",
                    "[3] bob: are you still there?",
                ]
                alice.type("\x1b[A")  # up: what was typed in an earlier life
                await alice.sees("alice> yes")
                alice.type("\x15/re 1 I have\r")
                await alice.sees("[4] alice, to [1]: I have", "alice>")
                alice.type("\x04")
            assert alice.process.returncode == 0
            async with asyncio.timeout(30):
                told = [(await bob.stdout.readline()).decode().rstrip() for _ in range(4)]
            assert told[-1] == "[4] alice, to [1]: I have"
        assert os.stat(tmp_path / "alice.lines").st_mode & 0o777 == 0o600

    asyncio.run(act())


def test_an_interrupt_ends_it_and_leaves_the_terminal_as_it_was():
    async def act():
        alice_at, _ = both()
        async with at_terminal("alice", *alice_at) as alice:
            await alice.sees("alice>")
            alice.type("half a line\x03")
        return alice.process.returncode

    assert asyncio.run(act()) == 130


def lines_of(me, file, delivered=0):
    from happened.cli.chat import Lines

    lines = Lines(me, file)
    lines.load(delivered)
    return lines


class Said:
    """As much of a message as a line needs."""

    def __init__(self, number, sender="bob", **said):
        self.number, self.sender, self.name = number, sender, f"{sender}:{number}"
        self.payload = json.dumps({"text": f"line {number}"} | said).encode()


def test_what_comes_again_is_shown_once_and_a_torn_line_is_not_read(tmp_path):
    file = tmp_path / "lines"
    lines = lines_of("alice", file)
    assert [lines.add(Said(number)).number for number in (1, 2, 3)] == [1, 2, 3]
    with open(file, "rb+") as stream:
        stream.truncate(os.path.getsize(file) - 5)  # a kill while the third was written
    lines = lines_of("alice", file, delivered=3)
    assert lines.add(Said(2)) is None
    assert lines.add(Said(3)).number == 3
    assert [line.text for line in lines_of("alice", file, 3).newest(9)] == ["line 1", "line 2", "line 3"]


def test_the_file_of_lines_is_bounded(tmp_path, monkeypatch):
    from happened.cli import chat as chat_lines

    monkeypatch.setattr(chat_lines, "REMEMBERED", 10)
    file = tmp_path / "lines"
    lines = lines_of("alice", file)
    for number in range(1, 100):
        lines.add(Said(number))
        assert file.read_text().count("\n") <= 20
    lines = lines_of("alice", file, delivered=99)
    assert [line.number for line in lines.newest(99)] == list(range(90, 100))
    assert lines.named("95") == "bob:95" and lines.named("12") is None


def test_another_journal_begins_another_conversation(tmp_path, capsys):
    file = tmp_path / "lines"
    lines = lines_of("alice", file)
    lines.add(Said(1))
    lines = lines_of("alice", file, delivered=0)
    assert "another journal" in capsys.readouterr().err
    assert lines.add(Said(1)).number == 1, "it is not taken for the one that was shown"
    assert (tmp_path / "lines.old").exists()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(Said(1), "[1] bob: line 1", id="to all"),
        pytest.param(Said(1, answers="bob:9"), "[1] bob, to a line you do not have: line 1", id="answer"),
        pytest.param(Said(1, alone=True, to="alice"), "[1] bob, to you alone: line 1", id="to us"),
        pytest.param(Said(1, "alice", alone=True, to="bob"), "[1] alice, to bob alone: line 1", id="of us"),
        pytest.param(Said(1, alone=True), "[1] bob, to you alone: line 1", id="to whom is not told"),
        pytest.param(Said(1, text=7), "[1] bob: (11 bytes that are not of a chat)", id="no chat"),
    ],
)
def test_how_a_line_is_shown(line, shown):
    lines = lines_of("alice", None)
    assert lines.shown(lines.add(line)) == shown
