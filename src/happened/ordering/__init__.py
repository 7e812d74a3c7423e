"""Delivery-order protocols: one registry, one shape, one file per protocol."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from .causal import (
    acknowledged,
    bss,
    bss_groups,
    cbcast,
    chain_two,
    flooding,
    histories,
    kim,
    ks,
    phased,
    prs,
    pruning,
    psync,
    rst,
    serialized_broadcast,
    serialized_multicast,
    ses,
    topological,
    zoned_ks,
)
from .machine import Effect, Facts, Held, Machine, Message, Unit, sent_clock
from .total import agreed, causal_total, sequencer

__all__ = [
    "DEFAULT",
    "Effect",
    "Facts",
    "Held",
    "Machine",
    "Message",
    "Unit",
    "create",
    "protocols",
    "sent_clock",
]

DEFAULT = "ks"

_MACHINES: dict[str, tuple[Facts, Callable[..., Machine]]] = {
    "ks": (ks.FACTS, ks.KshemkalyaniSinghal),
    "bss": (bss.FACTS, bss.BirmanSchiperStephenson),
    "bss-groups": (bss_groups.FACTS, bss_groups.GroupVectors),
    "chain-two": (chain_two.FACTS, chain_two.AdelsteinSinghal),
    "kim": (kim.FACTS, kim.KimKim),
    "prs": (prs.FACTS, prs.PrakashRaynalSinghal),
    "pruning": (pruning.FACTS, pruning.Pruning),
    "rst": (rst.FACTS, rst.RaynalSchiperToueg),
    "serialized-broadcast": (serialized_broadcast.FACTS, serialized_broadcast.SerializedBroadcasts),
    "serialized-multicast": (serialized_multicast.FACTS, serialized_multicast.SerializedMulticasts),
    "ses": (ses.FACTS, ses.SchiperEggliSandoz),
    "histories": (histories.FACTS, histories.Histories),
    "topological": (topological.FACTS, topological.Topological),
    "zoned-ks": (zoned_ks.FACTS, zoned_ks.ZonedKs),
    "acknowledged": (acknowledged.FACTS, acknowledged.AcknowledgedUnicast),
    "agreed": (agreed.FACTS, agreed.AgreedTotalOrder),
    "causal-total": (causal_total.FACTS, causal_total.CausalTotalOrder),
    "cbcast": (cbcast.FACTS, cbcast.CarryingMulticast),
    "flooding": (flooding.FACTS, flooding.FloodingBroadcast),
    "phased": (phased.FACTS, phased.PhasedMulticast),
    "psync": (psync.FACTS, psync.ContextGraph),
    "sequencer": (sequencer.FACTS, sequencer.SequencerTotalOrder),
}


def protocols() -> Mapping[str, Facts]:
    """Every protocol by name, with what it promises and assumes."""
    return MappingProxyType({name: facts for name, (facts, _) in _MACHINES.items()})


def create(name: str, me: int, n: int, **options: Any) -> Machine:
    """A fresh machine of protocol `name` for process `me` of `n`; options are the protocol's own."""
    try:
        _, machine = _MACHINES[name]
    except KeyError:
        known = ", ".join(sorted(_MACHINES))
        raise LocalProtocolError(f"no ordering protocol is called {name!r}; there are: {known}") from None
    return machine(me, n, **options)
