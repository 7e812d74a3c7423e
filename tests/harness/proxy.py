"""What stands between two nodes, or between a node and its broker: it passes bytes on, and does harm.

A `Lane` knows nothing of what the bytes mean. Harm is *armed*, and done to the next bytes that pass in either
direction; whoever armed it is told when that has happened.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

CHUNK = 1 << 16
RECORDED = 1 << 20  # bytes of one connection that are kept, and can be said again

KINDS = ("cut", "flip", "repeat", "drop", "stall")
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Harm:
    kind: str  # one of KINDS
    dice: random.Random
    done: asyncio.Future[None]


class Lane:
    """Connections to one address, made by one process; `target` tells where that address is at the time."""

    def __init__(self, target: Callable[[], Address | None]) -> None:
        self._target = target
        self._armed: deque[Harm] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._recordings: deque[bytearray] = deque(maxlen=4)

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def harm(self, kind: str, dice: random.Random) -> None:
        """Do it to the next bytes that pass, and return when it is done."""
        if kind not in KINDS:
            raise ValueError(f"there is no harm {kind!r}, only {', '.join(KINDS)}")
        done = asyncio.get_running_loop().create_future()
        self._armed.append(Harm(kind, dice, done))
        await done

    async def replay(self, dice: random.Random) -> bool:
        """Say again what the caller said in one of the last connections; False if nobody can hear it."""
        recordings = [bytes(recording) for recording in self._recordings if recording]
        address = self._target()
        if not recordings or address is None:
            return False
        try:
            reader, writer = await asyncio.open_connection(*address)
        except OSError:
            return False
        with contextlib.suppress(OSError, TimeoutError):
            writer.write(dice.choice(recordings))
            async with asyncio.timeout(dice.uniform(0.2, 2)):
                while await reader.read(CHUNK):
                    pass
        writer.close()
        return True

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = [writer]
        try:
            address = self._target()
            if address is None:
                return
            back, forth = await asyncio.open_connection(*address)
            writers.append(forth)
            said = bytearray()
            self._recordings.append(said)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, forth, said))
                both.create_task(self._pass_on(back, writer, None))
        except* (OSError, _CutOff, asyncio.CancelledError):
            pass
        finally:
            for open_writer in writers:
                open_writer.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytearray | None
    ) -> None:
        while chunk := await reader.read(CHUNK):
            if said is not None and len(said) < RECORDED:
                said += chunk
            if self._armed:
                await self._do_harm(chunk, writer)
            else:
                writer.write(chunk)
            await writer.drain()
        raise _CutOff  # one end has closed: so does the other

    async def _do_harm(self, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        harm = self._armed.popleft()
        place = harm.dice.randrange(len(chunk))
        try:
            if harm.kind == "stall":
                await asyncio.sleep(harm.dice.uniform(0.2, 4))
        finally:  # a connection that ends meanwhile was harmed too
            if not harm.done.done():
                harm.done.set_result(None)
        match harm.kind:
            case "cut":
                writer.write(chunk[:place])
                await writer.drain()
                raise _CutOff
            case "flip":
                flipped = chunk[place] ^ 1 << harm.dice.randrange(8)
                writer.write(chunk[:place] + bytes([flipped]) + chunk[place + 1 :])
            case "repeat":
                writer.write(chunk + chunk[place:])
            case "drop":
                writer.write(chunk[:place])
            case "stall":
                writer.write(chunk)


class _CutOff(Exception):
    """This connection is to end, in both directions."""
