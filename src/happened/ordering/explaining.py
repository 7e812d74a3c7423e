"""Describes in words what a machine remembers and holds back: for stories, and for printing a machine."""

from typing import Any

from . import notation
from .capabilities import Explains, NamesHops, TellsUnits, TellsUnitsByPart, having
from .machine import Hop, Machine, Unit


def logs(machine: Machine) -> dict[str, frozenset[Unit]]:
    """The units of each log, by the part of the system that it is about; "": the log is about all of it."""
    if (by_part := having(machine, TellsUnitsByPart)) is not None:
        return by_part.logs()
    told = having(machine, TellsUnits)
    return {} if told is None else {"": told.log_units()}


def knowledge(machine: Machine) -> list[tuple[str, str]]:
    """The structures that the machine keeps, as the paper writes them: pairs of name and content."""
    if (explains := having(machine, Explains)) is not None:
        return explains.knowledge()
    told = having(machine, TellsUnits)
    return [] if told is None else [("log", notation.entries(notation.grouped(told.log_units())))]


def hop_of(machine: Machine, message: Any, peer: int | None) -> Hop | None:
    """A message exchanged with this peer, as a hop; None where all hops use the message's own name."""
    named = having(machine, NamesHops)
    return None if named is None or peer is None else named.hop_of(message, peer)


def holds(machine: Machine) -> list[str]:
    """One line for each held message: its name and the messages that it waits for."""
    return [
        notation.holding(held, hop_of(machine, held.message, held.message.via)) for held in machine.pending()
    ]
