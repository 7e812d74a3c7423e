"""`happened node chat` in processes of its own, through pipes."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from brokers import broker
from netcluster import free_ports

from happened import causality, trace
from happened.cli import main
from happened.net import identity

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from slow_link import SlowLink

NAMES = ("alice", "bob", "carol")


class Chat:
    """One process; `lines` is what it printed on stdout and `notes` on stderr."""

    def __init__(self, process):
        self.process = process
        self.lines, self.notes = [], []
        self._news = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(process.stdout, self.lines)),
            asyncio.create_task(self._read(process.stderr, self.notes)),
        ]

    async def _read(self, stream, to):
        async for line in stream:
            to.append(line.decode().rstrip("\n"))
            self._news.set()

    def say(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    async def sees(self, line, where="lines"):
        async with asyncio.timeout(90):
            while line not in getattr(self, where):
                self._news.clear()
                await self._news.wait()

    async def leave(self):
        self.process.stdin.close()
        async with asyncio.timeout(90):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code


@contextlib.asynccontextmanager
async def chats(links, *, reach=None, options=lambda name: ()):
    """alice, bob and carol; `reach` maps (who, whom) to another address than whom's own."""
    ports = free_ports(3)
    address = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=True)}
    async with contextlib.AsyncExitStack() as stack:
        relays = {}
        for pair in reach or ():
            relays[pair] = await stack.enter_async_context(SlowLink(address[pair[1]]))
        running = {}
        try:
            for name in NAMES:
                command = [sys.executable, "-m", "happened", "node", "chat", name, "--listen", address[name]]
                for other in NAMES:
                    if other != name:
                        relay = relays.get((name, other))
                        command += ["--peer", f"{other}={relay.address if relay else address[other]}"]
                command += [*links(name), *options(name)]
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                running[name] = Chat(process)
            yield running, relays
            assert [await each.leave() for each in running.values()] == [0, 0, 0]
        finally:
            for each in running.values():
                if each.process.returncode is None:
                    each.process.kill()
                    await each.process.wait()


def plaintext(name):
    return ["--plaintext"]


def test_a_reply_never_comes_before_what_it_answers(tmp_path):
    """alice's link to carol is held; bob's answer is at carol first, and waits."""

    async def act():
        recorded = ["--trace", str(tmp_path / "trace")]
        async with chats(plaintext, reach=[("alice", "carol")], options=lambda name: recorded) as (
            of,
            relays,
        ):
            of["alice"].say("ready?")
            for other in ("bob", "carol"):
                await of[other].sees("[1] alice: ready?")
            relays["alice", "carol"].open.clear()
            of["alice"].say("has anyone seen my ring?")
            await of["bob"].sees("[2] alice: has anyone seen my ring?")
            of["bob"].say("/re 2 it is in the kitchen")
            await of["alice"].sees("[3] bob, to [2]: it is in the kitchen")
            await of["carol"].sees("bob:1 is here, and waits for alice:2", where="notes")
            of["carol"].notes.remove("bob:1 is here, and waits for alice:2")
            of["carol"].say("/held")
            await of["carol"].sees("bob:1 is here, and waits for alice:2", where="notes")
            assert of["carol"].lines == ["[1] alice: ready?"]
            relays["alice", "carol"].open.set()
            await of["carol"].sees("[3] bob, to [2]: it is in the kitchen")
            assert of["carol"].lines[1:] == [
                "[2] alice: has anyone seen my ring?",
                "[3] bob, to [2]: it is in the kitchen",
            ]
            assert (
                of["carol"].notes.count("bob:1 is here, and waits for alice:2") == 1
            )  # told once more, asked

    asyncio.run(act())
    table = trace.read(tmp_path / "trace")
    assert causality.check_order(table).holds is True
    assert causality.check_delivery(table).lost == 0


@pytest.mark.parametrize("kind", ["tls", "shared-key"])
def test_links_that_are_guarded(tmp_path, kind):
    if kind == "tls":
        identity.make_authority(tmp_path)
        for name in NAMES:
            identity.issue(tmp_path, name)
        links = ["--pki", str(tmp_path)]
    else:
        identity.make_key(tmp_path / "key")
        links = ["--shared-key", str(tmp_path / "key")]

    async def act():
        async with chats(lambda name: links) as (of, _):
            of["alice"].say("hello")
            for name in NAMES:
                await of[name].sees("[1] alice: hello")
            of["carol"].say("/to bob \x1b[2J psst")
            await of["bob"].sees("[2] carol, to you alone: �[2J psst")
            assert len(of["alice"].lines) == 1

    asyncio.run(act())


def test_through_a_broker_even_those_who_are_not_there_yet_are_told(tmp_path):
    async def act(url):
        async def chat(name, peer):
            command = ["node", "chat", name, "--peer", peer, "--nats", url, "--journal", str(tmp_path / name)]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
            return Chat(
                await asyncio.create_subprocess_exec(sys.executable, "-m", "happened", *command, **pipes)
            )

        alice = await chat("alice", "bob")
        alice.say("are you there?")
        await alice.sees("[1] alice: are you there?")
        assert await alice.leave() == 0
        bob = await chat("bob", "alice")
        await bob.sees("[1] alice: are you there?")
        assert await bob.leave() == 0

    with broker(tmp_path / "broker") as server:
        asyncio.run(act(server.urls[0]))


def test_commands_that_are_not_understood_are_explained():
    """To a single process, whose peers are not there."""

    async def act():
        address = f"127.0.0.1:{free_ports(1)[0]}"
        command = ["node", "chat", "alice", "--peer", f"bob={address}", "--plaintext"]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        alice = Chat(
            await asyncio.create_subprocess_exec(sys.executable, "-m", "happened", *command, **pipes)
        )
        alice.say("/re 7 what?")
        await alice.sees("there is no line 7 here that could be answered", where="notes")
        alice.say("/to bbo hello")
        await alice.sees("nobody is called bbo; did you mean bob?", where="notes")
        alice.say("/to dave hello")
        await alice.sees("nobody is called dave; there are bob", where="notes")
        alice.say("/shout hello")
        await alice.sees("/shout is not understood:", where="notes")
        alice.say("/who")
        await alice.sees("alice (you), bob (away)", where="notes")
        alice.say("/held")
        await alice.sees("nothing is held", where="notes")
        alice.say("nobody hears this")
        alice.say("/quit")
        assert await alice.process.wait() == 0
        await alice.leave()
        assert alice.lines == ["[1] alice: nobody hears this"]
        assert alice.notes[-1] == "(bob will get the rest no more: there is no --journal)"

    asyncio.run(act())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--peer", "bob", "--plaintext"], "NAME=HOST:PORT", id="no address"),
        pytest.param(["--peer", "bob=127.0.0.1:x", "--plaintext"], "is no address", id="no port"),
        pytest.param(["--peer", "bob=192.0.2.1:1", "--plaintext"], "not loopback", id="plaintext elsewhere"),
        pytest.param(["--peer", "bob=127.0.0.1:1", "--shared-key", "/none"], "cannot be read", id="no key"),
        pytest.param(
            ["--peer", "bob=127.0.0.1:1", "--nats", "nats://x"], "NAME alone", id="address with NATS"
        ),
    ],
)
def test_bad_usage_is_explained(capsys, arguments, message):
    assert main(["node", "chat", "alice", *arguments]) == 2
    assert message in capsys.readouterr().err
