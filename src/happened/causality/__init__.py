"""The judge: what follows from a trace alone, by array kernels on one machine.

Shares no code with the protocols it judges. Every question takes a table as `trace.read` returns it, or
what `encode` made of it, so that several questions cost one encoding; one trace may hold many
computations, which are judged apart and counted together.

    stamp(trace)             exact vector timestamps: Stamps
    predecessors(trace)      immediate predecessors, the transitive reduction: Predecessors
    check_order(trace, o)    causal, fifo or total order of deliveries: Verdict with witnesses
    check_delivery(trace)    what was lost, duplicated, misdelivered or never sent: Deliveries
    necessary(trace)         the units PC1/PC2 force on every log and message edge: Necessary
    audit_units(table)       carried against necessary, where carried was recorded: Audit
    check(trace, o)          one judgement of all of it, with a sentence and an exit code: Judgement
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
