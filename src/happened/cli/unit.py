"""`happened ask unit`: shows why messages carried a unit of information, and where it could be forgotten."""

import argparse
import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from ..causality import Computation, Event
from ..causality.judgement import check_path
from ..causality.necessary import Unit
from ..causality.unit_life import PC1, UnitLife, unit_life
from ..core.errors import LocalProtocolError
from ..core.exit_codes import ExitCode
from .terminal import plain, print_answer


def run(arguments: argparse.Namespace) -> int:
    message, arrow, destination = arguments.unit.rpartition(">")
    if not arrow:
        raise LocalProtocolError(f"{arguments.unit!r} is not a unit: write MESSAGE>TO, as in 'p0:1>p2'")
    unit = Unit(message, destination)
    computation = _chosen(check_path(arguments.path).computations, unit, arguments.computation)
    life = unit_life(computation, unit)
    print_answer(arguments, lambda: plain(life, _named), _told(life))
    return ExitCode.HOLDS


def _chosen(computations: Sequence[Computation], unit: Unit, name: str | None) -> Computation:
    """The computation in which the unit's message was sent to its destination."""
    candidates = [c for c in computations if name is None or c.name == name]
    if not candidates:
        known = ", ".join(repr(c.name) for c in computations[:10])
        raise LocalProtocolError(f"no computation is called {name!r}; there are: {known}")
    units = {c.name: set(_units(c)) for c in candidates}
    found = [c for c in candidates if unit in units[c.name]]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(repr(c.name) for c in found[:10])
        raise LocalProtocolError(f"{unit} is in several computations; give --computation, of: {several}")
    there = sorted({str(each) for of in units.values() for each in of})
    near = ", ".join(difflib.get_close_matches(str(unit), there[:10_000], 5) or there[:5]) or "there is none"
    raise LocalProtocolError(
        f"no message {unit.message!r} was sent to {unit.destination!r}; did you mean: {near}"
    )


def _units(c: Computation) -> Iterator[Unit]:
    names = [c.message_name(m) for m in range(len(c.send))]
    slots = zip(c.slot_message, c.slot_dest, strict=True)
    return (Unit(names[message], c.process_names[to]) for message, to in slots)


def _named(value: Any) -> str | None:
    if isinstance(value, Event):
        return value.id
    return str(value) if isinstance(value, Unit) else None


def _told(life: UnitLife) -> Iterator[str]:
    x = life.unit.destination
    fate = f"delivered there at {life.delivery.id}" if life.delivery is not None else "never delivered there"
    yield f"{life.unit.message} was sent to {x} at {life.send.id}, and {fate}"
    yield ""
    yield "who had to know that it may not have been delivered yet"
    for stretch in life.stretches:
        yield f"  {stretch.process:<16} from {stretch.first}"
        if stretch.end is None or stretch.by is None:
            yield f"  {'':<16} to the end of the trace"
            continue
        why = (
            f"knows that it was delivered ({stretch.by.id})"
            if stretch.rule == PC1
            else f"knows of {stretch.by.message}, sent later to {x} ({stretch.by.id}), which waits for it"
        )
        yield f"  {'':<16} until {stretch.end}: {stretch.rule}, it {why}"
    yield ""
    yield f"which copies had to carry it: {len(life.edges)}"
    yield from (f"  {edge.message} to {edge.destination}  (sent at {edge.send.id})" for edge in life.edges)
