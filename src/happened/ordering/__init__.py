"""Delivery-order protocols: one registry, one common interface (`Machine`), one file for each paper."""

from .capabilities import having, needed
from .facts import Facts, Option, Relays, WireFormat
from .machine import Effect, Held, Machine, Multicast, Unit
from .messages import ProtocolMessage
from .registry import DEFAULT, able, create, declared, facts_of, incomplete, protocols, register, unregister

__all__ = [
    "DEFAULT",
    "Effect",
    "Facts",
    "Held",
    "Machine",
    "Multicast",
    "Option",
    "ProtocolMessage",
    "Relays",
    "Unit",
    "WireFormat",
    "able",
    "create",
    "declared",
    "facts_of",
    "having",
    "incomplete",
    "needed",
    "protocols",
    "register",
    "unregister",
]
