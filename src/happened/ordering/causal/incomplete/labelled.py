"""Labels that are ordered independently of each other (Rodrigues & Veríssimo, chapter 6).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   messages of one label are delivered in the causal order that the messages of this label make, and
           carry exactly what is necessary for it; one of another label never holds them back.
Leaves out any order between labels, and within a label what only messages of other labels connect.
Cost       a `ks` machine for each label a process has sent or got; `most` bounds how many.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ....core.destinations import unpack
from ....core.effects import Send
from ....core.errors import LocalProtocolError
from ...machine import Effect, Held, Unit
from ...process import Process, refusal
from ...snapshots import opened, seal
from ..carrier import Carrier, Named
from ..ks import KsMessage

MOST_LABELS = 1024
LABEL_BYTES = 255
"""The length of a label in UTF-8, at most."""


class LabelledMessage(NamedTuple):
    """M(sender, clock) of a label; `hop` is what it is to the machine of that label."""

    sender: int
    clock: int
    n: int
    dests: int  # bit set
    label: str
    hop: KsMessage

    @property
    def to(self) -> frozenset[int]:
        return frozenset(unpack(self.dests))

    @property
    def payload(self) -> bytes:
        return self.hop.payload

    def units(self) -> frozenset[Unit]:
        """About messages of the label, by their clocks within it."""
        return self.hop.units()

    def size(self) -> tuple[int, int]:
        return self.hop.size()


class Labelled:
    """One process. `pending` names messages by their clocks within the label."""

    def __init__(self, me: int, n: int, *, most: int = MOST_LABELS) -> None:
        self._process = Process(me, n)
        self._most = most
        self._labels: dict[str, Carrier] = {}

    @property
    def me(self) -> int:
        return self._process.me

    @property
    def n(self) -> int:
        return self._process.n

    @property
    def clock(self) -> int:
        return self._process.clock

    def multicast(self, to: Iterable[int], payload: bytes, *, label: str = "") -> list[Effect]:
        dests = self._process.destinations(to, payload)
        if not isinstance(label, str) or not _is_short(label):
            raise LocalProtocolError(
                f"a label is text of up to {LABEL_BYTES} bytes in UTF-8, not {label!r:.50}"
            )
        if label not in self._labels and len(self._labels) >= self._most:
            raise LocalProtocolError(f"{label!r} would be one label more than the {self._most} allowed")
        carrier = self._labels[label] = self._carrier(label)
        clock = self._process.next_clock()
        return [
            Send(d, LabelledMessage(self.me, clock, self.n, dests, label, hop))
            for d, hop in carrier.send(dests, payload)
        ]

    def receive(self, message: LabelledMessage) -> list[Effect]:
        self._process.check(message, LabelledMessage)
        sender, clock, _, dests, label, hop = message
        if (hop.sender, hop.dests) != (sender, dests):
            raise refusal(message, "carries another message of its label")
        if label not in self._labels and len(self._labels) >= self._most:
            raise refusal(message, f"would bring one label more than the {self._most} allowed: {label!r:.50}")
        carrier = self._carrier(label)
        delivered = carrier.receive(hop, Named(sender, clock, dests), self._process.events + 1)
        self._labels[label] = carrier
        self._process.arrival()
        return [self._process.delivery(carried) for carried in delivered]

    def _carrier(self, label: str) -> Carrier:
        return self._labels.get(label) or Carrier(self.me, self.n)

    def pending(self) -> list[Held]:
        return [
            Held(LabelledMessage(*named[:2], self.n, named.dests, label, hop), waits_for, since)
            for label, carrier in self._labels.items()
            for named, hop, waits_for, since in carrier.pending()
        ]

    def tick(self) -> int:
        return self._process.next_clock()

    def join(self, process: int) -> None:
        self._process.join(process)
        for carrier in self._labels.values():
            carrier.join()

    def leave(self, process: int) -> None:
        self._process.leave(process)

    def snapshot(self) -> bytes:
        labels = tuple((label, carrier.state()) for label, carrier in sorted(self._labels.items()))
        return seal("labelled", process=self._process.state(), labels=labels)

    def restore(self, data: bytes) -> None:
        with opened("labelled", data) as state:
            process = Process.from_state(state["process"])
            labels = {label: Carrier.from_state(carrier) for label, carrier in state["labels"]}
        self._process, self._labels = process, labels


def _is_short(label: str) -> bool:
    try:
        return len(label.encode()) <= LABEL_BYTES
    except UnicodeEncodeError:
        return False
