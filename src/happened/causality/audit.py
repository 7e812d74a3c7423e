"""Did messages carry exactly the necessary information?

A `receive` row may record what its transmission carried, as attributes["units"]: `message>destination`
pairs separated by spaces, the empty string for none. Each recorded transmission is compared with the
units necessary on its edge; a pair that names no message of the computation sent to that destination is
redundant by definition. Duplicated transmissions are compared each by itself.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TraceFormatError
from .computation import RECEIVE, Computation, Event
from .linearization import Ints
from .necessary import Necessary, NecessaryUnits, Unit, necessary

DEFAULT_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A unit that a transmission should have carried and did not, or carried unnecessarily."""

    receive: Event
    unit: Unit

    def __str__(self) -> str:
        return f"{self.unit} on {self.receive.message} to {self.receive.process} (#{self.receive.seq})"


@dataclass(frozen=True, slots=True)
class Audit:
    """`holds` is None where no transmission recorded its units.

    recorded   transmissions compared; equal of them carried exactly what was necessary
    missing    units that were necessary and not carried, over all transmissions
    redundant  units that were carried and not necessary
    unmatched  recorded transmissions of messages never sent to that process: nothing to compare with
    """

    recorded: int
    equal: int
    missing: int
    redundant: int
    unmatched: int
    missing_examples: tuple[Mismatch, ...]
    redundant_examples: tuple[Mismatch, ...]

    @property
    def holds(self) -> bool | None:
        return self.equal == self.recorded if self.recorded else None


def audit_units(
    table: pa.Table, *, against: Necessary | None = None, examples: int = DEFAULT_EXAMPLES
) -> Audit:
    """Compare what was carried with what was necessary; `against` saves working that out again."""
    carried = pc.map_lookup(table["attributes"], pa.scalar("units"), "first").combine_chunks()
    recorded = equal = unmatched = missing = redundant = 0
    lacked: list[Mismatch] = []
    surplus: list[Mismatch] = []
    for units in (against or necessary(table)).computations:
        found = _Comparison(units, carried)
        recorded += found.recorded
        equal += found.equal
        unmatched += found.unmatched
        missing += found.missing.size
        redundant += found.redundant.size
        lacked += found.mismatches(found.missing[: examples - len(lacked)])
        surplus += found.mismatches(found.redundant[: examples - len(surplus)])
    return Audit(recorded, equal, missing, redundant, unmatched, tuple(lacked), tuple(surplus))


class _Comparison:
    """One computation. `missing` and `redundant` are keys: transmission x width + unit.

    Units are numbered by slot; those that are no slot come after, in order of appearance.
    """

    def __init__(self, units: NecessaryUnits, carried: pa.Array) -> None:
        c = self._computation = units.computation
        self._units = units
        arrivals = np.flatnonzero(c.kind == RECEIVE)
        texts = carried.take(pa.array(c.row[arrivals]))
        arrivals = arrivals[texts.is_valid().to_numpy(zero_copy_only=False)]
        edges = _slots(c, c.message[arrivals], c.process[arrivals])
        self._transmissions = arrivals[edges >= 0]
        self.recorded = self._transmissions.size
        self.unmatched = arrivals.size - self.recorded
        words, owners = _words(carried.take(pa.array(c.row[self._transmissions])))
        self._names = [_unit(word) for word in words.dictionary.to_pylist()]
        self._width = c.slot_dest.size + len(self._names)

        numbers = self._numbers()
        carried_keys = np.unique(owners * self._width + numbers[words.indices.to_numpy()])
        necessary_keys = self._necessary(edges[edges >= 0]) if self.recorded else carried_keys
        self.missing = np.setdiff1d(necessary_keys, carried_keys, assume_unique=True)
        self.redundant = np.setdiff1d(carried_keys, necessary_keys, assume_unique=True)
        unequal = np.concatenate([self.missing, self.redundant]) // self._width
        self.equal = self.recorded - np.unique(unequal).size

    def mismatches(self, keys: Ints) -> list[Mismatch]:
        return [self._mismatch(*divmod(int(key), self._width)) for key in keys]

    def _mismatch(self, transmission: int, number: int) -> Mismatch:
        slots = self._computation.slot_dest.size
        unit = self._units.unit(number) if number < slots else self._names[number - slots]
        return Mismatch(self._computation.event(self._transmissions[transmission]), unit)

    def _numbers(self) -> Ints:
        """The number of each distinct unit that was carried."""
        c = self._computation
        places = {name: p for p, name in enumerate(c.process_names)}
        messages = pa.array([unit.message for unit in self._names], pa.string())
        codes = pc.fill_null(pc.index_in(messages, value_set=c.names), -1).to_numpy()
        at = np.searchsorted(c.message_codes, codes)
        known = c.message_codes[np.minimum(at, c.message_codes.size - 1)] == codes
        dest = np.array([places.get(unit.destination, -1) for unit in self._names], np.int64)
        slots = _slots(c, np.where(known, at, -1), dest)
        return np.where(slots >= 0, slots, c.slot_dest.size + np.arange(slots.size))

    def _necessary(self, edges: Ints) -> Ints:
        offsets, slots = self._units.edge_units()
        lengths = np.diff(offsets)[edges]
        ends = np.cumsum(lengths)
        picked = np.repeat(offsets[edges] - (ends - lengths), lengths) + np.arange(lengths.sum())
        return np.sort(np.repeat(np.arange(edges.size), lengths) * self._width + slots[picked])


def _slots(c: Computation, messages: Ints, processes: Ints) -> Ints:
    """The slot of each (message, process), or -1 where the message was not sent there."""
    keys = c.slot_message.astype(np.int64) * c.processes + c.slot_dest
    wanted = np.where(
        (messages >= 0) & (processes >= 0), messages.astype(np.int64) * c.processes + processes, -1
    )
    at = np.searchsorted(keys, wanted)
    found = np.append(keys, -2)[at] == wanted
    return np.where(found, at, -1)


def _words(texts: pa.Array) -> tuple[pa.DictionaryArray, Ints]:
    """Split all texts into words; returns the words and, for each, the number of its text."""
    lists = pc.split_pattern(texts.cast(pa.string()), " ")
    words, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
    written = pc.not_equal(words, "")
    return words.filter(written).dictionary_encode(), owners.filter(written).to_numpy().astype(np.int64)


def _unit(word: str) -> Unit:
    message, arrow, destination = word.rpartition(">")
    if not arrow:
        raise TraceFormatError(f"{word!r} is no unit; write message>destination", field="attributes.units")
    return Unit(message, destination)
