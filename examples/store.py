"""A replicated key-value store with causal reads, and the same store with the order turned off.

    python examples/store.py                 writes are applied in causal order
    python examples/store.py --order off     writes are applied as they arrive: look what carol reads

alice hides her album, bob sees that and adds a photo to it. The link from alice to carol is slow. Whoever
reads bob's photo at carol must also see that the album is hidden.
"""

import argparse
import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from links_alone import LinksAlone
from slow_link import SlowLink

from happened.net import Node, Plaintext

NAMES = ("alice", "bob", "carol")
SLOW_SECONDS = 0.5


class Store:
    """One replica. Writes go to all replicas; reads are local, and so see a causally closed past.

    A client that moves between replicas takes its `version` along: `read(key, after=version)` waits until
    this replica has all that the client has seen, so that its reads stay causal wherever it goes.
    """

    def __init__(self, node: Any) -> None:
        self.name = node.name
        self._node = node
        self._others = [name for name in NAMES if name != node.name]
        self._values: dict[str, str] = {}
        self._applied = dict.fromkeys(NAMES, 0)  # how many writes of each replica
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Apply the others' writes, in the order they are delivered."""
        async for message in self._node:
            key, value = json.loads(message.payload)
            self._apply(message.sender, key, value)
            message.ack_nowait()

    def _apply(self, writer: str, key: str, value: str) -> None:
        self._values[key] = value
        self._applied[writer] += 1
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def version(self) -> dict[str, int]:
        """What this replica has applied."""
        return dict(self._applied)

    async def write(self, key: str, value: str) -> None:
        self._apply(self.name, key, value)
        await self._node.multicast(self._others, json.dumps([key, value]).encode())

    async def read(self, key: str, after: dict[str, int] | None = None) -> str | None:
        await self.until(lambda: all(self._applied[name] >= n for name, n in (after or {}).items()))
        return self._values.get(key)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()


@asynccontextmanager
async def replicas(ordered: bool) -> AsyncIterator[dict[str, Store]]:
    """Three replicas on loopback; the link from alice to carol is slow."""
    pairs = [(a, b) for a in NAMES for b in NAMES if a != b]
    # With order there is one port for each process, without there is one for each end of each link.
    ends = {pair: f"127.0.0.1:{port}" for pair, port in zip(pairs, free_ports(len(pairs)), strict=True)}
    if ordered:
        ends = {(a, b): next(ends[a, each] for each in NAMES if each != a) for a, b in pairs}
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(SlowLink(ends["carol", "alice"], SLOW_SECONDS))
        stores = {}
        for name in NAMES:
            peers = {other: ends[other, name] for other in NAMES if other != name}
            if name == "alice":
                peers["carol"] = slow.address
            listen = {other: ends[name, other] for other in peers}
            if ordered:
                node: Any = Node(name, peers=peers, listen=next(iter(listen.values())), guard=Plaintext())
            else:
                node = LinksAlone(name, peers=peers, listen=listen)
            stores[name] = Store(await stack.enter_async_context(node))
        tasks = [asyncio.create_task(store.run()) for store in stores.values()]
        try:
            yield stores
        finally:
            for task in tasks:
                task.cancel()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def scene(ordered: bool) -> bool:
    """Whether what carol's readers see makes sense."""
    async with replicas(ordered) as stores, asyncio.timeout(30):
        alice, bob, carol = (stores[name] for name in NAMES)
        await alice.write("album", "public")
        await carol.until(lambda: carol.version["alice"] == 1)
        await bob.until(lambda: bob.version["alice"] == 1)

        await alice.write("album", "hidden")
        await bob.until(lambda: bob.version["alice"] == 2)
        print(f"bob reads at bob:     album = {await bob.read('album')}")
        await bob.write("photo", "party.jpg")

        await carol.until(lambda: carol.version["bob"] == 1)
        photo, album = await carol.read("photo"), await carol.read("album")
        print(f"dave reads at carol:  photo = {photo}, album = {album}")
        makes_sense = album == "hidden"
        print(
            "as bob wrote it"
            if makes_sense
            else "ANOMALY: the photo is there, and the album is not hidden yet"
        )

        followed = await carol.read("album", after=bob.version)
        print(f"bob, moved to carol:  album = {followed}   (a read that waits for what he has seen)")
        return makes_sense


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--order", choices=("causal", "off"), default="causal")
    asyncio.run(scene(parser.parse_args().order == "causal"))


if __name__ == "__main__":
    main()
