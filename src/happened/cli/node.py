"""Run a node from its configuration file, which --config names; or make keys for nodes, or chat. A node reads
commands from stdin and prints answers and delivered messages on stdout, logs on stderr: one JSON object a
line each.
"""

import argparse
import asyncio
import base64
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from ..core.errors import CausalityError, LocalProtocolError
from .options import local_path, option
from .parser import Command, Parser, add_forms, add_modules
from .terminal import stdin_lines, until_one_ends

if TYPE_CHECKING:  # imported late: `happened --help` does not need the runtime
    from ..net import Message, Node

EPILOG = """\
to send      {"to": ["bob", "team"], "text": "hello"}           or "payload": base64, for what is no text
             {"to": ["bob"], "text": "hello", "ordered": false} outside of all orders: docs/runtime.md
             "label": "x" or "priority": 2 beside these, where the protocol takes them
delivered    {"number": 1, "message": "alice:1", "sender": "alice", "text": "hello"}
relevant     {"relevant": "label"}                              with a tracker: answered with its timestamp
acknowledge  {"ack": 1}                                         only with --manual-ack: until then, it is
                                                                printed again after every restart
ask          {"show": "pending"}, {"show": "stats"}, {"show": "members"}
members      {"join": "dave", "address": "127.0.0.1:7004"}, {"leave": true}, {"expel": "dave"}
topology     {"topology": "next.yaml", "addresses": {"dave": "127.0.0.1:7004"}}
failure      {"succeed": "lx1", "heir": "lx2"}                  lx1 is gone for good, its witness takes over
             {"succeed": "po", "heir": "po2", "how": "collection", "addresses": {…}}, then {"show": "lost"}

Each command is answered on stdout: {"sent": "alice:1"}, {"error": "…"}, … The end of stdin ends the node,
unless --stay is given; so do SIGINT and SIGTERM, cleanly. SIGHUP reads the certificates again.

example:
  printf '{"to": ["bob"], "text": "hello"}\\n' | happened node --config alice.toml
"""


FORMS = {
    "chat": Command("chat", "talk to others in causal order"),
    "keys": Command("keys", "make a shared key, or certificates, for nodes"),
}


def add_arguments(parser: Parser) -> None:
    option(parser, "--config FILE", "TOML; see docs/runtime.md", type=local_path)
    option(parser, "--trace", "overrides the file")
    option(parser, "--manual-ack", "acknowledge deliveries by commands only")
    option(parser, "--stay", "continue after the end of stdin")
    levels = ["DEBUG", "INFO", "WARNING", "ERROR"]
    option(parser, "--log-level", "level of the lines on stderr", choices=levels, default="INFO")
    add_modules(add_forms(parser, required=False), FORMS)


def run(arguments: argparse.Namespace) -> None:
    if arguments.config is None:
        raise LocalProtocolError(
            "name the configuration of the node with --config FILE, or give a form: chat, keys"
        )
    from ..net.config import load, make_node

    config = load(arguments.config)
    if arguments.trace is not None:
        config["trace"] = arguments.trace
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=arguments.log_level, handlers=[handler], force=True)
    node = make_node(config)
    asyncio.run(_Session(node, manual=arguments.manual_ack, stay=arguments.stay).run(config))


class JsonLines(logging.Formatter):
    """Formats a log record as a JSON object: time, level, logger, event, and the record's extra fields."""

    USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if "event" in vars(record):  # a name for programs; the message is for people
            line["message"] = record.getMessage()
        line |= {key: value for key, value in vars(record).items() if key not in self.USUAL}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class _Session:
    """Carries commands from stdin to a node, and its deliveries to stdout, until one of them ends."""

    def __init__(self, node: "Node", *, manual: bool, stay: bool) -> None:
        self._node = node
        self._manual = manual
        self._stay = stay
        self._unacknowledged: dict[int, Message] = {}
        self._stop = asyncio.Event()

    async def run(self, config: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        async with self._node as node:
            for which in (signal.SIGINT, signal.SIGTERM):  # before this, a signal ends the process at once
                loop.add_signal_handler(which, self._stop.set)
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            metrics = await self._metrics(config["metrics"]) if "metrics" in config else None
            done = await until_one_ends(self._deliver(), self._obey(), self._stop.wait())
            if metrics is not None:
                metrics.close()
            if node.failure is not None:
                raise node.failure
            for job in done:
                job.result()

    def _reload(self) -> None:
        try:
            self._node.reload_certificates()
        except CausalityError as error:
            logging.getLogger("happened.node").error("certificates stay as they are: %s", error)

    async def _metrics(self, listen: str) -> asyncio.Server:
        from ..net.errors import NodeError
        from ..net.metrics import serve_metrics
        from ..net.tcp import split_address

        where, node = split_address(listen), self._node
        node.timings()  # measured from now on
        try:
            return await serve_metrics(
                where, lambda: node.stats() | node.timings(), node=node.name, health=node.health
            )
        except OSError as error:
            raise NodeError(f"metrics: cannot listen on {listen}: {error}") from error

    async def _deliver(self) -> None:
        node = self._node
        async for message in node:
            said = {"number": message.number, "message": message.name, "sender": message.sender}
            try:
                said["text"] = message.payload.decode()
            except UnicodeDecodeError:
                said["payload"] = base64.b64encode(message.payload).decode()
            _print(said)
            if self._manual:
                self._unacknowledged[message.number] = message
            else:
                # Acknowledged after printing: a kill in between prints it again rather than never.
                await message.ack()

    async def _obey(self) -> None:
        lines = stdin_lines()
        while (line := await lines.get()) is not None:
            if line.strip():
                try:
                    _print(await self._command(json.loads(line)))
                except (CausalityError, ValueError, TypeError, KeyError, RecursionError) as error:
                    _print({"error": str(error) or repr(error), "line": line.strip()[:200]})
        if self._stay:
            await self._stop.wait()

    async def _command(self, said: Any) -> dict[str, Any]:
        node = self._node
        match said:
            case {"to": to, "text": str(text)}:
                return await self._send(to, text.encode(), said)
            case {"to": to, "payload": str(payload)}:
                return await self._send(to, base64.b64decode(payload, validate=True), said)
            case {"relevant": str(label)}:
                stamp = node.relevant(label)
                await node.flush()
                return {"relevant": stamp.to_json()}
            case {"ack": int(number)}:
                message = self._unacknowledged.pop(number, None)
                if message is None:
                    raise ValueError(f"delivery {number} is not waiting to be acknowledged")
                await message.ack()
                return {"acknowledged": number}
            case {"show": "pending"}:
                return {"pending": [held._asdict() for held in node.pending()]}
            case {"show": "stats"}:
                return {"stats": node.stats()}
            case {"show": "lost"}:
                return {"lost": node.lost, "unaccounted": node.unaccounted}
            case {"show": "members"}:
                return {"members": node.members}
            case {"join": str(name), "address": str(address)}:
                return {"joined": name, "members": await node.join(name, address)}
            case {"leave": True}:
                await node.leave()
                return {"left": node.name}
            case {"topology": str(file)}:
                return {"changed": file, "members": await node.change_topology(file, said.get("addresses"))}
            case {"succeed": str(failed), "heir": None | str() as heir}:
                how, addresses = said.get("how", "witness"), said.get("addresses", {})
                members = await node.succeed(failed, heir, how, addresses)
                return {"succeeded": failed, "heir": heir, "members": members}
            case {"expel": str(name)}:
                await node.expel(name)
                return {"expelled": name}
        raise ValueError('no command: give {"to": …, "text": …} or another one of `happened node --help`')

    async def _send(self, to: Any, payload: bytes, said: dict[str, Any]) -> dict[str, Any]:
        ordered = said.get("ordered", True)
        if not isinstance(ordered, bool):
            raise ValueError(f'"ordered" is true or false, not {ordered!r}')
        how = {name: said[name] for name in ("label", "priority") if name in said}
        return {"sent": await self._node.multicast(to, payload, ordered=ordered, **how)}


def _print(said: dict[str, Any]) -> None:
    print(json.dumps(said, ensure_ascii=False), flush=True)
