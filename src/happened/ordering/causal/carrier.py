"""A `ks` machine that transports messages which have names of their own outside it.

A carrier is a part of a machine, not a base class. A machine composed of several carriers (one for each zone,
or one for each label) names application messages by itself. Here a message is known only by the *hop* that
brings it, a `ks` message numbered within this carrier; its name is kept while `ks` holds the hop back.

Invariant  `_names` has the hops that `ks` holds; lane s of `_last` is the clock of the last hop of s
           delivered here. Since `ks` delivers each sender's hops in order, so were its earlier hops to us.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core.destinations import unpack
from ...core.effects import Deliver, Send
from ..machine import Effect, MessageKey, Unit
from ..messages import Application, WholeMessage, field
from ..snapshots import NUMBERS, Form, Part, kept, table
from .ks import KshemkalyaniSinghal, KsMessage


class HopHeader(NamedTuple):
    """The header of an application message; the hop carries its payload."""

    sender: int
    clock: int
    dests: int  # bit set


class InHop(Application):
    """A message whose field `hop` carries its payload and its units. The units name messages as the carrier
    numbers them."""

    @property
    def hop(self) -> KsMessage:
        raise NotImplementedError

    payload = field("hop.payload")

    def units(self) -> frozenset[Unit]:
        return self.hop.units()

    def size(self) -> tuple[int, int]:
        return self.hop.size()


class Waiting(NamedTuple):
    """A held hop; `waits_for` and `hop` use the numbering of this carrier."""

    named: HopHeader
    hop: KsMessage
    waits_for: tuple[MessageKey, ...]
    since: int


def _restored(snapshot: bytes) -> KshemkalyaniSinghal:
    machine = KshemkalyaniSinghal(0, 1)
    machine.restore(snapshot)
    return machine


NAMES = table(
    lambda names: tuple((*key, *named, since) for key, (named, since) in names.items()),
    lambda names: {(s, t): (HopHeader(*named), since) for s, t, *named, since in names},
)
CARRIERS = table(
    lambda carriers: tuple((name, carrier.state()) for name, carrier in sorted(carriers.items())),
    lambda carriers: {name: Carrier(0, 1).resume(state) for name, state in carriers},
)
"""A dict of carriers."""


class Carrier(Part):
    ks: KshemkalyaniSinghal = kept(Form(lambda n: None, lambda ks: ks.snapshot(), _restored))
    _last: list[int] = kept(NUMBERS)
    _names: dict[MessageKey, tuple[HopHeader, int]] = kept(NAMES)

    def __init__(self, me: int, n: int) -> None:
        self._begin(n)
        self.ks = KshemkalyaniSinghal(me, n)

    def send(self, to: int, payload: bytes) -> list[Send[KsMessage]]:
        """Send one hop to the processes in the set `to`."""
        _, effects = self.ks.multicast(unpack(to), payload)
        return [effect for effect in effects if isinstance(effect, Send)]

    def receive(self, hop: KsMessage, named: HopHeader, since: int) -> list[WholeMessage]:
        """The messages that can be delivered now, in order; a hop that is refused changes nothing."""
        effects = self.ks.receive(hop)
        key = (hop.sender, hop.clock)
        if key in self._names or hop.clock <= self._last[hop.sender]:
            return []  # a duplicate made by the network
        self._names[key] = named, since
        return self._delivered(effects)

    def _delivered(self, effects: Iterable[Effect]) -> list[WholeMessage]:
        delivered = []
        for effect in effects:
            if isinstance(effect, Deliver):
                self._last[effect.sender] = effect.clock
                named, _ = self._names.pop((effect.sender, effect.clock))
                delivered.append(WholeMessage(*named, effect.payload))
        return delivered

    def pending(self) -> Iterator[Waiting]:
        for hop, waits_for, _ in self.ks.pending():
            named, since = self._names[hop.sender, hop.clock]
            yield Waiting(named, hop, waits_for, since)

    def join(self, process: int) -> None:
        """A new process has the next number, or the recycled number of a process that all have forgotten."""
        self._last[process : process + 1] = [0]
        self.ks.join(process)

    def close(self, process: int) -> list[WholeMessage]:
        """The messages that can be delivered now that no more messages come from this process."""
        return self._delivered(self.ks.close(process))
