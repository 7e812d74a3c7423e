"""The tracking protocols by name: what each tells and assumes, and how to create its tracker."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from . import differential, direct, incremental, lamport, matrix, p1, p2, p3, p3_reduced, vector
from .tracker import Facts, Machine

DEFAULT = "p1"

_Factory = Callable[..., Machine]

_P1, _P2, _P3 = p1.ReducedVector, p2.BoundedDependencies, p3_reduced.ReducedPredecessors

_MACHINES: dict[str, tuple[Facts, _Factory]] = {
    "lamport": (lamport.FACTS, lamport.Lamport),
    "vector": (vector.FACTS, vector.Vector),
    "differential": (differential.FACTS, differential.Differential),
    "direct": (direct.FACTS, direct.Direct),
    "incremental": (incremental.FACTS, incremental.Incremental),
    "matrix": (matrix.FACTS, matrix.Matrix),
    "p1": (p1.facts("vectors without what the receiver is known to know"), _P1),
    "p1-once": (p1.facts("p1 with footnote 2's shortcut"), partial(_P1, reset_once=True)),
    "p1-prime": (p1.facts("p1 that also tells who knows what"), partial(_P1, primed=True)),
    "p1-prime-once": (
        p1.facts("p1-prime with footnote 2's shortcut"),
        partial(_P1, primed=True, reset_once=True),
    ),
    "p1-fifo": (p1.facts("p1 without what is on its way", fifo=True), partial(_P1, fifo=True)),
    "p1-prime-fifo": (
        p1.facts("p1-prime without what is on its way", fifo=True),
        partial(_P1, primed=True, fifo=True),
    ),
    "p2": (p2.facts("at most b entries a message, and null events"), _P2),
    "p2-prime": (p2.facts("p2 that also tells who knows what"), partial(_P2, primed=True)),
    "p2-fifo": (p2.facts("p2 without what is on its way", fifo=True), partial(_P2, fifo=True)),
    "p2-prime-fifo": (
        p2.facts("p2-prime without what is on its way", fifo=True),
        partial(_P2, primed=True, fifo=True),
    ),
    "p3": (p3.FACTS, p3.ImmediatePredecessors),
    "p3-reduced": (p3_reduced.facts("immediate predecessors, without what the receiver knows"), _P3),
    "p3-reduced-prime": (
        p3_reduced.facts("p3-reduced that also tells who knows what"),
        partial(_P3, primed=True),
    ),
    "p3-reduced-fifo": (
        p3_reduced.facts("p3-reduced without what is on its way", fifo=True),
        partial(_P3, fifo=True),
    ),
    "p3-reduced-prime-fifo": (
        p3_reduced.facts("p3-reduced-prime without what is on its way", fifo=True),
        partial(_P3, primed=True, fifo=True),
    ),
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
