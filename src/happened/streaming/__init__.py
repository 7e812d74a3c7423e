"""Causal order inside Spark Structured Streaming.

    from happened.streaming import ByIds, deliver

    ordered = deliver(stream, ByIds(id="id", after="after"), patience=60)

operator       `deliver`: a streaming DataFrame of messages in, the same in causal order out
arrivals       what a row says of itself: ByIds (lists of causes), ByProtocol (frames of a protocol)
dead_letters   `to_tables`: deliveries in one table, and what could not be delivered in another
destination    the state of one destination: what was delivered, what is held, and what each waits for
reached        what has been delivered, by ids or by clocks
paged          ordered maps in pages, so that a batch reads and writes only what it touches
held_table     what is held now, since when and for what, from the checkpoint of a query
nats_source    a NATS JetStream stream as a source of Spark
watching       rows per second, held messages and state of a running query, as lines and as metrics

`destination`, `reached` and `paged` know nothing of Spark. `spark` imports nothing of this room: the judge
stays independent of the protocols. Names are imported when they are first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .arrivals import ByIds, ByProtocol
    from .dead_letters import to_tables
    from .nats_source import NatsSource
    from .operator import deliver
    from .watching import Watch, held

_HOMES = {
    "ByIds": "arrivals",
    "ByProtocol": "arrivals",
    "NatsSource": "nats_source",
    "Watch": "watching",
    "deliver": "operator",
    "held": "held_table",
    "to_tables": "dead_letters",
}
__all__ = ["ByIds", "ByProtocol", "NatsSource", "Watch", "deliver", "held", "to_tables"]


def _look_up(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from ..core.extras import how_to_install

    try:
        from ..spark.versions import NEEDS, require

        if name in NEEDS:
            require(name)
        home = import_module(f".{_HOMES[name]}", __name__)
    except ImportError as error:
        advice = how_to_install(error)
        if advice is None:
            raise
        raise ImportError(f"happened.streaming.{name} cannot be used: {advice}", name=error.name) from error
    return getattr(home, name)


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any misspelt name
    __getattr__ = _look_up  # PEP 562
