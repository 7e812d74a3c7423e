"""One process of the system under test: an application that uses the public API of the runtime alone.

    python children.py SETTINGS.json

It sends at random, answers some of what it gets, acknowledges in every way there is, and writes down what it
does in a log of its own: one JSON object per line, before and after each call whose outcome a kill can hide.
Each line is one write to the file: a killed process leaves all that it wrote, and at most one line cut off.

| line | written |
|---|---|
| life | first: which life this is, and whether its journal is an old copy (`void`) |
| running | when the node takes part, with the address that it listens at |
| ask, sent, refused | before a multicast, when it is confirmed, when there was no room for it |
| got | when a message is handed over |
| acking, acked | before an acknowledgement, and when it has returned |
| forked | a child made by fork has ended, and how |
| report | on demand: frames sent to and received from each peer, what is left to do, and parked bytes |
| quiet | nothing is sent any more |
| stopped | the node ended by itself, and why |

Commands come as lines on stdin: `quiet`, `report`, `close`, `fork exit`, `fork close`, and `die after got` or
another line at which a promise has just been made, or is about to be. The end of stdin ends the process.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import ssl
import sys
from pathlib import Path

from happened.net import (
    Limits,
    Message,
    MutualTls,
    NatsTransport,
    Node,
    NodeClosed,
    NodeError,
    NodeFull,
    SharedKey,
    Signatures,
)

STOPPED = 3  # exit code of a node that could not start, or stopped by itself
LIMITS = {
    "heartbeat": 1.0,
    "handshake": 3.0,
    "first_retry": 0.05,
    "last_retry": 0.5,
    "linger": 1.0,
    "compaction": 50_000,  # snapshots replace inputs many times in a run
}
SOON_FULL = {"outbox": 100_000}  # bytes for a peer that is away; a second of what is sent is more


class Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.last = ""  # after a line of this kind the process kills itself

    def write(self, what: str, **fields: object) -> None:
        os.write(self._file, json.dumps({"what": what, **fields}).encode() + b"\n")
        if what == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def end_cut_line(self) -> None:
        """The life before may have been killed in the middle of a line."""
        os.write(self._file, b"\n")


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()[:16]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_node(settings: dict, listen: str) -> Node:
    name, peers, security = settings["name"], settings["peers"], settings["security"]
    pki = Path(security["pki"])
    own = {"authority": pki / "ca.pem", "key": pki / f"{name}.key"}
    common = {
        "protocol": settings["protocol"],
        "journal": settings["journal"],
        "limits": Limits(**LIMITS, **(SOON_FULL if settings["parking"] else {})),
        "full": "park" if settings["parking"] else "wait",
        "cluster": "harness",
        "signatures": Signatures(name, members=pki, **own) if settings["signed"] else None,
    }
    if "servers" in security:
        options = {"tls": trust_in(pki)} if security["tls"] else {}
        transport = NatsTransport(security["servers"], key=security["key"], start_seconds=10, **options)
        return Node(name, peers=list(peers), transport=transport, **common)
    if "key" in security:
        guard = SharedKey(security["key"])
    else:
        guard = MutualTls(name, certificate=pki / f"{name}.pem", **own)
    return Node(name, peers=peers, listen=listen, guard=guard, **common)


def trust_in(pki: Path) -> ssl.SSLContext:
    trust = ssl.create_default_context(cafile=pki / "ca.pem")
    trust.check_hostname = False  # `happened node keys` names processes, not hosts
    return trust


def close_event_polls() -> None:
    """In a child made by fork: asyncio would change what the parent's loop waits for, when it ends there."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                os.close(int(name))


class Application:
    def __init__(self, settings: dict) -> None:
        self.settings = settings
        self.me, self.life = settings["name"], settings["life"]
        self.dice = random.Random(f"{settings['seed']} {self.me} {self.life}")
        self.log = Log(settings["log"])
        self.others = sorted(settings["peers"])
        self.quiet = asyncio.Event()
        if settings["quiet"]:
            self.quiet.set()
        self.closing = asyncio.Event()
        self.asked = 0
        self.unacknowledged: list[tuple[str, Message]] = []
        # Asks stand in the log in the order in which the node gets them.
        self.sending = asyncio.Lock()

    async def run(self) -> None:
        self.log.end_cut_line()
        self.log.write("life", number=self.life, void=self.settings["void"])
        listen = f"127.0.0.1:{free_port()}"
        self.node = make_node(self.settings, listen)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self.command)
        try:
            async with self.node:
                self.log.write("running", listen=listen, pid=os.getpid())
                await self.take_part()
        except (NodeError, NodeClosed) as error:
            reason = error.__cause__ if isinstance(error, NodeClosed) and error.__cause__ else error
            self.log.write("stopped", why=str(reason))
            sys.exit(STOPPED)

    async def take_part(self) -> None:
        tasks = [asyncio.create_task(work()) for work in (self.send, self.receive, self.acknowledge)]
        closing = asyncio.create_task(self.closing.wait())
        try:
            await asyncio.wait([*tasks, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [task.exception() for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if ended:
            raise ended[0] or NodeClosed("there are no more messages")

    def command(self) -> None:
        for line in os.read(sys.stdin.fileno(), 4096).decode().split("\n")[:-1] or ["gone"]:
            match line:
                case "quiet":
                    self.quiet.set()
                    self.log.write("quiet")
                case "report":
                    self.report()
                case (
                    "die after sent"
                    | "die after acked"
                    | "die after got"
                    | "die after ask"
                    | "die after acking"
                ):
                    self.log.last = line.split()[-1]
                case "close":
                    self.closing.set()
                case "fork exit" | "fork close":
                    self.fork(line.removeprefix("fork "))
                case "gone":
                    os._exit(1)

    def report(self) -> None:
        numbers = self.node.stats()
        links = {name: (peer["sent"], peer["received"]) for name, peer in numbers["peers"].items()}
        open_ends = ("held", "queued", "undelivered", "unacknowledged", "staged_bytes")
        parked = sum(peer["parked_bytes"] for peer in numbers["peers"].values())
        left = parked + sum(numbers[number] for number in open_ends)
        self.log.write("report", links=links, left=left, parked=parked)

    # sending

    def message(self, to: list[str] | None = None) -> tuple[str, list[str], bytes]:
        """A key that is never used again, destinations, and a payload that tells of both."""
        self.asked += 1
        key = f"{self.me}.{self.life}.{self.asked}"
        if self.settings["broadcast"]:
            to = self.others
        elif to is None:
            to = sorted(self.dice.sample(self.others, self.dice.randint(1, len(self.others))))
        filler = self.dice.randbytes(self.dice.choice((0, 10, 500, 500, 4_000, 60_000)))
        return key, to, json.dumps({"key": key}).encode() + b"\n" + filler

    def ask(self, key: str, to: list[str], payload: bytes, **more: object) -> None:
        self.log.write("ask", key=key, to=to, digest=digest(payload), **more)

    async def send(self) -> None:
        while not self.quiet.is_set():
            async with self.sending:
                if self.dice.random() < 0.2:
                    await self.send_many(self.dice.randint(2, 6))
                else:
                    key, to, payload = self.message()
                    ordered = self.dice.random() >= 0.1
                    self.ask(key, to, payload, ordered=ordered)
                    await self.node.multicast(to, payload, ordered=ordered)
                    self.log.write("sent", key=key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.quiet.wait(), self.dice.expovariate(1 / self.settings["pace"]))
        await asyncio.Event().wait()

    async def send_many(self, count: int) -> None:
        """Many at a time, and one commit for all."""
        await self.node.room()
        keys = []
        for _ in range(count):
            key, to, payload = self.message()
            self.ask(key, to, payload, ordered=True)
            try:
                self.node.multicast_nowait(to, payload)
                keys.append(key)
            except NodeFull:
                self.log.write("refused", key=key)
        await self.node.flush()
        for key in keys:
            self.log.write("sent", key=key)

    # receiving

    async def receive(self) -> None:
        async for message in self.node:
            head, _, _ = message.payload.partition(b"\n")
            key = json.loads(head)["key"]
            self.log.write("got", key=key, digest=digest(message.payload), sender=message.sender)
            throw = self.dice.random()
            if throw < 0.5:
                self.log.write("acking", key=key)
                await message.ack()
                self.log.write("acked", key=key)
            elif throw < 0.65 and not self.quiet.is_set():
                await self.answer(key, message)
            else:
                self.unacknowledged.append((key, message))

    async def answer(self, key: str, message: Message) -> None:
        """Acknowledge, and send because of it, in one commit: a kill does both or neither."""
        async with self.sending:
            mine, to, payload = self.message([message.sender])
            self.ask(mine, to, payload, ordered=True, with_ack=key)
            self.log.write("acking", key=key)
            await message.ack_and_multicast(to, payload)
            self.log.write("acked", key=key)
            self.log.write("sent", key=mine)

    async def acknowledge(self) -> None:
        """Late, many at a time, and not in the order in which they came."""
        while True:
            await asyncio.sleep(0.05 if self.quiet.is_set() else self.dice.uniform(0.05, 0.6))
            batch, self.unacknowledged = self.unacknowledged, []
            self.dice.shuffle(batch)
            for key, message in batch:
                self.log.write("acking", key=key)
                message.ack_nowait()
            await self.node.flush()
            for key, _ in batch:
                self.log.write("acked", key=key)

    # forks

    def fork(self, how: str) -> None:
        pid = os.fork()
        if pid:
            self.waiting = asyncio.get_running_loop().create_task(self.wait_for(pid, how))
        elif how == "exit":
            close_event_polls()
            raise SystemExit  # leaves the event loop at once; the interpreter ends as it does without fork
        else:
            try:
                asyncio.run(asyncio.wait_for(self.node.close(), 2))
            finally:
                os._exit(0)

    async def wait_for(self, pid: int, how: str) -> None:
        for _ in range(1000):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.log.write("forked", how=how)
                return
            await asyncio.sleep(0.01)
        os.kill(pid, 9)
        self.log.write("forked", how=f"{how}: it did not end")


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(Application(settings).run())


if __name__ == "__main__":
    main()
