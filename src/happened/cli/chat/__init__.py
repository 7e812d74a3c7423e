"""A terminal chat between nodes: a reply never appears before the line it answers. A message that arrives too
early is held, and the chat says what it waits for.
"""

import argparse
import asyncio
import contextlib
import difflib
import importlib.util
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from ...core.errors import LocalProtocolError
from ...net import LinkChange, Message, Node, Pending, Plaintext, identity
from ...net.transport import Guard, Transport
from ...ordering import DEFAULT, protocols
from ..options import given, local_path, option
from ..parser import Parser
from ..terminal import note, stdin_lines, until_one_ends
from .lines import Lines, printable

Typed = Callable[[], Awaitable[str | None]]

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
    peers = dict(_peer(text, arguments.nats) for text in arguments.peer)
    if arguments.name in peers:
        raise LocalProtocolError(f"--peer {arguments.name}: that is your own name; name the others")
    node = Node(
        arguments.name,
        peers=peers,
        **given(arguments, "listen protocol journal trace"),
        guard=_guard(arguments),
        transport=_transport(arguments),
    )
    journal = arguments.journal
    file = None if journal is None else journal.with_name(f"{journal.name}.lines")
    asyncio.run(_chat(node, sorted(peers), Lines(arguments.name, file)))


def _peer(text: str, nats: str | None) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not name or bool(equals) == bool(nats):
        wanted = "NAME alone, with --nats" if nats else "NAME=HOST:PORT"
        raise LocalProtocolError(f"--peer {text}: {wanted}")
    return name, address


def _guard(arguments: argparse.Namespace) -> Guard | None:
    if arguments.pki is not None:
        authority, certificate, key = identity.paths(arguments.pki, arguments.name)
        return identity.MutualTls(arguments.name, authority=authority, certificate=certificate, key=key)
    if arguments.shared_key is not None:
        return identity.SharedKey(arguments.shared_key)
    return Plaintext() if arguments.plaintext else None


def _transport(arguments: argparse.Namespace) -> Transport | None:
    if arguments.nats is None:
        return None
    if arguments.journal is None:
        raise LocalProtocolError(
            "--nats needs --journal: the broker remembers the conversation, and so must you"
        )
    from ...net.nats import NatsTransport

    return NatsTransport(arguments.nats, stream="happened-chat")


class Door(logging.Handler):
    """Reports who comes and goes, and what a node logs, in lines for people."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.WARNING)
        self._node = node
        self._told: tuple[str, str] = ("", "")  # the peers that are disconnected, and why
        node.on_link(self.link_changed)

    def link_changed(self, change: LinkChange) -> None:
        if change.outgoing and self._node.health().is_live:  # it is not leaving itself
            self._told = (change.peer, change.reason)
            note(f"({change.peer} is {'there' if change.is_up else 'away'})")

    def emit(self, record: logging.LogRecord) -> None:
        if (getattr(record, "peer", None), getattr(record, "reason", None)) != self._told:
            note(printable(f"({record.getMessage().removeprefix(f'{self._node.name}: ')})"))


async def _chat(node: Node, peers: list[str], lines: Lines) -> None:
    logging.getLogger("happened").addHandler(Door(node))
    async with node:
        lines.load(node.delivered)
        with typed_lines(f"{node.name}> ", (*COMMANDS, *peers), lines.own()) as typed:
            at = getattr(node.transport, "address", "the broker")
            note(f"{node.name}, at {at}, talks to {', '.join(peers)}")
            if is_a_terminal():
                for line in lines.newest(EARLIER_LINES):
                    print(lines.shown(line), flush=True)
            said = Saying(node, peers, lines).all(typed)
            for task in await until_one_ends(said, _hear(node, lines), _tell_held(node)):
                task.result()
            await _leave(node, lines)


async def _leave(node: Node, lines: Lines) -> None:
    """Show our own last lines, wait until a broker has them, and say which peers do not have them yet."""
    await node.flush()
    while (message := node.receive_nowait()) is not None:
        _show(message, lines)
    if not node.transport.acknowledges_for_peers:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_SECONDS):
                while _waits_for(node):
                    await asyncio.sleep(0.05)
    if away := _waits_for(node):
        when = "when you are here again" if node.is_journaled else "no more: there is no --journal"
        note(f"({', '.join(away)} will get the rest {when})")


def _waits_for(node: Node) -> list[str]:
    """Peers that are away and have not received everything; or what the broker has not confirmed."""
    over_broker = not node.transport.acknowledges_for_peers
    unsent = ((name, peer) for name, peer in node.stats()["peers"].items() if peer["outbox_frames"])
    return [name for name, peer in unsent if over_broker or not peer["calling"]]


def is_a_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


@contextlib.contextmanager
def typed_lines(prompt: str, words: Iterable[str], before: Iterable[str]) -> Iterator[Typed]:
    """What returns the next typed line, and None at the end; from a terminal or a pipe.

    With prompt_toolkit (the extra `chat`) a terminal has a prompt with editing, completion of `words`, and
    the lines typed `before`; what others say appears above the text that is being typed.
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


class Saying:
    """Handles typed lines. A process also sends its lines to itself, so that they appear at their place in
    the order and are remembered like other lines."""

    def __init__(self, node: Node, peers: list[str], lines: Lines) -> None:
        self._node, self._peers, self._lines = node, peers, lines

    async def all(self, typed: Typed) -> None:
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
                note(_who(self._node))
            case "/held":
                note("\n".join(map(_held, self._node.pending())) or "nothing is held")
            case "/history":
                count = int(first) if first.isdecimal() else EARLIER_LINES
                for line in self._lines.newest(count):
                    print(self._lines.shown(line), flush=True)
            case "/to" if first in self._peers and words:
                await self._say([first], {"text": words, "alone": True, "to": first})
            case "/to" if first and words:
                note(_nobody(first, self._node.name, self._peers))
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


def _nobody(name: str, me: str, peers: list[str]) -> str:
    if name == me:
        return f"{me} is you"
    near = difflib.get_close_matches(name, peers, 1)
    others = f"did you mean {near[0]}?" if near else f"there are {', '.join(peers)}"
    return f"nobody is called {printable(name)}; {others}"


def _who(node: Node) -> str:
    """Everybody, and who is connected now; a broker keeps the messages of those who are away."""
    if not node.transport.acknowledges_for_peers:
        return f"{', '.join(node.members)}: the broker keeps what is said for those who are away"
    peers = node.stats()["peers"]
    return ", ".join(
        f"{name} ({'you' if name == node.name else 'there' if peers[name]['calling'] else 'away'})"
        for name in node.members
    )


async def _hear(node: Node, lines: Lines) -> None:
    async for message in node:
        _show(message, lines)


def _show(message: Message, lines: Lines) -> None:
    line = lines.add(message)
    if line is not None:
        print(lines.shown(line), flush=True)
    message.ack_nowait()


async def _tell_held(node: Node) -> None:
    """Say once, for each held message, what it waits for."""
    told: set[str] = set()
    while True:
        pending = node.pending()
        for each in pending:
            if each.message not in told:
                note(_held(each))
        told = {each.message for each in pending}
        await asyncio.sleep(HELD_SECONDS)


def _held(pending: Pending) -> str:
    return f"{pending.message} is here, and waits for {', '.join(pending.waits_for)}"
