"""On the network in memory nothing overtakes on a link, however much is on its way at the same moment."""

import asyncio

from happened.testing import MemoryNetwork


def test_many_transmissions_at_once_break_no_connection(seed):
    async def run():
        ended = []
        async with MemoryNetwork(seed, delay=0.01).nodes("alice", "bob") as (alice, bob):
            alice.on_link(lambda change: ended.append(change) if not change.is_up else None)
            for _ in range(300):
                alice.multicast_nowait("bob", bytes(20_000))
            async with asyncio.timeout(30):
                for _ in range(300):
                    (await anext(bob)).ack_nowait()
            return list(ended)

    assert asyncio.run(run()) == []
