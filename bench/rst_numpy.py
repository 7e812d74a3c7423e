"""Raynal, Schiper & Toueg (IPL 39(6), 1991) on numpy matrices, the comparison for `ks`' throughput.

The methods, effects and watch-one parking of held messages are those of `ks`, so that only the control
information differs. A multicast copies the matrix once for all of its destinations.
"""

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from happened.core.effects import Deliver, Send
from happened.ordering.machine import Multicast


class RstMessage(NamedTuple):
    sender: int
    clock: int
    dests: np.ndarray  # 1 at each destination, else 0
    sent: np.ndarray  # sent[i, j]: messages i -> j in this message's causal past
    payload: bytes


class RstNumpy:
    def __init__(self, me: int, n: int) -> None:
        self._me = me
        self._n = n
        self._clock = 0
        self._sent = np.zeros((n, n), dtype=np.int64)
        self._delivered = np.zeros(n, dtype=np.int64)
        self._seen: set[tuple[int, int]] = set()
        self._held: dict[tuple[int, int], RstMessage] = {}
        self._parked: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in range(n)]

    def multicast(self, to, payload):
        members = list(to)
        dests = np.zeros(self._n, dtype=np.int64)
        dests[members] = 1
        self._clock += 1
        message = RstMessage(self._me, self._clock, dests, self._sent.copy(), payload)
        self._sent[self._me] += dests
        return Multicast(self._clock, [Send(d, message) for d in members])

    def receive(self, message):
        key = (message.sender, message.clock)
        if key in self._seen:
            return []
        self._seen.add(key)
        missing = self._first_missing(message)
        if missing is not None:
            self._held[key] = message
            heappush(self._parked[missing[0]], (missing[1], key))
            return []
        return self._deliver(message)

    def _first_missing(self, message):
        needed = message.sent[:, self._me]
        short = self._delivered < needed
        if not short.any():
            return None
        sender = int(short.argmax())
        return sender, int(needed[sender])

    def _deliver(self, message):
        effects = []
        ready = [message]
        for message in ready:
            sender = message.sender
            self._delivered[sender] += 1
            effects.append(Deliver(sender, message.clock, message.payload))
            np.maximum(self._sent, message.sent, out=self._sent)
            np.maximum(self._sent[sender], message.sent[sender] + message.dests, out=self._sent[sender])
            parked, count = self._parked[sender], int(self._delivered[sender])
            while parked and parked[0][0] <= count:
                _, key = heappop(parked)
                missing = self._first_missing(self._held[key])
                if missing is None:
                    ready.append(self._held.pop(key))
                else:
                    heappush(self._parked[missing[0]], (missing[1], key))
        return effects
