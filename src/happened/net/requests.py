"""Requests that wait for their replies, by the names of the messages that asked."""

import asyncio
import contextlib
from collections.abc import Callable

from .batch import Delivery
from .errors import NodeClosed
from .message import REPLY, Message
from .payloads import Payloads


class Requests:
    """Those of one node. A reply goes to whoever waits for it, past everything that waits to be taken."""

    def __init__(self, payloads: Payloads, take: Callable[[Delivery], Message]) -> None:
        self._payloads = payloads
        self._take = take
        self.waiting: dict[str, asyncio.Future[Message]] = {}

    def answered(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Hand replies to those who wait for them; returns the other deliveries, in order."""
        return [each for each in deliveries if not self._is_taken(each)]

    def _is_taken(self, delivery: Delivery) -> bool:
        waiter = self.waiting.get(self._payloads.open(delivery.payload).headers.get(REPLY, ""))
        if waiter is None or waiter.done():
            return False
        waiter.set_result(self._take(delivery))
        return True

    async def reply(self, name: str) -> Message:
        """Wait for the reply to a message. If nobody waits any more it comes like any other message."""
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.waiting[name] = waiter
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                with contextlib.suppress(NodeClosed):  # then it comes when the process starts again
                    waiter.result().nack()  # it came at the same moment
            raise
        finally:
            del self.waiting[name]

    def stop(self, error: Callable[[], BaseException]) -> None:
        """No reply will come."""
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(error())
