"""The necessary information of Kshemkalyani & Singhal, "Necessary and sufficient conditions on
information for causal message ordering and their optimal implementation", section 3.4.

The unit (M, x), x in M.Dests, is necessary in the log after event e iff send(M) is in e's past or is e,
and neither PC1: M's delivery at x is in e's past or is e,
nor     PC2: a message M' with x in M'.Dests was sent strictly after send(M), in e's past or at e.
On the edge of message m to d travel the units necessary after all that happened before its send, except
that those whose destination is in m.Dests travel only to that destination. What m says of itself is no unit.

So the units about x are the maximal sends to x in the past, less those delivered there within it.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..trace.declared import schema
from .computation import Computation, Event, Trace, encode
from .linearization import Ints
from .maximal_sends import Sends, count_edge_units, fill_edge_units, index_sends, units_of_cut
from .stamps import stamp_computation

EDGES = schema("computation string, process string, seq int64, message string, destination string")
COUNTS = pa.schema([*EDGES, *schema("units int64")])
UNITS = pa.schema([*EDGES, *schema("unit_message string, unit_destination string")])


class Unit(NamedTuple):
    """The fact that `message` was sent to `destination`."""

    message: str
    destination: str

    def __str__(self) -> str:
        return f"{self.message}>{self.destination}"


class NecessaryUnits:
    """What one computation's logs and messages had to carry. An edge is a slot of the computation."""

    def __init__(self, computation: Computation, vectors: Ints | None = None) -> None:
        self.computation = computation
        vectors = stamp_computation(computation) if vectors is None else vectors
        self._sends: Sends = index_sends(computation, vectors)

    @cached_property
    def edge_counts(self) -> Ints:
        """Units per edge."""
        c = self.computation
        counts: Ints = count_edge_units(c.send, c.process, c.dest_offsets, self._sends)
        return counts

    def edge_units(self) -> tuple[Ints, Ints]:
        """(offsets, slots): the units of an edge are slots[offsets[edge]:offsets[edge + 1]]."""
        c = self.computation
        offsets = np.concatenate([[0], np.cumsum(self.edge_counts)]).astype(np.int64)
        return offsets, fill_edge_units(c.send, c.process, c.dest_offsets, self._sends, offsets)

    def in_log(self, e: int) -> Ints:
        """The slots necessary in the state after event e."""
        c = self.computation
        units = np.empty(c.width**2, np.int64)
        first = c.first[c.process[e]]
        return units[: units_of_cut(self._sends.vectors[e], first, self._sends, units)]

    def unit(self, slot: int) -> Unit:
        c = self.computation
        return Unit(c.message_name(c.slot_message[slot]), c.process_names[c.slot_dest[slot]])

    def edges_table(self, edges: Ints) -> pa.Table:
        c = self.computation
        sends = c.slot_send[edges]
        return pa.table(
            [
                *c.names_of(c.process[sends]),
                pa.array(c.recorded_seq[sends].astype(np.int64)),
                self._messages(edges),
                c.names_of(c.slot_dest[edges])[1],
            ],
            schema=EDGES,
        )

    def counts_table(self) -> pa.Table:
        """One row per edge: how many units it must carry."""
        edges = self.edges_table(np.arange(len(self.edge_counts)))
        return edges.append_column(COUNTS.field("units"), pa.array(self.edge_counts))

    def units_table(self) -> pa.Table:
        c = self.computation
        _, slots = self.edge_units()
        edges = np.repeat(np.arange(len(self.edge_counts)), self.edge_counts)
        table = self.edges_table(edges)
        table = table.append_column(UNITS.field("unit_message"), self._messages(slots))
        return table.append_column(UNITS.field("unit_destination"), c.names_of(c.slot_dest[slots])[1])

    def _messages(self, slots: Ints) -> pa.Array:
        c = self.computation
        return c.names.take(pa.array(c.message_codes[c.slot_message[slots]]))


class Necessary:
    """The necessary information of every computation of a trace."""

    def __init__(self, computations: Sequence[Computation]) -> None:
        self.computations = [NecessaryUnits(c) for c in computations]

    def edge_counts(self) -> pa.Table:
        """One row per message and destination: the send, the destination, how many units are necessary."""
        return pa.concat_tables([COUNTS.empty_table(), *(of.counts_table() for of in self.computations)])

    def edge_units(self) -> pa.Table:
        """One row per unit on each edge; `edge_counts` says beforehand how many that will be."""
        return pa.concat_tables([UNITS.empty_table(), *(of.units_table() for of in self.computations)])

    def in_log(self, process: str, seq: int, computation: str | None = None) -> frozenset[Unit]:
        """The units necessary in the log of `process` after its event `seq`."""
        for of in self.computations:
            if of.computation.name == computation or (computation is None and len(self.computations) == 1):
                return frozenset(map(of.unit, of.in_log(of.computation.index(process, seq))))
        raise LookupError(f"no computation {computation!r} among the {len(self.computations)} of this trace")

    def logs(self) -> Iterator[tuple[Event, frozenset[Unit]]]:
        """Every event with the units necessary after it, in topological order within each computation."""
        for of in self.computations:
            for e in range(of.computation.events):
                yield of.computation.event(e), frozenset(map(of.unit, of.in_log(e)))


def necessary(trace: Trace) -> Necessary:
    return Necessary(encode(trace))
