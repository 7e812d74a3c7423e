"""The tracking protocols by name: what each tells and assumes, and how to create its tracker."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from ..core.orders import Order
from . import matrix, p1, p2, p3, single_vectors
from .tracker import TrackerFacts, TrackerMachine

DEFAULT = p1.PROTOCOLS[0][0].name

_MACHINES: dict[str, tuple[TrackerFacts, Callable[..., TrackerMachine]]] = {
    facts.name: (facts, machine)
    for facts, machine in sorted(
        (*single_vectors.PROTOCOLS, *matrix.PROTOCOLS, *p1.PROTOCOLS, *p2.PROTOCOLS, *p3.PROTOCOLS),
        key=lambda form: form[0].number,
    )
}


def protocols() -> Mapping[str, TrackerFacts]:
    """The facts of every protocol by name: what it tells and assumes."""
    return MappingProxyType({name: facts for name, (facts, _) in _MACHINES.items()})


def facts_of(name: str) -> TrackerFacts:
    """The facts of the protocol that `create` makes under this name; a bound as in `p2:4` does not change
    them."""
    name = name.partition(":")[0]
    try:
        return _MACHINES[name][0]
    except KeyError:
        known = ", ".join(sorted(_MACHINES))
        raise LocalProtocolError(f"no tracking protocol is called {name!r}; there are: {known}") from None


def bound_of(name: str) -> int | None:
    """The largest number of entries on a message, if the name sets it, as in `p2:4`; 1 for `p2` alone."""
    if facts_of(name).bound != "b":
        return None
    return int(name.partition(":")[2] or 1)


def check_deliveries(name: str, order: Order, protocol: str) -> None:
    """Raise if the tracker needs each sender's messages in order and the ordering protocol may deliver them
    otherwise. A tracker takes piggybacks in at deliveries, so their order matters, not that of the links."""
    if facts_of(name).fifo_links and not order.is_fifo:
        raise LocalProtocolError(
            f"{name} needs FIFO deliveries, which {protocol} does not promise: use a tracker that "
            "needs no FIFO, or a causal order"
        )


def create(name: str, me: int, n: int, **options: Any) -> TrackerMachine:
    """A fresh tracker of protocol `name` for process `me` of `n`; options are the protocol's own.

    `p2:4` is short for `p2` with b=4.
    """
    name, colon, bound = name.partition(":")
    if colon:
        if not bound.isascii() or not bound.isdigit():
            raise LocalProtocolError(f"a bound is a whole number, as in 'p2:4', not {bound!r}")
        options = {**options, "b": int(bound)}
    machine = _MACHINES[facts_of(name).name][1]
    try:
        return machine(me, n, **options)
    except TypeError as error:
        raise LocalProtocolError(f"{name} does not take these options: {error}") from None
