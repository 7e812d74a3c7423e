"""A `ks` machine whose messages carry others that have names of their own.

A part of a machine, not a parent of it. Whoever composes several of these (one for each zone, one for each
label) names application messages by itself; here they are only known by the *hop* that brings them, a message
of `ks` numbered within this one machine, and their names are kept while `ks` holds the hop back.

Invariant  the hops in `_names` are those that `ks` holds; lane s of `_last` is the clock of the last hop of s
           delivered here, and since `ks` keeps the order of each sender, all earlier ones to us were too.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...core.destinations import unpack
from ...core.effects import Deliver, Send
from ..machine import MessageKey, Unit
from ..messages import Application, WholeMessage
from .ks import KshemkalyaniSinghal, KsMessage


class HopHeader(NamedTuple):
    """An application message without its payload, which travels in the hop."""

    sender: int
    clock: int
    dests: int  # bit set


class InHop(Application):
    """Messages that have the field `hop`, which carries their payload and their units.

    The units name messages as the machine of the hop numbers them.
    """

    @property
    def hop(self) -> KsMessage:
        raise NotImplementedError

    @property
    def payload(self) -> bytes:
        return self.hop.payload

    def units(self) -> frozenset[Unit]:
        return self.hop.units()

    def size(self) -> tuple[int, int]:
        return self.hop.size()


class Waiting(NamedTuple):
    """A hop that is held back; `waits_for` and `hop` are in the numbering of this machine."""

    named: HopHeader
    hop: KsMessage
    waits_for: tuple[MessageKey, ...]
    since: int


class Carrier:
    def __init__(self, me: int, n: int) -> None:
        self._ks = KshemkalyaniSinghal(me, n)
        self._last = [0] * n
        self._names: dict[MessageKey, tuple[HopHeader, int]] = {}

    @property
    def n(self) -> int:
        return self._ks.n

    def send(self, to: int, payload: bytes) -> list[Send[KsMessage]]:
        """One hop to this set."""
        _, effects = self._ks.multicast(unpack(to), payload)
        return [effect for effect in effects if isinstance(effect, Send)]

    def receive(self, hop: KsMessage, named: HopHeader, since: int) -> list[WholeMessage]:
        """What can be delivered now, in order; a hop that is refused changes nothing."""
        effects = self._ks.receive(hop)
        key = (hop.sender, hop.clock)
        if key in self._names or hop.clock <= self._last[hop.sender]:
            return []  # a duplicate made by the network
        self._names[key] = named, since
        return [self._delivered(effect) for effect in effects if isinstance(effect, Deliver)]

    def _delivered(self, effect: Deliver) -> WholeMessage:
        self._last[effect.sender] = effect.clock
        named, _ = self._names.pop((effect.sender, effect.clock))
        return WholeMessage(*named, effect.payload)

    def pending(self) -> Iterator[Waiting]:
        for hop, waits_for, _ in self._ks.pending():
            named, since = self._names[hop.sender, hop.clock]
            yield Waiting(named, hop, waits_for, since)

    def join(self) -> None:
        self._ks.join(self.n)
        self._last.append(0)

    def join_again(self, process: int) -> None:
        """A new process has the number of one that everybody has forgotten."""
        self._ks.join(process)
        self._last[process] = 0

    def leave(self, process: int) -> None:
        self._ks.leave(process)

    def close(self, process: int) -> list[WholeMessage]:
        """What can be delivered now that nothing more comes from this process."""
        return [self._delivered(effect) for effect in self._ks.close(process) if isinstance(effect, Deliver)]

    def forget(self, process: int) -> None:
        self._ks.forget(process)

    def log_size(self) -> tuple[int, int]:
        return self._ks.log_size()

    def log_units(self) -> frozenset[Unit]:
        return self._ks.log_units()

    def log_entries(self) -> list[tuple[int, int, frozenset[int]]]:
        return self._ks.log_entries()

    def state(self) -> tuple[Any, ...]:
        names = tuple((*key, *named, since) for key, (named, since) in self._names.items())
        return self._ks.snapshot(), tuple(self._last), names

    @classmethod
    def from_state(cls, state: tuple[Any, ...]) -> "Carrier":
        snapshot, last, names = state
        carrier = cls(0, 1)
        carrier._ks.restore(snapshot)
        carrier._last = list(last)
        carrier._names = {(s, t): (HopHeader(*named), since) for s, t, *named, since in names}
        return carrier
