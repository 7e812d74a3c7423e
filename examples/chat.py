"""Three `happened node chat` processes, and a link that is late: what carol sees.

    python examples/chat.py

alice asks, bob answers; the link from alice to carol is slow, so bob's answer reaches carol first. It is held
until the question is there.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

from slow_link import SlowLink
from store import free_ports

NAMES = ("alice", "bob", "carol")


async def chat(name: str, listen: str, peers: dict[str, str]) -> Process:
    command = ["-m", "happened", "node", "chat", name, "--listen", listen, "--plaintext"]
    for peer, address in peers.items():
        command += ["--peer", f"{peer}={address}"]
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


def say(process: Process, line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")


async def see(stream: asyncio.StreamReader | None, word: str) -> str:
    """Read on until a line has this word."""
    assert stream is not None
    while line := (await stream.readline()).decode().rstrip():
        if word in line:
            return line
    raise RuntimeError(f"the chat ended before {word!r} was seen")


async def scene() -> None:
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)}
    async with SlowLink(addresses["carol"]) as link, asyncio.timeout(60):
        processes = {}
        for name in NAMES:
            peers = {peer: address for peer, address in addresses.items() if peer != name}
            if name == "alice":
                peers["carol"] = link.address
            processes[name] = await chat(name, addresses[name], peers)
        alice, bob, carol = processes.values()
        try:
            say(alice, "is everybody here?")
            print("carol:", await see(carol.stdout, "is everybody here?"))
            await see(bob.stdout, "is everybody here?")
            link.open.clear()
            say(alice, "has anyone seen my ring?")
            await see(bob.stdout, "my ring?")
            say(bob, "/re 2 it is in the kitchen")
            print("carol:", await see(carol.stderr, "waits for"))
            link.open.set()
            print("carol:", await see(carol.stdout, "my ring?"))
            print("carol:", await see(carol.stdout, "kitchen"))
        finally:
            for process in processes.values():
                process.terminate()
                await process.wait()


if __name__ == "__main__":
    asyncio.run(scene())
