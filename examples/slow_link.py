"""A link that takes its time: a relay on loopback that passes bytes on, late."""

import asyncio
import contextlib


class SlowLink:
    """Give `address` to whoever should call `target` slowly.

    Bytes from caller to `target` are `delay` seconds late, and held altogether while `open` is not set.
    """

    def __init__(self, target: str, delay: float = 0.0) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._delay = delay
        self._tasks: set[asyncio.Task[None]] = set()
        self.open = asyncio.Event()
        self.open.set()
        self.address = ""

    async def __aenter__(self) -> "SlowLink":
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
                try:
                    forth = asyncio.create_task(self._carry(reader, far_writer, slowly=True))
                    back = asyncio.create_task(self._carry(far_reader, writer, slowly=False))
                    try:
                        await asyncio.wait([forth, back], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        forth.cancel()
                        back.cancel()
                finally:
                    far_writer.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slowly: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if slowly:
                    await asyncio.sleep(self._delay)
                    await self.open.wait()
                writer.write(data)
                await writer.drain()
