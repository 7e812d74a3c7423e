"""Labels that are ordered independently of each other (Rodrigues & Veríssimo, chapter 6).

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   messages of one label are delivered in the causal order that the messages of this label make, and
           carry exactly what is necessary for it; one of another label never holds them back.
Leaves out any order between labels, and within a label what only messages of other labels connect.
Cost       a `ks` machine for each label a process has sent or got; `most` bounds how many.
"""

from collections.abc import Iterable

from ....core.effects import Send
from ....core.errors import LocalProtocolError
from ....core.orders import Order
from ...facts import Facts, MembershipChanges, Option, Qualifier, Waits, WireFormat
from ...machine import Effect, Held, Multicast
from ...process import Process, State, refusal
from ..carrier import Carrier, HopHeader, InHop
from ..ks import KsMessage

FACTS = Facts(
    name="labelled",
    description="ks for each label: messages of one label in causal order, those of several in none",
    paper="Rodrigues & Veríssimo, ICDCS 1995, and its report, chapter 6",
    order=Order.NONE,
    options=(Option("most", "how many labels there may be"),),
    wire=WireFormat(71, "happened.wire.causal:INCOMPLETE"),
    qualifier=Qualifier(
        keyword="label", usual="", promise="causal among the messages of each label, by chains of that label"
    ),
    membership=MembershipChanges(
        recycles=False,
        expulsions=False,
        at_expulsion="a message that only it could send again would be waited for",
    ),
    waits=Waits(
        names_missing=False,  # but what they are within their label
    ),
)

MOST_LABELS = 1024
LABEL_BYTES = 255
"""The length of a label in UTF-8, at most."""


class LabelledMessage(InHop):
    """M(sender, clock) of a label; `hop` is what it is to the machine of that label."""

    label: str
    hop: KsMessage


class Labelled(Process):
    """One process. `pending` names messages by their clocks within the label."""

    facts = FACTS

    def __init__(self, me: int, n: int, *, most: int = MOST_LABELS) -> None:
        super().__init__(me, n)
        self._most = most
        self._labels: dict[str, Carrier] = {}

    def multicast(self, to: Iterable[int], payload: bytes, *, label: str = "") -> Multicast:
        dests = self.destinations(to, payload)
        if not isinstance(label, str) or not _is_short(label):
            raise LocalProtocolError(
                f"a label is text of up to {LABEL_BYTES} bytes in UTF-8, not {label!r:.50}"
            )
        if label not in self._labels and len(self._labels) >= self._most:
            raise LocalProtocolError(f"{label!r} would be one label more than the {self._most} allowed")
        carrier = self._labels[label] = self._carrier(label)
        clock = self.next_clock()
        hops = carrier.send(dests, payload)
        sends = [Send(d, LabelledMessage(self.me, clock, self.n, dests, label, hop)) for d, hop in hops]
        return Multicast(clock, [*sends])

    def receive(self, message: LabelledMessage) -> list[Effect]:
        self.check(message, LabelledMessage)
        sender, clock, _, dests, label, hop = message
        if (hop.sender, hop.dests) != (sender, dests):
            raise refusal(message, "carries another message of its label")
        if label not in self._labels and len(self._labels) >= self._most:
            raise refusal(message, f"would bring one label more than the {self._most} allowed: {label!r:.50}")
        carrier = self._carrier(label)
        delivered = carrier.receive(hop, HopHeader(sender, clock, dests), self.events + 1)
        self._labels[label] = carrier
        self.arrival()
        return [self.delivery(carried) for carried in delivered]

    def _carrier(self, label: str) -> Carrier:
        return self._labels.get(label) or Carrier(self.me, self.n)

    def pending(self) -> list[Held]:
        return [
            Held(LabelledMessage(*named[:2], self.n, named.dests, label, hop), waits_for, since)
            for label, carrier in self._labels.items()
            for named, hop, waits_for, since in carrier.pending()
        ]

    def join(self, process: int) -> list[Effect]:
        effects = super().join(process)
        for carrier in self._labels.values():
            carrier.join()
        return effects

    def save(self) -> State:
        return {"labels": tuple((label, carrier.state()) for label, carrier in sorted(self._labels.items()))}

    def load(self, state: State) -> None:
        self._labels = {label: Carrier.from_state(carrier) for label, carrier in state["labels"]}


def _is_short(label: str) -> bool:
    try:
        return len(label.encode()) <= LABEL_BYTES
    except UnicodeEncodeError:
        return False
