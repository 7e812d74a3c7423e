"""Delivery-order protocols: one registry, one shape, one file per protocol."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from .causal import ks
from .machine import Effect, Facts, Held, Machine, Message, Unit

__all__ = ["DEFAULT", "Effect", "Facts", "Held", "Machine", "Message", "Unit", "create", "protocols"]

DEFAULT = "ks"

_MACHINES: dict[str, tuple[Facts, Callable[..., Machine]]] = {
    "ks": (ks.FACTS, ks.KshemkalyaniSinghal),
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
