"""Who takes the messages of a node: tasks that iterate over it share them; each subscription gets a copy.

Promises   every delivery is given to one task that iterates over the node, or to every subscription that
           exists when it is distributed. It counts as acknowledged when each of them has acknowledged its
           copy; without a journal, when each has taken it. A delivery that nobody has taken is never
           acknowledged by itself. A task that is cancelled while it waits has taken nothing.
Bounds     those of the engine: deliveries that are not acknowledged, or are to come again, stay in its count.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from ..core.errors import LocalProtocolError
from .batch import Delivery
from .errors import NodeClosed
from .lifecycle import Lifecycle
from .message import REPLY, Message, Processing, Sent
from .payloads import Payloads


class Desk(Protocol):
    """The node, as its consumers see it. `revive` makes a delivery come again."""

    payloads: Payloads
    life: Lifecycle

    def name_of(self, process: int) -> str: ...
    def finish(self, number: int) -> None: ...
    def revive(self, delivery: Delivery) -> None: ...
    def is_open(self, number: int) -> bool: ...
    async def flush(self) -> None: ...
    async def multicast_with(
        self, then: Callable[[], None], to: str | Iterable[str], value: Any, headers: Mapping[str, str] | None
    ) -> Sent: ...


class Copies(NamedTuple):
    """One delivery that was given to subscriptions: to how many, and which have not finished with it."""

    given: int
    holders: "set[Consumer]"


class Consumer:
    """One queue of deliveries, and the messages that were taken from it."""

    def __init__(self, consumers: "Consumers") -> None:
        self._consumers = consumers
        self.payloads = consumers.desk.payloads
        self.queue: deque[Delivery] = deque()
        self.news = asyncio.Event()  # set when the queue has something, or when there is a reason not to wait
        self.is_closed = False
        self._attempts: dict[int, int] = {}  # by the number of each delivery that is to come again

    # What a message calls.

    async def flush(self) -> None:
        await self._consumers.desk.flush()

    def acknowledge(self, number: int) -> None:
        consumers = self._consumers
        if not consumers.life.takes_input:
            consumers.life.check_takes_input()
        if consumers.repeats:
            consumers.finish(self, number)

    async def acknowledge_and_multicast(
        self, number: int, to: str | Iterable[str], value: Any, headers: Mapping[str, str] | None
    ) -> Sent:
        def acknowledge() -> None:
            self._check_open(number)
            self.acknowledge(number)

        self._check_open(number)
        return await self._consumers.desk.multicast_with(acknowledge, to, value, headers)

    def nack(self, delivery: Delivery, delay: float, attempt: int) -> None:
        consumers = self._consumers
        consumers.life.check_takes_input()
        self._check_open(delivery.number)
        if not consumers.repeats:
            consumers.revive(self, delivery)
        self._attempts[delivery.number] = attempt + 1
        consumers.later(delay, lambda: self._put_back(delivery))

    def _check_open(self, number: int) -> None:
        consumers = self._consumers
        if consumers.repeats and not consumers.is_open(self, number):
            raise LocalProtocolError(f"delivery {number} is acknowledged already: nothing is done")

    def _put_back(self, delivery: Delivery) -> None:
        if self.is_closed:
            self._consumers.leave_behind(self, [delivery])
        else:
            self.queue.append(delivery)
            self.news.set()

    # Methods that take messages.

    def take_nowait(self) -> Message | None:
        """The next message; None if there is none, or the node has failed."""
        consumers = self._consumers
        if consumers.subscriptions:
            consumers.distribute(self)
        return self.hand(self.queue.popleft()) if self.queue and consumers.life.failure is None else None

    def hand(self, delivery: Delivery) -> Message:
        """Hand out a delivery that is in no queue."""
        consumers, desk = self._consumers, self._consumers.desk
        attempt = self._attempts.pop(delivery.number, 1) if self._attempts else 1
        processing = None if consumers.processing is None else consumers.processing(delivery.number)
        if not consumers.repeats:
            if consumers.copies:
                consumers.finish(self, delivery.number)
            else:
                desk.finish(delivery.number)
        return Message(self, delivery, desk.name_of(delivery.sender), attempt, processing)

    async def take(self) -> Message:
        life = self._consumers.life
        while (message := self.take_nowait()) is None:
            if life.failure is not None:
                raise life.closed_error()
            if self.is_closed or not life.is_running:
                raise StopAsyncIteration
            self.news.clear()
            await self.news.wait()
        return message


class Subscription(Consumer):
    """A consumer that gets every message, starting with those that wait when it is first read.

    with node.subscribe() as messages:
        async for message in messages: ...
    """

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more messages. Those not taken are left to the other subscriptions; those taken and not
        acknowledged come again when the process starts again."""
        self._consumers.unsubscribe(self)

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        return await self.take()

    receive_nowait = Consumer.take_nowait


class Consumers:
    """All consumers of one node. The tasks that iterate over the node itself share `own`.

    repeats   whether a delivery that is not acknowledged comes again after a restart; otherwise the
              application is done with a delivery when it has taken it
    """

    def __init__(self, desk: Desk, *, repeats: bool, processing: Callable[[int], Processing] | None) -> None:
        self.desk, self.life, self.repeats, self.processing = desk, desk.life, repeats, processing
        self.own = Consumer(self)
        self.subscriptions: list[Subscription] = []
        self.copies: dict[int, Copies] = {}  # by number, deliveries that were given to subscriptions
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def waiting(self) -> int:
        """How many deliveries are waiting to be taken."""
        return len(self.own.queue) + max((len(each.queue) for each in self.subscriptions), default=0)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        self.own.queue.extend(deliveries)
        self.own.news.set()
        if self.subscriptions:
            self.wake()

    def wake(self) -> None:
        self.own.news.set()
        for each in self.subscriptions:
            each.news.set()

    def stop(self) -> None:
        """The node takes no more input: deliveries that are to come again come after its next start."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.wake()

    # Subscriptions.

    def subscribe(self) -> Subscription:
        self.subscriptions.append(subscription := Subscription(self))
        self.own.news.set()  # tasks that wait on the node itself learn that they get nothing
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        if not subscription.is_closed:
            subscription.is_closed = True
            self.subscriptions.remove(subscription)
            self.leave_behind(subscription, subscription.queue)
            subscription.queue.clear()
            subscription.news.set()

    def leave_behind(self, closed: Consumer, deliveries: Iterable[Delivery]) -> None:
        """Leave deliveries of a closed subscription to those that have copies, or else to the next one."""
        for delivery in deliveries:
            copies = self.copies.get(delivery.number)
            if copies is not None and copies.given > 1:
                self.finish(closed, delivery.number)
            else:
                self.copies.pop(delivery.number, None)
                self.deliver([delivery])

    def distribute(self, taker: Consumer) -> None:
        """Give waiting deliveries to every subscription. LocalProtocolError if `taker` is not one of them."""
        if taker is self.own:
            raise LocalProtocolError("this node has subscriptions, which get its messages: iterate over one")
        while self.own.queue:
            delivery = self.own.queue.popleft()
            self.copies[delivery.number] = Copies(len(self.subscriptions), set(self.subscriptions))
            for each in self.subscriptions:
                each.queue.append(delivery)
                each.news.set()

    # Copies.

    def is_open(self, consumer: Consumer, number: int) -> bool:
        copies = self.copies.get(number)
        return self.desk.is_open(number) and (copies is None or consumer in copies.holders)

    def finish(self, consumer: Consumer, number: int) -> None:
        if self.copies and (copies := self.copies.get(number)) is not None:
            copies.holders.discard(consumer)
            if copies.holders:
                return
            del self.copies[number]
        self.desk.finish(number)

    def revive(self, consumer: Consumer, delivery: Delivery) -> None:
        """Without a journal: give a delivery again to a consumer that has taken it."""
        if (copies := self.copies.get(delivery.number)) is not None:
            copies.holders.add(consumer)
        else:
            self.desk.revive(delivery)

    def later(self, delay: float, act: Callable[[], None]) -> None:
        def fire() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(delay, fire)
        self._timers.add(timer)


class Requests:
    """The requests of one node. A reply goes to the task that awaits it, ahead of queued deliveries."""

    def __init__(self, payloads: Payloads, take: Callable[[Delivery], Message]) -> None:
        self._payloads = payloads
        self._take = take
        self.waiting: dict[str, asyncio.Future[Message]] = {}

    def answered(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Hand replies to the tasks that wait for them; returns the other deliveries, in order."""
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
                with contextlib.suppress(NodeClosed):  # then the reply comes after the next start
                    waiter.result().nack()  # the reply came at the same moment
            raise
        finally:
            del self.waiting[name]

    def stop(self, error: Callable[[], BaseException]) -> None:
        """End the requests that wait: no reply will come."""
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(error())
