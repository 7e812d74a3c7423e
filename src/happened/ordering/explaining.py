"""What a machine remembers and holds, in words: for stories, and for printing a machine."""

from typing import Any

from . import notation
from .capabilities import Explains, NamesHops, TellsUnits, TellsUnitsByPart, having
from .machine import Hop, Machine, Unit


def logs(machine: Machine) -> dict[str, frozenset[Unit]]:
    """The units of each log, by the part of the system that it is about; an empty name is all of it."""
    if (by_part := having(machine, TellsUnitsByPart)) is not None:
        return by_part.logs()
    told = having(machine, TellsUnits)
    return {} if told is None else {"": told.log_units()}


def knowledge(machine: Machine) -> list[tuple[str, str]]:
    """What is remembered, as the paper writes it: the name of each structure, and what is in it."""
    if (explains := having(machine, Explains)) is not None:
        return explains.knowledge()
    told = having(machine, TellsUnits)
    return [] if told is None else [("log", notation.entries(notation.grouped(told.log_units())))]


def hop_of(machine: Machine, message: Any, peer: int | None) -> Hop | None:
    """A message exchanged with this peer, as a hop; None where messages keep their name on all their way."""
    named = having(machine, NamesHops)
    return None if named is None or peer is None else named.hop_of(message, peer)


def holds(machine: Machine) -> list[str]:
    """Each held message, and what it waits for."""
    return [
        notation.holding(held, hop_of(machine, held.message, held.message.via)) for held in machine.pending()
    ]
