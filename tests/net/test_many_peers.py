"""What a message costs does not grow with the number of peers: nobody looks at all links for it."""

import pytest
from test_node import run

from happened.net import Limits
from happened.ordering import protocols
from happened.testing import MemoryNetwork

NAMES = tuple("abcdef")
OPTIONS = {"bss-groups": {"groups": [NAMES[:3], NAMES]}}


class Watched(dict):
    """Knows how often somebody has gone through all of it."""

    looks = 0

    def __iter__(self):
        self.looks += 1
        return super().__iter__()

    def keys(self):
        self.looks += 1
        return super().keys()

    def values(self):
        self.looks += 1
        return super().values()

    def items(self):
        self.looks += 1
        return super().items()


def watch(node):
    links = node._engine.links
    for what in ("outboxes", "inboxes", "held"):
        setattr(links, what, Watched(getattr(links, what)))
    return [links.outboxes, links.inboxes, links.held]


def multicasting():
    return sorted(
        name
        for name, facts in protocols().items()
        if "multicast" in facts.assumes.casts and not facts.assumes.serialized
    )


@pytest.mark.parametrize("protocol", multicasting())
def test_nobody_looks_at_all_links_for_a_message(protocol):
    async def scenario():
        limits = Limits(linger=0.0)
        async with MemoryNetwork(delay=0).nodes(
            *NAMES, protocol=protocol, options=OPTIONS.get(protocol), limits=limits
        ) as nodes:
            a, b, c = nodes[:3]

            async def exchange(count):
                for _ in range(count):
                    await a.multicast(["b", "c"], b"x")
                    for other in (b, c):
                        (await anext(other)).ack_nowait()
                        await other.flush()

            await exchange(2)
            watched = [each for node in nodes for each in watch(node)]
            await exchange(20)
            assert sum(each.looks for each in watched) == 0

    run(scenario())
