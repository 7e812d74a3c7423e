"""A causal order nobody would want to pay for: every message carries its whole causal past.

Safe and live by inspection, and far from optimal. Shares no idea with the protocols under test.
"""

from ast import literal_eval
from collections.abc import Iterable

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Effect, Held, Multicast, Unit
from oracles.bare import BareMachine, BareMessage

Name = tuple[int, int]
Past = frozenset[tuple[Name, frozenset[int]]]


class HistoryMessage(BareMessage):
    sender: int
    clock: int
    to: frozenset[int]
    past: Past  # every earlier message with its destinations
    payload: bytes

    @property
    def name(self) -> Name:
        return self.sender, self.clock

    def units(self) -> frozenset[Unit]:
        return frozenset((s, t, d) for (s, t), to in self.past for d in to)

    def size(self) -> tuple[int, int]:
        return len(self.past), len(self.units())


class FullHistory(BareMachine):
    def __init__(self, me: int, n: int) -> None:
        self.me, self.n = me, n
        self._clock = self._events = 0
        self._past: Past = frozenset()
        self._delivered: frozenset[Name] = frozenset()
        self._held: tuple[tuple[HistoryMessage, int], ...] = ()

    @property
    def clock(self) -> int:
        return self._clock

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        self._clock += 1
        self._events += 1
        message = HistoryMessage(self.me, self._clock, frozenset(to), self._past, payload)
        self._past |= {(message.name, message.to)}
        return Multicast(self._clock, [Send(d, message) for d in sorted(message.to)])

    def receive(self, message: HistoryMessage) -> list[Effect]:
        self._events += 1
        if message.name in self._delivered or any(message.name == held.name for held, _ in self._held):
            return []
        self._held += ((message, self._events),)
        effects: list[Effect] = []
        while ready := [entry for entry in self._held if not self._lacks(entry[0])]:
            (message, _), *_ = ready
            self._held = tuple(entry for entry in self._held if entry is not ready[0])
            self._events += 1
            self._delivered |= {message.name}
            self._past |= message.past | {(message.name, message.to)}
            effects.append(Deliver(message.sender, message.clock, message.payload))
        return effects

    def pending(self) -> list[Held]:
        return [Held(message, self._lacks(message), since) for message, since in self._held]

    def tick(self) -> int:
        self._clock += 1
        self._events += 1
        return self._clock

    def snapshot(self) -> bytes:
        held = [
            (*message[:2], sorted(message.to), _plain(message.past), message.payload, since)
            for message, since in self._held
        ]
        state = self.n, self._clock, self._events, _plain(self._past), sorted(self._delivered), held
        return repr(state).encode()

    def restore(self, data: bytes) -> None:
        self.n, self._clock, self._events, past, delivered, held = literal_eval(data.decode())
        self._past, self._delivered = _past(past), frozenset(delivered)
        self._held = tuple(
            (HistoryMessage(sender, clock, frozenset(to), _past(past), payload), since)
            for sender, clock, to, past, payload, since in held
        )

    def _lacks(self, message: HistoryMessage) -> tuple[Name, ...]:
        mine = (name for name, to in message.past if self.me in to)
        return tuple(sorted(name for name in mine if name not in self._delivered))


def _plain(past: Past) -> list[tuple[Name, list[int]]]:
    return sorted((name, sorted(to)) for name, to in past)


def _past(plain: list[tuple[Name, list[int]]]) -> Past:
    return frozenset((name, frozenset(to)) for name, to in plain)
