"""What nobody takes: it is bounded by bytes too, makes others wait, and arrives once somebody takes it."""

import asyncio
import socket

import pytest
from test_link_security import Attacker, record
from test_node import addresses, crash, make, nodes, run, take, until

from happened.net import Plaintext
from happened.net.engine import Engine
from happened.net.records import FRAME, Records, control, frames_in, hello_to_json, read_control, with_check
from happened.net.tcp_connections import WRITE_AHEAD
from happened.net.transport import Hello


def test_a_sequencer_whose_peer_is_away_makes_the_senders_wait():
    """a's outboxes are empty again and again: only its unread link to s tells it to wait."""
    limits = {"outbox": 20_000, "frame": 2000, "payload": 1000}

    async def scenario():
        where = addresses("a", "b", "s")
        options = {"protocol": "sequencer", "options": {"coordinator": "s"}}
        a, b, s = (make(name, where, limits=limits, **options) for name in "abs")
        await a.start()
        await s.start()
        total = 5000

        async def send():
            for _ in range(total):
                await a.multicast(["b"], b"x" * 100)
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        await until(lambda: sending.done() or s.stats()["peers"]["a"]["paused"])
        before = -1
        while a.sent != before:  # what was under way when s stopped reading
            before = a.sent
            await asyncio.sleep(0.5)
        assert not sending.done() and a.sent < total / 2
        # Twice the limit and a frame, what a had under way to s, and what the sequencer adds to each.
        assert s.stats()["peers"]["b"]["outbox_bytes"] < 100_000
        await b.start()
        assert await take(b, total) == [f"a:{clock}" for clock in range(1, total + 1)]
        await sending
        await asyncio.gather(a.close(), b.close(), s.close())

    run(scenario())


@pytest.mark.parametrize("journaled", [False, True], ids=["in memory", "journaled"])
def test_links_are_not_read_while_the_application_has_too_many_bytes(tmp_path, journaled):
    limits = {"undelivered_bytes": 200_000}

    async def scenario():
        async with nodes("a", "b", tmp_path=tmp_path if journaled else None, limits=limits) as (a, b):
            total = 400  # far below the limit of messages
            for _ in range(total):
                a.multicast_nowait(["b"], b"x" * 20_000)
            await until(lambda: b.stats()["peers"]["a"]["paused"])
            await asyncio.sleep(0.3)
            before = b.delivered
            assert before < total / 4  # ten, and what one reading of the socket brings
            await asyncio.sleep(0.3)
            assert b.delivered == before
            assert await take(b, total) == [f"a:{clock}" for clock in range(1, total + 1)]
            assert not b.stats()["peers"]["a"]["paused"] and not b._engine.unacknowledged_bytes

    run(scenario())


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after a clean end"])
def test_bytes_that_were_not_acknowledged_count_after_a_restart(tmp_path, clean):
    limits = {"undelivered_bytes": 200_000}

    async def scenario():
        where = addresses("a", "b")
        a, b = (make(name, where, tmp_path, limits) for name in "ab")
        await a.start()
        await b.start()
        for _ in range(11):
            await a.multicast(["b"], b"x" * 20_000)
        await until(lambda: b.host.received("a") == 11)
        await (b.close() if clean else crash(b))
        b = make("b", where, tmp_path, limits)
        await b.start()
        assert b.stats()["peers"]["a"]["paused"]
        await a.multicast(["b"], b"x")
        assert len(await take(b, 12)) == 12
        await asyncio.gather(a.close(), b.close())

    run(scenario())


def test_a_member_that_repeats_itself_and_never_reads_does_not_fill_our_memory():
    async def scenario():
        where = addresses("alice", "bob")
        alice = make("alice", where, limits={"heartbeat": 600})
        await alice.start()
        host, port = where["alice"].split(":")
        bob = Engine("bob", ["alice", "bob"], "ks")
        bob.multicast([0], b"1")
        bob.multicast([0], b"2")
        bob.release(bob.cut())
        first, second = (
            FRAME.pack(len(each), number) + each for number, each in bob.outboxes[0].after(0, 9999)
        )

        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, (host, int(port)))
        attacker = Attacker(*await asyncio.open_connection(sock=raw, limit=1024))
        hand = await attacker.shake_hands(Plaintext(), "bob")
        hello = Hello(b"b" * 8, b"", "ks", ("alice", "bob"))
        attacker.writer.write(record(hand, control(**with_check(hello=hello_to_json(hello)))))
        attacker.writer.write(record(hand, first))
        repeated = record(hand, FRAME.pack(0, 1)) * 4000
        await until(lambda: alice.host.received("bob") == 1)
        called = alice.transport._links["bob"].called
        called._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for _ in range(40):  # each asks for an acknowledgement, of about thirty bytes: 4 MB
            attacker.writer.write(repeated)
            await attacker.writer.drain()
            assert called._transport.get_write_buffer_size() < 2 * WRITE_AHEAD
        attacker.writer.write(record(hand, second))
        assert await take(alice, 2) == ["bob:1", "bob:2"]
        assert not called._may_write, "the buffers of the system took everything: repeat more"
        assert called._transport.get_write_buffer_size() < 2 * WRITE_AHEAD

        # Once it reads, it hears of the last one.
        records, has = Records(1 << 20), 0
        while has < 2:
            data = await attacker.reader.read(65536)
            assert data, "alice hung up"
            for each in records.feed(data):
                for _, body in frames_in(hand.channel.open(each), 1 << 20):
                    has = read_control(body).get("have", has)
        attacker.writer.close()
        await alice.close()

    run(scenario())
