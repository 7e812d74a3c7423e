"""Δ driven by a node's clock (Rodrigues & Veríssimo 1995, §4.5): histories shrink, the order holds, and
nothing is forgotten while a peer is seen to be late."""

import asyncio
from random import Random

import pytest
from test_engine_replay import NAMES, deliver_all, make
from test_node import addresses, nodes, run, take, until
from test_node import make as make_node

from happened.causality import check_delivery, check_order
from happened.core.errors import LocalProtocolError
from happened.net.config import ConfigError, load
from happened.net.engine import Engine
from happened.ordering import able
from happened.ordering.capabilities import Expires
from happened.trace import read

EXPIRES = able(Expires)


def kept(engine):
    return len(engine.machine.history())


@pytest.mark.parametrize("protocol", EXPIRES)
def test_forgetting_is_an_input_like_any_other(protocol, dice: Random):
    """Replayed, it has the same effect; histories are shorter from then on."""
    sizes = {False: 0, True: 0}
    for expires in sizes:
        engines = {name: make(name, protocol) for name in NAMES}
        for _ in range(60):
            for _ in range(3):
                engine = dice.choice(list(engines.values()))
                engine.multicast(dice.sample(range(4), 2), b"x")
            deliver_all(engines)  # all within Δ
            for name, engine in engines.items():
                sizes[expires] += kept(engine)
                if expires:
                    copy = make(name, protocol)
                    copy.restore(engine.snapshot())
                    engine.expire()
                    batch = engine.cut()
                    engine.release(batch)
                    copy.replay(batch.entries, 0)
                    assert copy.snapshot() == engine.snapshot()
    assert 0 < sizes[True] < sizes[False]


def test_histories_shrink_and_order_holds(tmp_path):
    async def test():
        most = {}
        for expiry in (None, 0.25):
            where = tmp_path / str(expiry)
            where.mkdir()
            async with nodes(
                "a", "b", "c", tmp_path=where, protocol="histories", trace=where / "trace", expiry=expiry
            ) as these:
                for round_ in range(3):
                    for k in range(12):
                        sender, other = these[(k + round_) % 3], these[(k + 1 + round_) % 3]
                        await sender.multicast([other.name], b"x")
                    if expiry:  # twice: what was there at the first time is forgotten at the second
                        await until(lambda these=these: not any(kept(node._engine) for node in these))
                most[expiry] = max(kept(node._engine) for node in these)
                for node in these:
                    await take(node, node.delivered)
            trace = read(where / "trace")
            fates = check_delivery(trace)
            assert check_order(trace).holds and (fates.messages, fates.lost, fates.duplicated) == (36, 0, 0)
        assert most[0.25] == 0 < most[None]

    run(test())


def test_nothing_is_forgotten_while_a_peer_lacks_what_it_was_sent(tmp_path, caplog):
    async def test():
        where = addresses("a", "b", "c")
        async with make_node("a", where, tmp_path, protocol="histories", expiry=0.02) as a:
            await a.multicast(["b", "c"], b"b and c are away")
            await until(lambda: any(record.message == "late" for record in caplog.records))
            await asyncio.sleep(0.1)
            assert kept(a._engine) == 1
            async with (
                make_node("b", where, tmp_path, protocol="histories") as b,
                make_node("c", where, tmp_path, protocol="histories") as c,
            ):
                await take(b, 1)
                await take(c, 1)
                await until(lambda: not kept(a._engine))

    run(test())


def test_what_cannot_be_a_bound_is_refused(tmp_path):
    where = {"a": "127.0.0.1:0"}
    with pytest.raises(LocalProtocolError, match="expiry` is for histories, topological"):
        make_node("a", where, expiry=1.0)
    for wrong in (0, -1, "soon", True):
        with pytest.raises(LocalProtocolError, match="a number of seconds above 0"):
            make_node("a", where, protocol="histories", expiry=wrong)
    with pytest.raises(LocalProtocolError, match="lacks the capability Expires"):
        Engine("a", ["a"], "ks").expire()
    file = tmp_path / "node.toml"
    file.write_text('name = "a"\nexpiry = "soon"\n')
    with pytest.raises(ConfigError, match="a number of seconds"):
        load(file)
    file.write_text('name = "a"\nexpiry = 2.5\n')
    assert load(file)["expiry"] == 2.5
