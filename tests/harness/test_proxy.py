"""The proxy does the harm that it is asked for, and none else."""

import asyncio
import random

import pytest

from harness.proxy import Lane

SAID = bytes(range(256)) * 8


async def heard_through(lane_does):
    """What a server hears of `SAID` through a lane, connection by connection."""
    heard = []

    async def listen(reader, writer):
        heard.append(await reader.read(-1))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    lane = Lane(lambda: server.sockets[0].getsockname()[:2])
    host, port = (await lane.open()).split(":")
    try:
        doing = asyncio.create_task(lane_does(lane))
        await asyncio.sleep(0)  # armed
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(SAID)
        writer.write_eof()
        async with asyncio.timeout(10):
            await doing
            while not heard or (doing.result() and len(heard) < 2):
                await asyncio.sleep(0.01)
        writer.close()
    finally:
        await lane.close()
        server.close()
    return heard


def harmed(kind, seed):
    [heard] = asyncio.run(heard_through(lambda lane: lane.harm(kind, random.Random(seed))))
    return heard


def test_without_harm_all_passes():
    async def nothing(lane):
        return None

    assert asyncio.run(heard_through(nothing)) == [SAID]


def test_a_cut_ends_a_connection_in_the_middle(seed):
    heard = harmed("cut", seed)
    assert len(heard) < len(SAID) and SAID.startswith(heard)


def test_a_flip_changes_one_bit(seed):
    heard = harmed("flip", seed)
    [(was, now)] = [(was, now) for was, now in zip(SAID, heard, strict=True) if was != now]
    assert (was ^ now).bit_count() == 1


def test_a_repetition_says_some_bytes_twice(seed):
    heard = harmed("repeat", seed)
    assert len(heard) > len(SAID) and heard.startswith(SAID) and SAID.endswith(heard[len(SAID) :])


def test_a_drop_leaves_bytes_out(seed):
    heard = harmed("drop", seed)
    assert len(heard) < len(SAID) and SAID.startswith(heard)


def test_a_stall_changes_nothing(seed):
    assert harmed("stall", seed) == SAID


def test_a_connection_is_said_again(seed):
    async def again(lane):
        while not await lane.replay(random.Random(seed)):
            await asyncio.sleep(0.01)
        return True

    assert asyncio.run(heard_through(again)) == [SAID, SAID]


def test_an_unknown_harm_is_refused():
    with pytest.raises(ValueError, match="no harm 'burn'"):
        asyncio.run(Lane(lambda: None).harm("burn", random.Random(1)))
