"""A recorded computation as something a protocol can be run on: its sends and its arrivals, in order.

In    a table that `trace.read` returned.
Out   one Recording per computation. A `receive` is an arrival. If a message has no arrival at a process, its
      `deliver` there is used instead. Other deliveries are ignored: another protocol would have made its own.

Events are walked in an order that contains happened-before and among concurrent events follows the recorded
times, where all sends and arrivals have one, then the levels. A time that contradicts happened-before is
moved forward to that of the event's causes; these corrected times are the `moments`. Processes are numbered
by name, shorter names first: p2 comes before p10; the order of the rows does not matter.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..causality import Computation, encode
from ..causality.computation import RECEIVE, SEND
from ..causality.linearization import Ints
from ..causality.reach import levels_of

HANDOVER = ["computation", "process", "message"]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    computation: Computation  # of arrivals: a slot's delivery is the first arrival there
    walk: Ints  # its events in the order of the replay
    moments: Ints | None  # of each event, in ns; None where a send or an arrival has no time
    number: Ints  # for each process of the computation: its machine

    def destinations(self, message: int) -> list[int]:
        c = self.computation
        dests = c.slot_dest[c.dest_offsets[message] : c.dest_offsets[message + 1]]
        return sorted(self.number[dests].tolist())

    def groups(self) -> list[tuple[int, ...]]:
        """The distinct sets of a sender and those it sent to."""
        c = self.computation
        sent = np.flatnonzero(np.diff(c.dest_offsets) > 0)
        senders = self.number[c.process[c.send[sent]]].tolist()
        found = {
            tuple(sorted({sender, *self.destinations(m)}))
            for sender, m in zip(senders, sent.tolist(), strict=True)
        }
        return sorted(found)


def arrivals(table: pa.Table) -> tuple[pa.Table, int]:
    """The events with `receive` for each arrival and no `deliver`; how many deliveries became arrivals."""
    kind = table["kind"].to_numpy(zero_copy_only=False).astype(object)
    numbered = table.select(HANDOVER).append_column("row", pa.array(np.arange(table.num_rows)))
    delivered = numbered.filter(pc.equal(table["kind"], "deliver"))
    received = table.select(HANDOVER).filter(pc.equal(table["kind"], "receive"))
    alone = delivered.join(received, HANDOVER, join_type="left anti")["row"].to_numpy()
    kind[kind == "deliver"] = "internal"
    kind[alone] = "receive"
    place = table.schema.get_field_index("kind")
    return table.set_column(place, table.schema.field("kind"), pa.array(kind, pa.string())), alone.size


def recordings(table: pa.Table) -> list[Recording]:
    """The recordings in a table of `arrivals`; TraceFormatError if a message arrives before it is sent."""
    times = table["time"].combine_chunks()
    return [_recording(c, times) for c in encode(table)]


def _recording(c: Computation, times: pa.Array) -> Recording:
    names = c.process_names
    by_name = sorted(range(c.processes), key=lambda p: (len(names[p]), names[p]))
    number = np.argsort(by_name)
    levels, machines = levels_of(c), number[c.process]
    own = times.take(pa.array(c.row))
    counts = np.isin(c.kind, (SEND, RECEIVE))
    if own.filter(pa.array(counts)).null_count or not counts.any():
        return Recording(c, np.lexsort((machines, levels)), None, number)
    moments = _corrected(c, pc.fill_null(own, np.iinfo(np.int64).min).to_pylist())
    return Recording(c, np.lexsort((machines, levels, moments)), moments, number)


def _corrected(c: Computation, times: list[int]) -> Ints:
    """Move times forward until no event is before its causes; events are in topological order: one pass."""
    now = [np.iinfo(np.int64).min] * c.processes
    source, offsets, causes = c.source.tolist(), c.cause_offsets.tolist(), c.causes.tolist()
    for e, process in enumerate(c.process.tolist()):
        moment = max(times[e], now[process])
        if source[e] >= 0:
            moment = max(moment, times[source[e]])
        for cause in causes[offsets[e] : offsets[e + 1]]:
            moment = max(moment, times[cause])
        times[e] = now[process] = moment
    return np.array(times, np.int64)
