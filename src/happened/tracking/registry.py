"""The tracking protocols by name: what each tells and assumes, and how to create its tracker."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from . import differential, direct, incremental, lamport, matrix, p1, p2, p3, p3_reduced, vector
from .tracker import Facts, Machine

DEFAULT = p1.PROTOCOLS[0][0].name

_MACHINES: dict[str, tuple[Facts, Callable[..., Machine]]] = {
    facts.name: (facts, machine)
    for module in (lamport, vector, differential, direct, incremental, matrix, p1, p2, p3, p3_reduced)
    for facts, machine in module.PROTOCOLS
}


def protocols() -> Mapping[str, Facts]:
    """Every protocol by name, with what it tells and assumes."""
    return MappingProxyType({name: facts for name, (facts, _) in _MACHINES.items()})


def create(name: str, me: int, n: int, **options: Any) -> Machine:
    """A fresh tracker of protocol `name` for process `me` of `n`; options are the protocol's own.

    `p2:4` is short for `p2` with b=4.
    """
    name, colon, bound = name.partition(":")
    if colon:
        if not bound.isascii() or not bound.isdigit():
            raise LocalProtocolError(f"a bound is a whole number, as in 'p2:4', not {bound!r}")
        options = {**options, "b": int(bound)}
    try:
        _, machine = _MACHINES[name]
    except KeyError:
        known = ", ".join(sorted(_MACHINES))
        raise LocalProtocolError(f"no tracking protocol is called {name!r}; there are: {known}") from None
    try:
        return machine(me, n, **options)
    except TypeError as error:
        raise LocalProtocolError(f"{name} does not take these options: {error}") from None
