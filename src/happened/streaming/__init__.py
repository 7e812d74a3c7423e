"""Causal order inside Spark Structured Streaming.

    from happened.streaming import ByIds, deliver

    ordered = deliver(stream, ByIds(id="id", after="after"), patience=60)

operator       `deliver`: a streaming DataFrame of messages in, the same in causal order out; `to_tables`:
               deliveries in one table, and what could not be delivered in another
arrivals       what a row says of itself: ByIds (lists of causes), ByProtocol (frames of a protocol)
destination    the state of one destination: what was delivered, what is held, and what each waits for
reached        what has been delivered, by ids or by clocks
paged          ordered maps in pages, so that a batch reads and writes only what it touches
nats_source    a NATS JetStream stream as a source of Spark
watching       what is held, since when and for what; figures of a running query, as lines and as metrics

`destination`, `reached` and `paged` know nothing of Spark. `spark` imports nothing of this room: the judge
stays independent of the protocols. Names are imported when they are first used.
"""

from ..core.extras import imported_when_used

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .arrivals import ByIds, ByProtocol
    from .nats_source import NatsSource
    from .operator import deliver, to_tables
    from .watching import Watch, held

__all__ = ["ByIds", "ByProtocol", "NatsSource", "Watch", "deliver", "held", "to_tables"]

_HOMES = {
    **dict.fromkeys(("ByIds", "ByProtocol"), ".arrivals"),
    **dict.fromkeys(("deliver", "to_tables"), ".operator"),
    **dict.fromkeys(("Watch", "held"), ".watching"),
    "NatsSource": ".nats_source",
}


def _check(name: str) -> None:
    from ..spark.versions import NEEDS, require

    if name in NEEDS:
        require(name)


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any misspelt name
    __getattr__ = imported_when_used(__name__, _HOMES, _check)
