"""The same links without the order between them: what an application has if it sends over plain connections.

Each pair of processes is a group of its own here, with a node at each end. Every link is reliable and keeps
its sender's order, as a TCP connection does; nothing orders what comes over one link by what another brings.
"""

import asyncio
from collections.abc import Iterable, Mapping

from happened.net import Message, Node, Plaintext


class LinksAlone:
    """Has what the example uses of a `Node`: `async with`, `multicast`, `async for`."""

    def __init__(self, name: str, *, peers: Mapping[str, str], listen: Mapping[str, str]) -> None:
        """`listen`: our address for each peer."""
        self.name = name
        self._nodes = {
            peer: Node(name, peers={peer: address}, listen=listen[peer], guard=Plaintext())
            for peer, address in peers.items()
        }
        self._arrived: asyncio.Queue[Message] = asyncio.Queue(1000)

    async def __aenter__(self) -> "LinksAlone":
        for node in self._nodes.values():
            await node.start()
        self._tasks = [asyncio.create_task(self._listen(node)) for node in self._nodes.values()]
        return self

    async def __aexit__(self, *error: object) -> None:
        for node in self._nodes.values():
            await node.close()
        await asyncio.gather(*self._tasks)

    async def _listen(self, node: Node) -> None:
        async for message in node:
            await self._arrived.put(message)

    async def multicast(self, to: Iterable[str], payload: bytes) -> None:
        for peer in to:
            await self._nodes[peer].multicast(peer, payload)

    def __aiter__(self) -> "LinksAlone":
        return self

    async def __anext__(self) -> Message:
        return await self._arrived.get()
