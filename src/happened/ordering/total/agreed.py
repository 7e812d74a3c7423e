"""Total order by agreement on a timestamp in three phases: Skeen's algorithm (in Birman & Joseph, ACM TOCS
5(1), 1987), with repairs to the form in which textbooks print it.

Assumes    reliable links, FIFO or not, that may duplicate; processes that join get the next index.
Promises   total order for multicasts to arbitrary sets, oneself included: all messages have one order that
           every process follows. 3 transmissions per destination, three hops until delivery.
Leaves out the order in which one process sends: on links that reorder, or across overlapping groups, two
           messages of one sender may be delivered in the other order; see causal_total.py.
Invariant  that of three_phase.py, which also says what was wrong in print.
"""

from collections.abc import Iterable

from ...core.orders import Order
from ..facts import Facts, MembershipChanges
from ..machine import Multicast
from .three_phase import AT_EXPULSION, AT_LEAVE, WIRE, ThreePhase

FACTS = Facts(
    name="agreed",
    description="three phases agree on a timestamp for every message",
    paper="Skeen; in Birman & Joseph, ACM TOCS 5(1), 1987; three repairs, see docs/papers.md",
    order=Order.TOTAL,
    wire=WIRE,
    membership=MembershipChanges(at_leave=AT_LEAVE, at_expulsion=AT_EXPULSION),
)


class AgreedTotalOrder(ThreePhase):
    facts = FACTS

    def multicast(self, to: Iterable[int], payload: bytes) -> Multicast:
        dests = self.destinations(to, payload)
        clock = self.next_clock()
        return Multicast(clock, list(self.begin(clock, dests, payload)))
