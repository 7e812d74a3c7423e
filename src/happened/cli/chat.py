"""happened chat: a terminal chat on causal order, in which a reply never comes before what it answers.

A line is said to everybody; commands begin with a slash. Works through pipes as on a terminal: what is said
goes to stdout, everything else to stderr. Ends with its input, or with /quit.
Exit 0 done, 1 the node had to stop, 2 bad usage or input.
"""

import argparse
import asyncio
import contextlib
import json
import logging
from collections import OrderedDict
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from ..net import Message, Node, Pending, Plaintext, identity
from ..net.transport import Guard, Transport
from ..ordering import DEFAULT, protocols
from .terminal import local_path, note, stdin_lines

HELP = """\
/re N TEXT       answer line N
/to NAME TEXT    say it to one of them alone
/held            what has arrived and waits, and for what
/who             who is there
/quit            leave"""
REMEMBERED_LINES = 10_000
HELD_SECONDS = 0.2
"""Between two looks at the messages that are held."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "chat",
        help="talk to others in causal order",
        description="A terminal chat between nodes: a reply never comes before what it answers. A message "
        "that arrives too early is held, and it is said what it waits for.",
        epilog="example, one terminal each:\n"
        "  happened chat alice --listen 127.0.0.1:7001 --peer bob=127.0.0.1:7002 --plaintext\n"
        "  happened chat bob --listen 127.0.0.1:7002 --peer alice=127.0.0.1:7001 --plaintext\n\n" + HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    links.add_argument(
        "--pki", metavar="DIR", type=local_path, help="mutual TLS, with the files of `happened ca`"
    )
    links.add_argument(
        "--shared-key", metavar="FILE", type=local_path, help="the key that `happened keygen` made"
    )
    links.add_argument("--plaintext", action="store_true", help="believe every name; on loopback only")
    links.add_argument("--nats", metavar="URL", help="through a NATS JetStream server; needs --journal")
    parser.add_argument("--journal", metavar="FILE", type=local_path, help="survive being killed")
    parser.add_argument("--trace", metavar="DIR", type=local_path, help="record events, for `happened check`")
    causal = sorted(name for name, facts in protocols().items() if "multicast" in facts.casts)
    parser.add_argument(
        "--protocol", choices=causal, default=DEFAULT, help="of ordering (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    peers = dict(_peer(text, arguments.nats) for text in arguments.peer)
    if arguments.name in peers:
        raise LocalProtocolError(f"--peer {arguments.name}: that is you; name the others")
    node = Node(
        arguments.name,
        peers=peers,
        listen=arguments.listen,
        protocol=arguments.protocol,
        journal=arguments.journal,
        trace=arguments.trace,
        guard=_guard(arguments),
        transport=_transport(arguments),
    )
    return asyncio.run(_chat(node, sorted(peers)))


def _peer(text: str, nats: str | None) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not name or bool(equals) == bool(nats):
        raise LocalProtocolError(
            f"--peer {text}: " + ("NAME alone, with --nats" if nats else "NAME=HOST:PORT")
        )
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
            "--nats needs --journal: the broker remembers what was said, and so must you"
        )
    from ..net.nats import NatsTransport

    return NatsTransport(arguments.nats, stream="happened-chat")


class _Troubles(logging.Handler):
    """Shows what a node logs, as a line that a person can read."""

    def emit(self, record: logging.LogRecord) -> None:
        peer, reason = getattr(record, "peer", ""), getattr(record, "reason", getattr(record, "error", ""))
        note(_printable(f"({peer or record.getMessage()}: {reason})"))


async def _chat(node: Node, peers: list[str]) -> int:
    logging.getLogger("happened").addHandler(_Troubles(logging.WARNING))
    async with node:
        note(
            f"{node.name}, at {getattr(node.transport, 'address', 'the broker')}, talks to {', '.join(peers)}"
        )
        screen = Screen()
        tasks = [
            asyncio.create_task(each)
            for each in (_say(node, peers, screen), _hear(node, screen), _tell_held(node))
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
    return ExitCode.HOLDS


class Screen:
    """The lines said so far, numbered as this process saw them; only the last ones are remembered."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._names: dict[int, str] = {}

    def show(self, name: str, sender: str, said: dict[str, Any]) -> None:
        self._count += 1
        self._numbers[name] = self._count
        self._names[self._count] = name
        if len(self._numbers) > REMEMBERED_LINES:
            del self._names[self._numbers.popitem(last=False)[1]]
        answers = said.get("answers")
        about = ""
        if isinstance(answers, str):
            number = self._numbers.get(answers)
            about = f", to [{number}]" if number else ", to a line you do not have"
        alone = ", to you alone" if said.get("alone") is True else ""
        print(f"[{self._count}] {sender}{about}{alone}: {_printable(said['text'])}", flush=True)

    def name(self, number: str) -> str | None:
        return next((name for each, name in self._names.items() if str(each) == number), None)


async def _say(node: Node, peers: list[str], screen: Screen) -> None:
    lines = stdin_lines()
    while (line := await lines.get()) is not None:
        text = line.strip()
        command, _, rest = text.partition(" ") if text.startswith("/") else ("", "", text)
        first, _, words = rest.strip().partition(" ")
        if command == "/quit":
            return
        elif command == "/who":
            note(_who(node))
        elif command == "/held":
            note("\n".join(map(_held, node.pending())) or "nothing is held")
        elif command == "/to" and first in peers and words:
            await _multicast(node, [first], {"text": words, "alone": True}, screen)
        elif command == "/re" and (answers := screen.name(first)) and words:
            await _multicast(node, peers, {"text": words, "answers": answers}, screen)
        elif command == "/to" and first and words:
            note(f"there is no {_printable(first)}; there are {', '.join(peers)}")
        elif command == "/re" and first and words:
            note(f"there is no line {_printable(first)} here that could be answered")
        elif command:
            note(f"{command} is not understood:\n{HELP}")
        elif text:
            await _multicast(node, peers, {"text": text}, screen)


def _who(node: Node) -> str:
    """Everybody, and who has a connection now. A broker has those of all, and keeps what is said to them."""
    if not node.transport.acknowledges_for_peers:
        return f"{', '.join(node.members)}: the broker keeps what is said for those who are away"
    peers = node.stats()["peers"]
    return ", ".join(
        f"{name} ({'you' if name == node.name else 'there' if peers[name]['calling'] else 'away'})"
        for name in node.members
    )


async def _multicast(node: Node, to: list[str], said: dict[str, Any], screen: Screen) -> None:
    try:
        name = await node.multicast(to, json.dumps(said).encode())
    except LocalProtocolError as error:
        if node.failure is not None:
            raise
        note(str(error))
    else:
        screen.show(name, node.name, {**said, "alone": False})


async def _hear(node: Node, screen: Screen) -> None:
    async for message in node:
        screen.show(message.name, message.sender, _read(message))
        message.ack_nowait()


async def _tell_held(node: Node) -> None:
    """Tell once, for each message that is held, what it waits for."""
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


def _read(message: Message) -> dict[str, Any]:
    """What a message says; bytes that no chat has sent are shown as so many bytes."""
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(message.payload)
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            return said
    return {"text": f"({len(message.payload)} bytes that are not of a chat)"}


def _printable(text: str) -> str:
    """The text with a mark for every control character: nobody's words may move our cursor."""
    return "".join(each if each.isprintable() else "�" for each in text)
