"""A process that holds a message back until what it waits for has been delivered.

The protocol supplies what it stamps (`stamp`), how far it is with a sender (`delivered`), what a message
lacks (`missing`) and what a delivery teaches (`learn`); and, where the usual does not do, `address`,
`checked`, `told`, `lacks`, `reached`, `skip`, `follows`, and `written` with `read` (a held message in a
snapshot).
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
"""(lane, level): met once that lane has reached the level."""

M = TypeVar("M", bound=Any)


class Delayed(NamedTuple, Generic[M]):
    message: M
    since: int


class DelayQueue(Generic[M]):
    """Messages that arrived too early, each parked under one thing it lacks (watch-one).

    What a message waits for is a set of *wants* (lane, level): a lane is a counter of the machine that only
    grows, usually the clock of the last message delivered of one sender. A held message is parked under a
    single unmet want; when that lane gets there it is looked at again, and parks under the next one or is
    ready. So a delivery costs what it wakes, whatever else is held.

    Invariant  a message is parked under the first want it lacks, in the order the machine looks at them.
               Wants are met for good, so this place depends on the state alone: a restored machine releases
               in the same order as the one that made the snapshot.
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
        """Wake what waits for this lane to get there."""
        heap = self._lanes.get(lane)
        if heap is None or heap[0][0] > level:
            return
        while heap and heap[0][0] <= level:
            self._woken.append(heappop(heap)[1])
        if not heap:
            del self._lanes[lane]

    def lowest(self, lanes: Iterable[int]) -> int | None:
        """The lowest level of these lanes that something is parked under."""
        return min((self._lanes[lane][0][0] for lane in lanes if lane in self._lanes), default=None)

    def woken(self) -> Iterator[MessageKey]:
        """What has been woken, and what is woken meanwhile. The caller removes what it delivers and parks the
        rest again."""
        while self._woken:
            woken, self._woken = self._woken, []
            yield from woken

    @property
    def watched(self) -> list[int]:
        """The lanes something is parked under."""
        return list(self._lanes)

    def refill(self, held: Iterable[tuple[M, int]], lacks: Callable[[M], Want | None]) -> None:
        """Hold exactly these (message, since)."""
        parked = {(message.sender, message.clock): Delayed(message, since) for message, since in held}
        wants = {key: lacks(message) for key, (message, _) in parked.items()}
        self.held, self._lanes, self._woken = parked, {}, []
        for key, want in wants.items():
            if want is not None:
                self.park(key, want)
            else:  # no machine holds what lacks nothing; should a snapshot claim so, it goes with the next
                self._woken.append(key)

    def replace(self, change: Callable[[M], M]) -> None:
        """Hold each message in another form; what it waits for is the same."""
        self.held = {key: Delayed(change(message), since) for key, (message, since) in self.held.items()}


class HoldingProcess(Process, Generic[M]):
    message_type: ClassVar[type]

    def __init__(self, me: int, n: int) -> None:
        super().__init__(me, n)
        self._parking: DelayQueue[M] = DelayQueue()
        self._closing = 0  # bit set: those who have ended, while something of theirs is still held
        self._closed_at = 0  # the local event after which the last of them has ended

    def delivered(self, sender: int) -> int:
        """The clock up to which every message of a sender to us has been delivered."""
        raise NotImplementedError("a protocol says how far it is with a sender, or what a duplicate is")

    @abstractmethod
    def missing(self, message: M) -> Iterable[MessageKey]:
        """The (sender, clock) of every message it waits for."""

    @abstractmethod
    def learn(self, message: M) -> None:
        """What the delivery of a message teaches."""

    def lacks(self, message: M) -> Want | None:
        """The first want that is not met, None if the message can be delivered."""
        return next(iter(self.missing(message)), None)

    def told(self, message: M) -> int:
        """The clock of our newest event that a message depends on."""
        return 0

    def checked(self, message: M) -> M:
        """The message as a system of our size sees it, or a refusal."""
        self.check(message, self.message_type)
        if message.n < self.n:
            message = message.known_to(self.n)
        self.check_known(message, self.told(message))
        return message

    def reached(self, message: M) -> Want:
        """The lane that the delivery of a message has moved, and how far."""
        return message.sender, message.clock

    def moves(self, message: M) -> Iterable[Want]:
        """All lanes that the delivery of a message moves, whatever was delivered before, and how far."""
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
        """Keep a message that has just arrived until this want is met."""
        self._parking.hold(message, want, self.events)

    def is_duplicate(self, message: M) -> bool:
        """Whether the network has brought it before."""
        return message.clock <= self.delivered(message.sender) or message in self._parking

    def pending(self) -> list[Held]:
        return [Held(message, tuple(self.missing(message)), since) for message, since in self._parking]

    def _deliver(self, message: M) -> list[Effect]:
        """Deliver a message whose causes are here, then every held one that this releases."""
        effects = self.take(message)
        for held in self.released():
            effects += self.take(held)
        return effects + self._skip_closed() if self._closing else effects

    def released(self) -> Iterator[M]:
        """The held messages that were woken and lack nothing more; the others that were woken park again."""
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
        """Let the application have a message that lacks nothing."""
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
        """Stop to wait for the missing messages of those who have ended, of each once nothing of it is
        held: what is held of it comes before what is missing."""
        if self.facts.waits.tells_past:
            return self._skip_in_order()
        effects: list[Effect] = []
        while ready := self._closing & ~pack({message.sender for message, _ in self._parking}):
            self._closing &= ~ready
            for process in unpack(ready):
                # One level after another: what follows only a lost message comes after what that followed,
                # and this in turn waits for an earlier message of the same process.
                while (level := self._parking.lowest(self.skip(process, 0))) is not None:
                    effects += self._skip_to(process, level)
                effects += self._skip_to(process, CLOCK_LIMIT - 1)
        return effects

    def _skip_to(self, process: int, clock: int) -> list[Effect]:
        for lane in self.skip(process, clock):
            self._parking.reached(lane, clock)
        return [effect for held in self.released() for effect in self.take(held)]

    def _skip_in_order(self) -> list[Effect]:
        """Let go what waits only for those who have ended, whenever it follows nothing that is held: this is
        safe however many have ended at once."""
        effects: list[Effect] = []
        while (found := self._first_without_cause()) is not None:
            for sender, clock in list(self.missing(found)):
                self.skip(sender, clock)
            left = [(message, since) for message, since in self._parking if message is not found]
            effects += self.take(found)
            self._parking.refill(left, self._want)
        if any(since <= self._closed_at for _, since in self._parking):
            return effects
        # What precedes a lost message was sent before all had heard, and so was here when it was closed with.
        ended, self._closing = self._closing, 0
        for process in unpack(ended):
            effects += self._skip_to(process, CLOCK_LIMIT - 1)
        return effects

    def _want(self, message: M) -> Want | None:
        """What a message lacks. While something is held that lost messages may have followed, it lacks what
        it follows too, for which it waits under its own place: `_skip_in_order` looks at it again."""
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
        """Whether another message precedes this one, of a protocol whose messages always tell."""
        raise NotImplementedError("a protocol that tells the past says how")

    def skip(self, process: int, clock: int) -> Iterable[int]:
        """Take what this process could have sent us up to this clock for delivered; returns its lanes."""
        return ()  # nothing is missing of a process that left by itself; from others, none may be expelled

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
    """One for which the delivered clocks, one for each sender, decide what can be delivered."""

    def listen(self) -> None:
        """Only receive from now on: what others say of our own messages is taken to be true."""
        self.clock = CLOCK_LIMIT - 1
