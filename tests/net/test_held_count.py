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


async def commit(nodes):
    await asyncio.gather(*(node.flush() for node in nodes))


async def busy(protocol, dice, steps, directory):
    """Multicast and carry single frames at random; the most that was held anywhere at one time."""
    facts = protocols()[protocol]
    more = [
        {"journal": directory / name, "flush": False} if facts.assumes.serialized else {} for name in NAMES
    ]
    nodes = [
        make_node(name, NAMES, protocol, options=options(facts, len(NAMES)), **each)
        for name, each in zip(NAMES, more, strict=True)
    ]
    for node in nodes:
        await node.start()
    most = 0
    for _ in range(steps):
        if dice.random() < 0.3:
            sender = dice.choice(nodes)
            engine = sender._engine
            with sender._turn_input():
                if engine.has_turn:
                    sender.multicast_nowait([NAMES[p] for p in to_whom(protocol, dice, engine.me)], b"x")
                    if facts.assumes.serialized:
                        engine.serialization.release()
                else:
                    engine.serialization.want()
        else:
            carry(*dice.sample(nodes, 2), most=1)
        await commit(nodes)
        most = max(most, *held_numbers(nodes))
    while sum(carry(a, b) for a in nodes for b in nodes if a is not b):
        await commit(nodes)
    assert not any(held_numbers(nodes))
    for node in nodes:
        await node.close()
    return most


@pytest.mark.parametrize("protocol", sorted(protocols()))
def test_the_number_held_is_the_number_pending(protocol, dice: Random, tmp_path):
    steps = (
        1500 if protocols()[protocol].assumes.serialized else 300
    )  # the token makes its way in most of them
    most = asyncio.run(busy(protocol, dice, steps, tmp_path / "0"))
    for again in range(1, 6):  # whether anything is ever held is a matter of luck
        if most or protocol in NEVER_HOLDS:
            break
        most = asyncio.run(busy(protocol, dice, steps, tmp_path / str(again)))
    assert most == 0 if protocol in NEVER_HOLDS else most > 0
