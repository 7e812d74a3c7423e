"""The judge: answers questions about a trace from the trace alone, with array kernels on one machine.

It shares no code with the protocols that it judges. Every question takes a table from `trace.read`, or the
result of `encode` for it, so that several questions need only one encoding. A trace may hold many
computations, which are judged separately and counted together.

    stamp(trace)             exact vector timestamps: Stamps
    predecessors(trace)      immediate predecessors, the transitive reduction: Predecessors
    check_order(trace, o)    causal, fifo or total order of deliveries: Verdict with witnesses
    check_delivery(trace)    lost, duplicated, misdelivered and never sent messages: Deliveries
    necessary(trace)         the units that PC1/PC2 force on every log and message edge: Necessary
    audit_units(table)       recorded units of each transmission against the necessary ones: Audit
    check(trace, o)          one judgement of the whole trace, with a sentence and an exit code: Judgement
"""

from .computation import Computation, Event, encode
from .judgement import Judgement, Outcome, check, judge
from .necessary import Audit, Necessary, Unit, audit_units, necessary
from .order import ORDERS, Deliveries, check_delivery, check_order
from .predecessors import Predecessors, predecessors
from .stamps import Stamps, stamp
from .verdict import Cycle, Disagreement, EarlyDelivery, LostCause, Verdict, Witness

__all__ = [
    "ORDERS", "Audit", "Computation", "Cycle", "Deliveries", "Disagreement", "EarlyDelivery", "Event",
    "Judgement", "LostCause", "Necessary", "Outcome", "Predecessors", "Stamps", "Unit", "Verdict", "Witness",
    "audit_units", "check", "check_delivery", "check_order", "encode", "judge", "necessary", "predecessors",
    "stamp",
]  # fmt: skip
