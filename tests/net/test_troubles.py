"""Troubles with peers and strangers: each is told once, none silences another, and calling goes on."""

import asyncio
import logging

from netcluster import QUICK
from test_link_security import record
from test_node import addresses, make, reasons, run, take, until

from happened.net import Limits, Node, Plaintext
from happened.net.connections import LOGGED_REASONS
from happened.net.records import control, hello_to_json, with_check
from happened.net.transport import Hello


def test_a_thousand_strangers_do_not_silence_the_log_about_members(caplog):
    async def scenario():
        async with make("a", addresses("a", "b")) as a:
            for number in range(2 * LOGGED_REASONS):
                a.host.disconnected(f"10.0.{number // 256}.{number % 256}", False, f"trouble {number}")
            assert f"trouble {LOGGED_REASONS - 1}" in reasons(caplog)
            assert f"trouble {LOGGED_REASONS}" not in reasons(caplog)  # bounded all the same
            for _ in range(3):
                a.host.disconnected("b", True, "'b' came back without its journal")
            assert reasons(caplog).count("came back without its journal") == 1

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_a_host_name_that_is_none_is_told_and_tried_again(caplog):
    async def scenario():
        where = addresses("a", "c") | {"b": "a..b:7000"}
        guard, limits = Plaintext(anywhere=True), Limits(**{**QUICK, "linger": 0.2})
        a = Node("a", peers=where, listen=where["a"], guard=guard, limits=limits)
        c = Node("c", peers=where, listen=where["c"], guard=guard, limits=limits)
        await a.start()
        await c.start()
        await until(lambda: any(times > 2 for times in a._connections.troubles_with("b").values()))
        assert {record.peer for record in caplog.records if "label" in getattr(record, "reason", "")} == {"b"}
        await a.multicast(["c"], b"unharmed")
        assert await take(c, 1) == ["a:1"]
        await asyncio.gather(a.close(), c.close())

    with caplog.at_level(logging.WARNING):
        run(scenario())


def test_a_hello_that_does_not_say_what_the_peer_has_is_refused(caplog):
    async def scenario():
        async def answer(reader, writer):
            hand = Plaintext().handshake("b", None, None)
            while hand.peer is None:
                writer.write(hand.receive(await reader.read(4096)))
            hello = hello_to_json(Hello(b"b" * 8, b"", "ks", ("a", "b")))
            writer.write(record(hand, control(**with_check(hello=hello))))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        where = addresses("a") | {"b": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        async with make("a", where) as a:
            await until(lambda: "'have' is None, not a link number" in reasons(caplog))
            assert not a.stats()["peers"]["b"]["calling"]
        server.close()

    with caplog.at_level(logging.WARNING):
        run(scenario())
