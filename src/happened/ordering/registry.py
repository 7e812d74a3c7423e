"""Every protocol by name: those of this package, those that other packages announce, and those that
a program registers.

Another package announces a machine class under the entry point group `happened.protocols`:

    [project.entry-points."happened.protocols"]
    my-protocol = "my_package.my_protocol:MyProcess"
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ..core.errors import LocalProtocolError
from .causal import (
    acknowledged,
    bss,
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
    serialized_sends,
    ses,
    topological,
    zoned_ks,
)
from .causal.incomplete import Labelled, ManagedMulticast, Priorities
from .facts import THIRD_PARTY_NUMBERS, Facts
from .machine import Machine
from .total import causal_total, sequencer, three_phase

ENTRY_POINTS = "happened.protocols"

DEFAULT = ks.KshemkalyaniSinghal.facts.name

_OURS: tuple[type[Machine], ...] = (
    ks.KshemkalyaniSinghal,
    bss.BirmanSchiperStephenson,
    bss.GroupVectors,
    chain_two.AdelsteinSinghal,
    kim.KimKim,
    prs.PrakashRaynalSinghal,
    pruning.Pruning,
    rst.RaynalSchiperToueg,
    serialized_sends.SerializedBroadcasts,
    serialized_sends.SerializedMulticasts,
    ses.SchiperEggliSandoz,
    histories.Histories,
    topological.Topological,
    zoned_ks.ZonedKs,
    acknowledged.AcknowledgedUnicast,
    three_phase.AgreedTotalOrder,
    causal_total.CausalTotalOrder,
    cbcast.CarryingMulticast,
    flooding.FloodingBroadcast,
    phased.PhasedMulticast,
    psync.ContextGraph,
    sequencer.SequencerTotalOrder,
)
# Incomplete orders: their `multicast` needs an argument beside destinations and payload, which most drivers
# cannot give.
_INCOMPLETE: dict[str, type[Machine]] = {
    machine.facts.name: machine for machine in (Labelled, ManagedMulticast, Priorities)
}

_machines: dict[str, type[Machine]] = {machine.facts.name: machine for machine in _OURS}
_listeners: list[Callable[[Facts], object]] = []


def register(machine: type[Machine]) -> None:
    """Make a protocol known under the name in its facts."""
    facts = machine.facts
    if facts.name in _machines:
        raise LocalProtocolError(f"there is a protocol called {facts.name!r} already")
    if facts.wire is not None and facts.wire.number not in THIRD_PARTY_NUMBERS:
        numbers = f"{THIRD_PARTY_NUMBERS[0]} to {THIRD_PARTY_NUMBERS[-1]}"
        raise LocalProtocolError(f"{facts.name} has wire number {facts.wire.number}; take one of {numbers}")
    for known in (machine.facts for machine in _machines.values()):
        if known.wire and facts.wire and known.wire.number == facts.wire.number and known.wire != facts.wire:
            raise LocalProtocolError(
                f"{facts.name} has wire number {facts.wire.number}, which is that of {known.name}"
            )
    _machines[facts.name] = machine


def unregister(name: str) -> None:
    """Remove a protocol that was registered."""
    if name not in _machines or any(machine.facts.name == name for machine in _OURS):
        raise LocalProtocolError(f"no protocol called {name!r} was registered")
    facts = _machines.pop(name).facts
    for listener in _listeners:
        listener(facts)


def when_unregistered(listener: Callable[[Facts], object]) -> None:
    """Call `listener` with the facts of each unregistered protocol, so that it can drop what it derived."""
    _listeners.append(listener)


def protocols() -> Mapping[str, Facts]:
    """The facts of every protocol by name: what it promises and assumes."""
    _announced()
    return MappingProxyType({name: machine.facts for name, machine in _machines.items()})


def incomplete() -> Mapping[str, Facts]:
    """Facts by name of incomplete orders; `multicast` takes one more keyword argument there (`Qualifier`)."""
    return MappingProxyType({name: machine.facts for name, machine in _INCOMPLETE.items()})


def declared() -> list[Facts]:
    """The facts of all protocols, also of incomplete orders; `wire` needs no others."""
    return [*protocols().values(), *incomplete().values()]


def able(capability: type[object]) -> list[str]:
    """The names in `protocols` whose machines have this capability (capabilities.py)."""
    return sorted(name for name in protocols() if issubclass(_machines[name], capability))


def facts_of(name: str) -> Facts:
    """The facts of the protocol of this name, complete or incomplete order."""
    known = {facts.name: facts for facts in declared()}
    if name not in known:
        names = ", ".join(sorted(known))
        raise LocalProtocolError(f"no ordering protocol is called {name!r}; there are: {names}")
    return known[name]


def create(name: str, me: int, n: int, **options: Any) -> Machine:
    """A fresh machine of protocol `name` for process `me` of `n`; options are the protocol's own."""
    machine = _machines.get(name) or _INCOMPLETE.get(name)
    if machine is None:
        _announced()
        machine = _machines.get(name)
    if machine is None:
        known = ", ".join(sorted(_machines))
        raise LocalProtocolError(f"no ordering protocol is called {name!r}; there are: {known}")
    machine.facts.check_options(options)
    make: Callable[..., Machine] = machine
    return make(me, n, **options)


@cache
def _announced() -> None:
    """Register the protocols that installed packages announce. The search takes time and is done once."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        try:
            register(entry.load())
        except Exception as error:
            raise LocalProtocolError(
                f"the protocol {entry.name!r} that {entry.value} announces cannot be used: {error}"
            ) from error
