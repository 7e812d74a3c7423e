"""`happened node chat`: a terminal chat on causal order, in which a reply never appears before the line it
answers.

A line goes to everybody; commands begin with a slash. Works through pipes and on a terminal: chat lines go to
stdout, everything else to stderr. Ends with its input, or with /quit. With a journal, the lines are kept in
the file JOURNAL.lines, from which the next start continues. Exit 0 done, 1 the node had to stop, 2 bad usage
or input.
"""

import argparse
import asyncio
import contextlib
import difflib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ...core.errors import LocalProtocolError
from ...core.exit_codes import ExitCode
from ...net import LinkChange, Message, Node, Pending, Plaintext, identity
from ...net.transport import Guard
from ...ordering import DEFAULT, protocols
from ..options import option
from ..parser import Parser
from ..terminal import local_path, note
from .lines import Lines, printable
from .prompt import is_a_terminal, typed_lines

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

DESCRIPTION = (
    "A terminal chat between nodes: a reply never appears before the line it answers. A message that arrives "
    "too early is held, and the chat says what it waits for."
)
EPILOG = f"""\
example, one terminal each:
  happened node chat alice --listen 127.0.0.1:7001 --peer bob=127.0.0.1:7002 --plaintext
  happened node chat bob --listen 127.0.0.1:7002 --peer alice=127.0.0.1:7001 --plaintext

{HELP}"""


def add_arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="your name")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="where others reach you")
    parser.add_argument(
        "--peer",
        metavar="NAME=HOST:PORT",
        action="append",
        required=True,
        help="another, and where to reach it (with --nats: NAME alone); everybody must list everybody",
    )
    links = parser.add_mutually_exclusive_group(required=True)
    option(links, "--pki", "mutual TLS")
    links.add_argument(
        "--shared-key", metavar="FILE", type=local_path, help="the key that `happened node keys shared` made"
    )
    links.add_argument("--plaintext", action="store_true", help="accept every name; on loopback only")
    links.add_argument("--nats", metavar="URL", help="through a NATS JetStream server; needs --journal")
    parser.add_argument(
        "--journal", metavar="FILE", type=local_path, help="survive being killed, and remember all lines"
    )
    option(parser, "--trace")
    causal = sorted(name for name, facts in protocols().items() if "multicast" in facts.assumes.casts)
    option(parser, "--protocol", choices=causal, default=DEFAULT)


def run(arguments: argparse.Namespace) -> int:
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
        from ...net.nats import NatsTransport

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
    return asyncio.run(Chat(node, sorted(peers), Lines(me, file)).run())


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

    async def run(self) -> int:
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
                tasks = [asyncio.create_task(each) for each in acts]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                for task in done:
                    task.result()
                await self._leave()
        return ExitCode.HOLDS

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
