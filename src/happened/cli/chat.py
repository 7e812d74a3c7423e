"""A terminal chat between nodes: a reply never appears before the line it answers. A message that arrives too
early is held, and the chat says what it waits for.
"""

# With a file, a line is written before its message is acknowledged, and one that comes again after a crash is
# not shown twice: a chat that is killed goes on with the numbers that it had.

import argparse
import asyncio
import contextlib
import difflib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import LocalProtocolError
from ..net import LinkChange, Message, Node, Pending, Plaintext, identity
from ..net.transport import Guard
from ..ordering import DEFAULT, protocols
from .options import local_path, option
from .parser import Parser
from .terminal import note, stdin_lines, until_one_ends

HELP = """\
/re N TEXT       answer line N
/to NAME TEXT    say it to one of them alone
/held            what has arrived and waits, and for what
/who             who is there
/history N       the last N lines
/quit            leave"""
COMMANDS = ("/re", "/to", "/held", "/who", "/history", "/quit")
EARLIER_LINES = 20
"""How many lines of earlier sessions are shown at the start."""
LEAVING_SECONDS = 5.0
"""Seconds that leaving waits for a broker."""
HELD_SECONDS = 0.2
"""Seconds between two checks of held messages."""

REMEMBERED = 10_000

EPILOG = f"""\
example, one terminal each:
  happened node chat alice --listen 127.0.0.1:7001 --peer bob=127.0.0.1:7002 --plaintext
  happened node chat bob --listen 127.0.0.1:7002 --peer alice=127.0.0.1:7001 --plaintext

{HELP}"""


def add_arguments(parser: Parser) -> None:
    option(parser, "name NAME", "your name")
    option(parser, "--listen HOST:PORT", "where others reach you", default="127.0.0.1:0")
    about = "another, and where to reach it (with --nats: NAME alone); everybody must list everybody"
    option(parser, "--peer NAME=HOST:PORT", about, action="append", required=True)
    links = parser.add_mutually_exclusive_group(required=True)
    option(links, "--pki", "mutual TLS")
    option(links, "--shared-key FILE", "the key that `happened node keys shared` made", type=local_path)
    option(links, "--plaintext", "accept every name; on loopback only")
    option(links, "--nats URL", "through a NATS JetStream server; needs --journal")
    about = "survive being killed, and remember all lines, in the file JOURNAL.lines"
    option(parser, "--journal FILE", about, type=local_path)
    option(parser, "--trace")
    causal = sorted(name for name, facts in protocols().items() if "multicast" in facts.assumes.casts)
    option(parser, "--protocol", choices=causal, default=DEFAULT)


def run(arguments: argparse.Namespace) -> None:
    me, journal, transport = arguments.name, arguments.journal, None
    peers: dict[str, str] = {}
    for text in arguments.peer:
        name, equals, address = text.partition("=")
        if not name or bool(equals) == bool(arguments.nats):
            expected = "NAME alone, with --nats" if arguments.nats else "NAME=HOST:PORT"
            raise LocalProtocolError(f"--peer {text}: {expected}")
        if name == me:
            raise LocalProtocolError(f"--peer {me}: that is your own name; name the others")
        peers[name] = address
    guard: Guard | None = None
    if arguments.pki is not None:
        authority, certificate, key = identity.paths(arguments.pki, me)
        guard = identity.MutualTls(me, authority=authority, certificate=certificate, key=key)
    elif arguments.shared_key is not None:
        guard = identity.SharedKey(arguments.shared_key)
    elif arguments.plaintext:
        guard = Plaintext()
    else:
        if journal is None:
            raise LocalProtocolError(
                "--nats needs --journal: the broker remembers the conversation, and so must you"
            )
        from ..net.nats import NatsTransport

        transport = NatsTransport(arguments.nats, stream="happened-chat")
    node = Node(
        me,
        peers=peers,
        listen=arguments.listen,
        protocol=arguments.protocol,
        journal=journal,
        trace=arguments.trace,
        guard=guard,
        transport=transport,
    )
    file = None if journal is None else Path(journal).with_name(f"{Path(journal).name}.lines")
    asyncio.run(Chat(node, sorted(peers), Lines(me, file)).run())


class Line(NamedTuple):
    """`number`: on the screen. `delivery`: the number of its delivery, which is the same if the message is
    delivered again."""

    number: int
    delivery: int
    name: str
    sender: str
    text: str
    answers: str = ""  # the name of a line
    alone: str = ""  # the addressees, if not everybody


class Lines:
    """All remembered lines, by number and by name. `file`: None to keep them in memory only."""

    def __init__(self, me: str, file: Path | None) -> None:
        self._me, self._file = me, file
        self._is_writable = True
        self._forget()

    def _forget(self) -> None:
        self._lines: dict[int, Line] = {}
        self._numbers: dict[str, int] = {}
        self._last = Line(0, 0, "", "", "")
        self._written = 0  # lines in the file

    def load(self, delivered: int) -> None:
        """Read the lines of an earlier session; `delivered` is the number of deliveries in the journal. If
        that is fewer than the file has, the file belongs to another journal and its lines to another
        conversation: it is renamed."""
        if self._file is None or not self._file.exists():
            return
        for line in _read(self._file):
            self._remember(line)
            self._written += 1
        if self._last.delivery > delivered:
            aside = self._file.with_name(f"{self._file.name}.old")
            os.replace(self._file, aside)
            note(f"{aside} has the lines of an earlier chat: this one has another journal")
            self._forget()

    def add(self, message: Message) -> Line | None:
        """The line of a message; None if an earlier session has shown it."""
        if message.number <= self._last.delivery and message.name in self._numbers:
            return None
        said = _read_message(message)
        answers, to = said.get("answers"), said.get("to")
        alone = ""
        if said.get("alone") is True:
            alone = to if message.sender == self._me and isinstance(to, str) else self._me
        line = Line(
            self._last.number + 1,
            message.number,
            message.name,
            message.sender,
            said["text"],
            answers if isinstance(answers, str) else "",
            alone,
        )
        self._remember(line)
        self._write(line)
        return line

    def _remember(self, line: Line) -> None:
        self._last = line._replace(delivery=max(line.delivery, self._last.delivery))
        self._lines[line.number] = line
        self._numbers[line.name] = line.number
        if len(self._lines) > REMEMBERED:
            self._numbers.pop(self._lines.pop(next(iter(self._lines))).name, None)

    def named(self, number: str) -> str | None:
        """The name of the message whose line has this number."""
        return next((line.name for each, line in self._lines.items() if str(each) == number), None)

    def newest(self, count: int) -> list[Line]:
        return list(self._lines.values())[-count:] if count > 0 else []

    def own(self) -> list[str]:
        """What was said here."""
        return [line.text for line in self._lines.values() if line.sender == self._me]

    def shown(self, line: Line) -> str:
        about = alone = ""
        if line.answers:
            number = self._numbers.get(line.answers)
            about = f", to [{number}]" if number else ", to a line you do not have"
        if line.alone:
            alone = f", to {'you' if line.alone == self._me else printable(line.alone)} alone"
        return f"[{line.number}] {line.sender}{about}{alone}: {printable(line.text)}"

    # The file.

    def _write(self, line: Line) -> None:
        if self._file is None or not self._is_writable:
            return
        try:
            if self._written >= 2 * REMEMBERED:
                shorter = self._file.with_name(f"{self._file.name}.new")
                with open(shorter, "w", opener=_private) as out:
                    out.writelines(json.dumps(each._asdict()) + "\n" for each in self._lines.values())
                os.replace(shorter, self._file)
                self._written = len(self._lines)
            with open(self._file, "a", opener=_private) as file:
                file.write(json.dumps(line._asdict()) + "\n")
            self._written += 1
        except OSError as error:
            self._is_writable = False
            note(f"{self._file}: lines are no longer kept for the next start: {error.strerror}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read(file: Path) -> Iterator[Line]:
    """The lines of a file; an incomplete last line is cut off."""
    whole = 0
    with open(file, "r+b") as stream:
        for text in stream:
            try:
                line = Line(**json.loads(text)) if text.endswith(b"\n") else None
            except (ValueError, TypeError):
                line = None
            if line is None:
                break
            whole += len(text)
            yield line
        stream.truncate(whole)


def _read_message(message: Message) -> dict[str, Any]:
    """The text of a message; bytes that no chat has sent are shown as their number."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(message.payload)
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            return said
    return {"text": f"({len(message.payload)} bytes that are not of a chat)"}


def printable(text: str) -> str:
    """The text with a mark for every control character: a message must not move our cursor."""
    return "".join(each if each.isprintable() else "�" for each in text)


def is_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def typed_lines(
    prompt: str, words: Iterable[str], before: Iterable[str]
) -> Iterator[Callable[[], Awaitable[str | None]]]:
    """What reads the next line from a terminal or a pipe; None at the end.

    While others are printed, text typed on a terminal stays in one piece below, with prompt_toolkit (extra
    `chat`): it has editing, completion and the lines typed before. Otherwise, lines are read as they come.

    words    what the tab key completes, at the beginning of a line and after a command
    before   lines typed in earlier lives, the newest last: for the arrow keys
    """
    if not is_a_terminal() or importlib.util.find_spec("prompt_toolkit") is None:
        if is_a_terminal():
            note("pip install 'happened[chat]' keeps what you type in one piece while lines arrive")
        yield stdin_lines().get
        return
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import InMemoryHistory
    from prompt_toolkit.patch_stdout import patch_stdout

    session: PromptSession[str] = PromptSession(
        prompt,
        history=InMemoryHistory(list(before)),
        completer=WordCompleter(list(words), WORD=True),
        complete_while_typing=False,
        erase_when_done=True,  # the line comes back as a line of the chat
    )

    async def line() -> str | None:
        try:
            return await session.prompt_async()
        except EOFError:
            return None

    # Text typed between two prompts is not echoed: the next prompt shows it.
    with session.app.input.raw_mode(), patch_stdout():
        yield line


class Door(logging.Handler):
    """Reports who comes and goes, and what a node logs, in lines for people."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.WARNING)
        self._node = node
        self._told = ("", "")  # the peers that are disconnected, and why
        node.on_link(self.link_changed)

    def link_changed(self, change: LinkChange) -> None:
        if change.outgoing and self._node.health().is_live:  # it is not leaving itself
            self._told = (change.peer, change.reason)
            note(f"({change.peer} is {'there' if change.is_up else 'away'})")

    def emit(self, record: logging.LogRecord) -> None:
        if (getattr(record, "peer", None), getattr(record, "reason", None)) != self._told:
            note(printable(f"({record.getMessage().removeprefix(f'{self._node.name}: ')})"))


class Chat:
    """Shows lines as they are delivered, and handles typed ones. A process also sends its lines to itself, so
    that they appear at their place in the order and are remembered like other lines."""

    def __init__(self, node: Node, peers: list[str], lines: Lines) -> None:
        self._node, self._peers, self._lines = node, peers, lines

    async def run(self) -> None:
        node, peers, lines = self._node, self._peers, self._lines
        logging.getLogger("happened").addHandler(Door(node))
        async with node:
            lines.load(node.delivered)
            with typed_lines(f"{node.name}> ", (*COMMANDS, *peers), lines.own()) as typed:
                at = getattr(node.transport, "address", "the broker")
                note(f"{node.name}, at {at}, talks to {', '.join(peers)}")
                if is_a_terminal():
                    self._show_newest(EARLIER_LINES)
                acts = (self._obey(typed), self._hear(), self._tell_held())
                for task in await until_one_ends(*acts):
                    task.result()
                await self._leave()

    async def _leave(self) -> None:
        """Show our own last lines, wait until a broker has them, and say which peers do not have them yet."""
        node = self._node
        await node.flush()
        while (message := node.receive_nowait()) is not None:
            self._show(message)
        if not node.transport.acknowledges_for_peers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_SECONDS):
                    while self._waiting():
                        await asyncio.sleep(0.05)
        if away := self._waiting():
            when = "when you are here again" if node.is_journaled else "no more: there is no --journal"
            note(f"({', '.join(away)} will get the rest {when})")

    def _waiting(self) -> list[str]:
        """The peers that have not received everything and are disconnected; or the broker has not confirmed
        yet."""
        over_broker = not self._node.transport.acknowledges_for_peers
        peers = self._node.stats()["peers"].items()
        return [
            name for name, peer in peers if peer["outbox_frames"] and (over_broker or not peer["calling"])
        ]

    # Typed lines.

    async def _obey(self, typed: Callable[[], Awaitable[str | None]]) -> None:
        while (line := await typed()) is not None:
            text = line.strip()
            if text == "/quit":
                return
            if text.startswith("/"):
                command, _, rest = text.partition(" ")
                first, _, words = rest.strip().partition(" ")
                await self._command(command, first, words.strip())
            elif text:
                await self._say(self._peers, {"text": text})

    async def _command(self, command: str, first: str, words: str) -> None:
        match command:
            case "/who":
                note(self._who())
            case "/held":
                note("\n".join(map(_held, self._node.pending())) or "nothing is held")
            case "/history":
                self._show_newest(int(first) if first.isdecimal() else EARLIER_LINES)
            case "/to" if first in self._peers and words:
                await self._say([first], {"text": words, "alone": True, "to": first})
            case "/to" if first == self._node.name and words:
                note(f"{first} is you")
            case "/to" if first and words:
                near = difflib.get_close_matches(first, self._peers, 1)
                others = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._peers)}"
                note(f"nobody is called {printable(first)}; {others}")
            case "/re" if words and (answers := self._lines.named(first)):
                await self._say(self._peers, {"text": words, "answers": answers})
            case "/re" if first and words:
                note(f"there is no line {printable(first)} here that could be answered")
            case _:
                note(f"{printable(command)} is not understood:\n{HELP}")

    async def _say(self, to: list[str], said: dict[str, Any]) -> None:
        try:
            await self._node.multicast([*to, self._node.name], json.dumps(said).encode())
        except LocalProtocolError as error:
            if self._node.failure is not None:
                raise
            note(str(error))

    def _who(self) -> str:
        """Everybody, and who is connected now. With a broker everybody counts as connected: it keeps their
        messages."""
        node = self._node
        if not node.transport.acknowledges_for_peers:
            return f"{', '.join(node.members)}: the broker keeps what is said for those who are away"
        peers = node.stats()["peers"]
        here = {name: "there" if peer["calling"] else "away" for name, peer in peers.items()}
        return ", ".join(f"{name} ({here.get(name, 'you')})" for name in node.members)

    # Delivered lines.

    async def _hear(self) -> None:
        async for message in self._node:
            self._show(message)

    def _show(self, message: Message) -> None:
        line = self._lines.add(message)
        if line is not None:
            print(self._lines.shown(line), flush=True)
        message.ack_nowait()

    def _show_newest(self, count: int) -> None:
        for line in self._lines.newest(count):
            print(self._lines.shown(line), flush=True)

    async def _tell_held(self) -> None:
        """Say once, for each held message, what it waits for."""
        told: set[str] = set()
        while True:
            pending = self._node.pending()
            for each in pending:
                if each.message not in told:
                    note(_held(each))
            told = {each.message for each in pending}
            await asyncio.sleep(HELD_SECONDS)


def _held(pending: Pending) -> str:
    return f"{pending.message} is here, and waits for {', '.join(pending.waits_for)}"
