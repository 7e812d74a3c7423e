"""A process that holds a message back until what it waits for has been delivered.

A protocol supplies four methods: `stamp` sends a multicast, `delivered` tells how far a sender's messages are
delivered, `missing` tells what a message waits for, and `learn` updates the state at a delivery. Where the
defaults do not fit it overrides `address`, `checked`, `told`, `lacks`, `reached`, `skip`, `follows`, or
`written` with `read` (a held message in a snapshot).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from ..core.destinations import pack, unpack
from ..core.effects import Deliver
from ..core.lanes import CLOCK_LIMIT
from .machine import Effect, Held, MessageKey
from .process import Process, State
from .snapshots import reader

Want = tuple[int, int]
"""A pair (lane, level): this want is met once the lane has reached the level."""

M = TypeVar("M", bound=Any)


class Delayed(NamedTuple, Generic[M]):
    message: M
    since: int


class DelayQueue(Generic[M]):
    """Messages that arrived too early, each parked under one want that is not met yet (watch-one).

    What a message waits for is a set of *wants* (lane, level). A lane is a counter of the machine that only
    grows, usually the clock of the last message delivered from one sender. A held message is parked under a
    single unmet want; when the lane reaches that level the machine looks at the message again, and parks it
    under the next unmet want or finds it ready. So a delivery costs only the messages that it wakes.

    Invariant  a message is parked under its first unmet want, in the order in which the machine checks them.
               A want stays met, so this place depends on the state alone: a restored machine releases
               messages in the same order as the machine that made the snapshot.
    """

    __slots__ = ("_lanes", "_woken", "held")

    def __init__(self) -> None:
        self.held: dict[MessageKey, Delayed[M]] = {}
        self._lanes: dict[int, list[tuple[int, MessageKey]]] = {}  # heaps of (level, message)
        self._woken: list[MessageKey] = []

    def __iter__(self) -> Iterator[Delayed[M]]:
        return iter(self.held.values())

    def __contains__(self, message: M) -> bool:
        return (message.sender, message.clock) in self.held

    def hold(self, message: M, want: Want, since: int) -> None:
        lane, level = want
        key = (message.sender, message.clock)
        self.held[key] = Delayed(message, since)
        heappush(self._lanes.setdefault(lane, []), (level, key))

    def park(self, key: MessageKey, want: Want) -> None:
        lane, level = want
        heappush(self._lanes.setdefault(lane, []), (level, key))

    def reached(self, lane: int, level: int) -> None:
        """Wake the messages that wait for this lane to reach this level."""
        heap = self._lanes.get(lane)
        if heap is None or heap[0][0] > level:
            return
        while heap and heap[0][0] <= level:
            self._woken.append(heappop(heap)[1])
        if not heap:
            del self._lanes[lane]

    def lowest(self, lanes: Iterable[int]) -> int | None:
        """The lowest level of these lanes under which a message is parked; None if there is none."""
        return min((self._lanes[lane][0][0] for lane in lanes if lane in self._lanes), default=None)

    def woken(self) -> Iterator[MessageKey]:
        """The messages that were woken, including those woken during the iteration. The caller removes the
        messages that it delivers and parks the rest again."""
        while self._woken:
            woken, self._woken = self._woken, []
            yield from woken

    @property
    def watched(self) -> list[int]:
        """The lanes under which messages are parked."""
        return list(self._lanes)

    def refill(self, held: Iterable[tuple[M, int]], lacks: Callable[[M], Want | None]) -> None:
        """Replace the queue's content by these pairs (message, local event of its arrival)."""
        parked = {(message.sender, message.clock): Delayed(message, since) for message, since in held}
        wants = {key: lacks(message) for key, (message, _) in parked.items()}
        self.held, self._lanes, self._woken = parked, {}, []
        for key, want in wants.items():
            if want is not None:
                self.park(key, want)
            else:  # a correct snapshot holds no such message; if one does, the next release delivers it
                self._woken.append(key)

    def replace(self, change: Callable[[M], M]) -> None:
        """Convert each held message to another form; what it waits for must stay the same."""
        self.held = {key: Delayed(change(message), since) for key, (message, since) in self.held.items()}


class HoldingProcess(Process, Generic[M]):
    message_type: ClassVar[type]

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._parking: DelayQueue[M] = DelayQueue()
        self._closing = 0  # bit set: closed processes that still have a held message here
        self._closed_at = 0  # the local event after which the last of these processes was closed

    def delivered(self, sender: int) -> int:
        """The clock up to which every message of a sender to us has been delivered."""
        raise NotImplementedError("a protocol says how far it is with a sender, or what a duplicate is")

    @abstractmethod
    def missing(self, message: M) -> Iterable[MessageKey]:
        """The (sender, clock) of every message that this message waits for."""

    @abstractmethod
    def learn(self, message: M) -> None:
        """Update the state for the delivery of this message."""

    def lacks(self, message: M) -> Want | None:
        """The first unmet want of a message; None if the message can be delivered."""
        return next(iter(self.missing(message)), None)

    def told(self, message: M) -> int:
        """The clock of our newest event on which a message depends."""
        return 0

    def checked(self, message: M) -> M:
        """The message extended to our number of processes; raises if no correct peer sends it."""
        self.check(message, self.message_type)
        if message.n < self.n:
            message = message.known_to(self.n)
        self.check_known(message, self.told(message))
        return message

    def reached(self, message: M) -> Want:
        """The lane that the delivery of this message raises, and the level to which."""
        return message.sender, message.clock

    def moves(self, message: M) -> Iterable[Want]:
        """The levels to which a delivery of this message raises lanes, whatever was delivered before."""
        return ((message.sender, message.clock),)

    def receive(self, message: M) -> list[Effect]:
        message = self.checked(message)
        self.events += 1
        if self.is_duplicate(message):
            return []
        want = self._want(message) if self._closing else self.lacks(message)
        if want is not None:
            self.hold(message, want)
            return self._skip_closed() if self._closing else []
        return self._deliver(message) if self._parking.held else self.take(message)

    def hold(self, message: M, want: Want) -> None:
        """Hold a message that has just arrived until this want is met."""
        self._parking.hold(message, want, self.events)

    def is_duplicate(self, message: M) -> bool:
        """Whether this message has arrived before: it is delivered or held."""
        return message.clock <= self.delivered(message.sender) or message in self._parking

    def pending(self) -> list[Held]:
        return [Held(message, tuple(self.missing(message)), since) for message, since in self._parking]

    def _deliver(self, message: M) -> list[Effect]:
        """Deliver a message that lacks nothing, then every held message that this delivery releases."""
        effects = self.take(message)
        for held in self.released():
            effects += self.take(held)
        return effects + self._skip_closed() if self._closing else effects

    def released(self) -> Iterator[M]:
        """The woken messages that lack nothing more; the other woken messages are parked again."""
        parking = self._parking
        for key in parking.woken():
            message = parking.held[key].message
            want = self._want(message)
            if want is not None:
                parking.park(key, want)
            else:
                del parking.held[key]
                yield message

    def take(self, message: M) -> list[Effect]:
        """Deliver a message that lacks nothing to the application."""
        self.learn(message)
        self._parking.reached(*self.reached(message))
        self.events += 1
        return [Deliver(message.sender, message.clock, message.payload)]

    def close(self, process: int) -> list[Effect]:
        super().close(process)
        self._closing |= 1 << process
        self._closed_at = self.events
        return self._skip_closed()

    def _skip_closed(self) -> list[Effect]:
        """Stop waiting for missing messages of each closed process as soon as none of its messages is held: a
        held message precedes the missing ones."""
        if self.facts.waits.tells_past:
            return self._skip_in_order()
        effects: list[Effect] = []
        while ready := self._closing & ~pack({message.sender for message, _ in self._parking}):
            self._closing &= ~ready
            for process in unpack(ready):
                # Raise levels in steps: a message that follows only a lost one comes after what that lost one
                # followed, and that in turn waits for an earlier message of the same process.
                while (level := self._parking.lowest(self.skip(process, 0))) is not None:
                    effects += self._skip_to(process, level)
                effects += self._skip_to(process, CLOCK_LIMIT - 1)
        return effects

    def _skip_to(self, process: int, clock: int) -> list[Effect]:
        for lane in self.skip(process, clock):
            self._parking.reached(lane, clock)
        return [effect for held in self.released() for effect in self.take(held)]

    def _skip_in_order(self) -> list[Effect]:
        """Release a message that waits only for closed processes once it follows no held message. This is
        safe however many processes have been closed at once."""
        effects: list[Effect] = []
        while (found := self._first_without_cause()) is not None:
            for sender, clock in list(self.missing(found)):
                self.skip(sender, clock)
            left = [(message, since) for message, since in self._parking if message is not found]
            effects += self.take(found)
            self._parking.refill(left, self._want)
        if any(since <= self._closed_at for _, since in self._parking):
            return effects
        # What precedes a lost message was sent before all heard of the departure: it came before `close`.
        ended, self._closing = self._closing, 0
        for process in unpack(ended):
            effects += self._skip_to(process, CLOCK_LIMIT - 1)
        return effects

    def _want(self, message: M) -> Want | None:
        """The first unmet want of a message. While lost messages may have followed a held one, held causes
        count too: a message waits for these under its own key, and `_skip_in_order` checks it again."""
        want = self.lacks(message)
        if want is not None or not self._closing or not self.facts.waits.tells_past:
            return want
        causes = (other for other, _ in self._parking if other is not message)
        return self.reached(message) if any(self.follows(message, other) for other in causes) else None

    def _first_without_cause(self) -> M | None:
        held = [message for message, _ in self._parking]
        for message in sorted(held, key=lambda message: sorted(self.missing(message))):
            if all(self._closing >> sender & 1 for sender, _ in self.missing(message)) and not any(
                self.follows(message, other) for other in held if other is not message
            ):
                return message
        return None

    def follows(self, message: M, other: M) -> bool:
        """Whether `other` causally precedes `message`, in a protocol whose messages tell their past."""
        raise NotImplementedError("a protocol that tells the past says how")

    def skip(self, process: int, clock: int) -> Iterable[int]:
        """Treat the messages of this process to us up to this clock as delivered; returns its lanes."""
        return ()  # a process that left by itself leaves nothing missing; this protocol cannot expel one

    def written(self, message: M) -> tuple[Any, ...]:
        return tuple(message)

    def read(self, fields: tuple[Any, ...]) -> M:
        message: M = reader(self.message_type)(fields)
        return message

    def _saved(self) -> State:
        held = tuple((*self.written(message), since) for message, since in self._parking)
        return super()._saved() | {"held": held, "closing": (self._closing, self._closed_at)}

    def _loaded(self, state: State) -> None:
        held = [(self.read(fields), since) for *fields, since in state["held"]]
        super()._loaded(state)
        self._closing, self._closed_at = state["closing"]
        self._parking.refill(held, self.lacks)


class ListeningProcess(HoldingProcess[M]):
    """A process for which one delivered clock per sender decides what can be delivered."""

    def listen(self) -> None:
        """Only receive from now on, and believe what other processes say of our own messages."""
        self.clock = CLOCK_LIMIT - 1
