"""`stats()["held"]` is the length of `pending()`, whatever the protocol waits for."""

import asyncio
from random import Random

import pytest
from in_hand import carry, make_node
from test_engine_replay import NAMES, to_whom

from contract.drive import options
from happened.ordering import protocols

NEVER_HOLDS = {"acknowledged", "cbcast", "flooding", "sequencer"}
"""What must wait does so at its sender, comes with what it waits for, or is in order on every FIFO link."""


def held_numbers(nodes):
    for node in nodes:
        held = node.stats()["held"]
        assert held == len(node.pending()), node.name
        yield held


async def busy(protocol, dice, steps):
    """Multicast and carry single frames at random; the most that was held anywhere at one time."""
    facts = protocols()[protocol]
    nodes = [make_node(name, NAMES, protocol, options=options(facts, len(NAMES))) for name in NAMES]
    for node in nodes:
        await node.start()
    most, token = 0, None
    for _ in range(steps):
        if dice.random() < 0.3:
            sender = dice.choice(nodes)
            machine = sender._engine.machine
            if token is not None:
                machine.follow(token)
            sender.multicast_nowait([NAMES[p] for p in to_whom(protocol, dice, machine.me)], b"x")
            if facts.serialized:
                token = machine.latest
        else:
            carry(*dice.sample(nodes, 2), most=1)
        await asyncio.sleep(0)  # the commit
        most = max(most, *held_numbers(nodes))
    while sum(carry(a, b) for a in nodes for b in nodes if a is not b):
        await asyncio.sleep(0)
    assert not any(held_numbers(nodes))
    for node in nodes:
        await node.close()
    return most


@pytest.mark.parametrize("protocol", sorted(protocols()))
def test_the_number_held_is_the_number_pending(protocol, dice: Random):
    most = asyncio.run(busy(protocol, dice, 300))
    assert most == 0 if protocol in NEVER_HOLDS else most > 0
