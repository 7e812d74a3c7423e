"""Causal order inside Spark Structured Streaming.

    from happened.streaming import ByIds, deliver

    ordered = deliver(stream, ByIds(id="id", after="after"), patience=60)

operator       `deliver` puts the messages of a streaming DataFrame into causal order; `to_tables` writes
               deliveries to one table, and messages that could not be delivered to another
arrivals       reads a message's name and causes from a row: ByIds (lists of causes), ByProtocol (frames)
destination    the state of one destination: messages delivered, messages held, and what these wait for
reached        records which messages have been delivered, by ids or by clocks
paged          ordered maps in pages, so that a batch reads and writes only the pages it needs
nats_source    a NATS JetStream stream as a source of Spark
watching       lists the messages a query holds, and reports its figures as lines and as metrics

`destination`, `reached` and `paged` do not depend on Spark. The package `happened.spark` imports nothing from
here, so that its judgements stay independent of the protocols. Names are imported when they are first used.
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
