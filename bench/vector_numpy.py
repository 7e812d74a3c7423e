"""Vector clocks on numpy arrays: the comparison for the trackers' send + receive.

It has the methods and refusals of the machines in `happened.tracking`, and copies one array per message.
"""

from typing import NamedTuple

import numpy as np

from happened.core.errors import RemoteProtocolError
from happened.tracking import Timestamp, refusals


class NumpyPiggyback(NamedTuple):
    n: int
    values: np.ndarray
    forced: None = None

    @property
    def entries(self):
        return self.n


class NumpyVector:
    def __init__(self, me, n):
        self._me = me
        self._n = n
        self._vector = np.zeros(n, dtype=np.int64)

    def relevant(self):
        self._vector[self._me] += 1
        return Timestamp(self._me, int(self._vector[self._me]), tuple(self._vector.tolist()))

    def on_send(self, to):
        refusals.peer(to, self._me, self._n)
        return NumpyPiggyback(self._n, self._vector.copy())

    def on_receive(self, sender, piggyback):
        refusals.peer(sender, self._me, self._n)
        if not isinstance(piggyback, NumpyPiggyback) or piggyback.n != self._n:
            raise RemoteProtocolError("not a piggyback of this protocol")
        if piggyback.values[self._me] > self._vector[self._me]:
            raise RemoteProtocolError("reports an event we never produced")
        np.maximum(self._vector, piggyback.values, out=self._vector)
