"""Total order: does one order of all messages exist in which every process delivers its messages?

Such an order exists iff the graph of consecutive deliveries (an edge from each message to the one that some
process delivers next) has no cycle. Two kinds of faults are distinguished:

disagreements  two processes deliver two messages in opposite orders. For each pair of processes, walk the
               deliveries of one and remember which common message so far comes last at the other: a later
               delivery that comes before that message there is a disagreement. Cost: deliveries x processes.
cycles         among three processes or more, no two of which disagree: A before C at p, C before B at q, B
               before A at r. Each strongly connected component of the graph in which no two processes
               disagree counts as one cycle, shown by a shortest one. Cost: linear, and for each such
               component at most MOST_STEPS steps to find its shortest cycle.
"""

from dataclasses import dataclass

import numpy as np

from .compiled import compiled
from .computation import Computation
from .linearization import Ints, offsets_of
from .verdict import Cycle, Disagreement, Verdict, Witness

MOST_STEPS = 50_000_000
"""Limit of the search for the shortest cycle of one component. If it is reached, the cycle shown is the
shortest through some of the component's messages."""

Leg = tuple[int, int]  # Two indices into a list of deliveries, in order, both of one process


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """The deliveries of each process, in order: those of process p end at dest_ends[p]."""

    message: Ints
    dest_ends: Ints
    messages: int

    @property
    def dest(self) -> Ints:
        return np.repeat(np.arange(self.dest_ends.size), np.diff(self.dest_ends, prepend=0))

    def disagreements(self, first: Ints, chosen: Ints, limit: int) -> tuple[int, Ints, Ints]:
        """The module's `disagreements` for these sequences."""
        ends, limit = self.dest_ends, max(limit, 0)
        count, pairs, marked = disagreements(self.message, ends, first, chosen, self.messages, limit)
        return int(count), pairs, marked

    def could_disagree(self) -> bool:
        """Whether these deliveries could have contradictory orders; if not, there is nothing to judge."""
        return bool(has_circuit(self.message, self.dest, self.messages, self.dest_ends.size))

    def cycles(self, disagreeing: Ints) -> list[list[Leg]]:
        """A shortest cycle of every component without a message in `disagreeing`, a mask of the messages
        about which two processes disagree. Each leg ends with the message with which the next one begins."""
        component = components(self.message, self.dest_ends, self.messages)
        sizes = np.bincount(component, minlength=1)
        sizes[component[disagreeing]] = 0
        return [self._shortest_cycle(np.flatnonzero(component == k)) for k in np.flatnonzero(sizes > 1)]

    def _shortest_cycle(self, members: Ints) -> list[Leg]:
        places = np.flatnonzero(np.isin(self.message, members))
        dense = np.searchsorted(members, self.message[places])
        _, dest = np.unique(self.dest[places], return_inverse=True)
        by_message, ends = np.argsort(dense, kind="stable"), np.cumsum(np.bincount(dest))
        sources = max(1, min(members.size, MOST_STEPS // places.size))
        found = shortest_cycle(dense, dest, ends, by_message, offsets_of(np.bincount(dense)), sources)
        return [(int(places[a]), int(places[b])) for a, b in found]


@compiled
def disagreements(message, dest_ends, first, chosen, messages, limit):  # type: ignore[no-untyped-def]
    """How many deliveries disagree, the first `limit` pairs, and which messages the pairs are about.

    message lists what each process delivered, in order; process p's deliveries end at dest_ends[p]. Only the
    processes from first[q] on share messages with q. Each `chosen` q is compared with the processes before
    it. A pair is two indices into message, both of the process with the smaller index: the other process
    delivered the second message first. For any two disagreeing messages, at least one message of their
    component is marked.
    """
    witnesses = np.empty((limit, 3), np.int64)
    marked = np.zeros(messages, np.bool_)
    count = 0
    place = np.full(messages, -1, np.int64)  # each message's position in q's order
    for q in chosen:
        q_start = dest_ends[q - 1] if q > 0 else 0
        for d in range(q_start, dest_ends[q]):
            place[message[d]] = d
        for p in range(first[q], q):
            newest = -1
            for d in range(dest_ends[p - 1] if p > 0 else 0, dest_ends[p]):
                there = place[message[d]]
                if there < 0:
                    continue
                if newest >= 0 and there < place[message[newest]]:
                    if count < limit:
                        witnesses[count, 0] = newest
                        witnesses[count, 1] = d
                        witnesses[count, 2] = q
                    count += 1
                    marked[message[d]] = True
                else:
                    newest = d
        for d in range(q_start, dest_ends[q]):
            place[message[d]] = -1
    return count, witnesses[: min(count, limit)], marked


@compiled
def has_circuit(message, dest, messages, processes):  # type: ignore[no-untyped-def]
    """Whether the graph of processes and the messages they delivered has a circuit (by union and find).

    Without a circuit, all orders of deliveries fit together; around a circuit, orders can contradict one
    another.
    """
    parent = np.arange(messages + processes)
    for d in range(message.size):
        a, b = message[d], messages + dest[d]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a == b:
            return True
        parent[a] = b
    return False


@compiled
def components(message, dest_ends, messages):  # type: ignore[no-untyped-def]
    """The strongly connected component of each message in the graph of consecutive deliveries.

    Tarjan, "Depth-first search and linear graph algorithms", 1972, without recursion.
    """
    following = np.full(message.size, -1, np.int64)
    start = 0
    for end in dest_ends:
        for d in range(start, end - 1):
            following[d] = message[d + 1]
        start = end
    places = np.argsort(message, kind="mergesort")
    offsets = np.zeros(messages + 1, np.int64)
    for m in message:
        offsets[m + 1] += 1
    offsets = np.cumsum(offsets)
    edge = offsets[:-1].copy()
    number = np.full(messages, -1, np.int64)
    low = np.zeros(messages, np.int64)
    component = np.full(messages, -1, np.int64)
    open_messages = np.empty(messages, np.int64)
    path = np.empty(messages, np.int64)
    opened = numbered = found = 0
    for root in range(messages):
        if number[root] >= 0:
            continue
        path[0], depth = root, 1
        number[root] = low[root] = numbered
        numbered += 1
        open_messages[opened] = root
        opened += 1
        while depth:
            m = path[depth - 1]
            if edge[m] < offsets[m + 1]:
                to = following[places[edge[m]]]
                edge[m] += 1
                if to < 0:
                    continue
                if number[to] < 0:
                    number[to] = low[to] = numbered
                    numbered += 1
                    open_messages[opened] = to
                    opened += 1
                    path[depth] = to
                    depth += 1
                elif component[to] < 0:
                    low[m] = min(low[m], number[to])
                continue
            depth -= 1
            if depth:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[m])
            if low[m] == number[m]:
                while component[m] < 0:
                    opened -= 1
                    component[open_messages[opened]] = found
                found += 1
    return component


@compiled
def shortest_cycle(message, dest, dest_ends, by_message, offsets, sources):  # type: ignore[no-untyped-def]
    """The legs of a cycle with fewest legs through any of the first `sources` messages of one component.

    A leg leads from a delivery to any later one of the same process. Breadth-first search visits each
    delivery once per source: deliveries after the earliest one reached on a process are already reached.
    """
    messages = offsets.size - 1
    best = np.empty((0, 2), np.int64)
    fewest = messages + 1
    for source in range(sources):
        tail = np.full(messages, -1, np.int64)  # start of the leg by which a message was reached
        head = np.full(messages, -1, np.int64)
        legs = np.zeros(messages, np.int64)
        reached = dest_ends.copy()  # for each process, the earliest delivery reached
        waiting = np.empty(messages + 1, np.int64)
        waiting[0], taken, given = source, 0, 1
        while taken < given and tail[source] < 0:
            m = waiting[taken]
            taken += 1
            if legs[m] + 1 >= fewest:
                break
            for d in by_message[offsets[m] : offsets[m + 1]]:
                p = dest[d]
                for e in range(d + 1, reached[p]):
                    to = message[e]
                    if tail[to] < 0:
                        tail[to], head[to] = d, e
                        if to != source:
                            legs[to] = legs[m] + 1
                            waiting[given] = to
                            given += 1
                        else:
                            legs_back = legs[m] + 1
                reached[p] = min(reached[p], d + 1)
        if tail[source] >= 0 and legs_back < fewest:
            fewest = legs_back
            best = np.empty((fewest, 2), np.int64)
            m = source
            for leg in range(fewest - 1, -1, -1):
                best[leg, 0], best[leg, 1] = tail[m], head[m]
                m = message[tail[m]]
            if fewest <= 3:  # three is the minimum: no two processes of this component disagree
                break
    return best


def total_order(c: Computation, limit: int) -> Verdict:
    """Total order of one computation, or of a union."""
    slots = np.flatnonzero(c.slot_delivery >= 0)
    judged = slots.size
    slots = slots[np.diff(c.dest_offsets)[c.slot_message[slots]] > 1]
    dest = c.slot_dest[slots]
    slots = slots[np.lexsort((c.slot_delivery[slots], dest))]
    ends = np.cumsum(np.bincount(dest, minlength=c.processes))
    of = Sequences(c.slot_message[slots].astype(np.int64), ends, c.send.size)
    if not of.could_disagree():
        return Verdict("total", None, judged, 0, ())
    count, pairs, marked = of.disagreements(c.first, np.arange(c.processes), limit)
    cycles = of.cycles(marked)
    witnesses: list[Witness] = []
    for first, second, other in pairs:
        one = slots[[first, second]]
        there = c.slot_delivery[c.slots_of(c.slot_message[one], np.full(2, other))]
        a, b = map(c.message_name, c.slot_message[one])
        (a_here, b_here), (a_there, b_there) = (map(c.event, at) for at in (c.slot_delivery[one], there))
        name = c.computation_names[c.owner[other]]
        witnesses.append(Disagreement(name, (a, b), (a_here, b_here), (b_there, a_there)))
    for legs in cycles[: max(0, limit - len(witnesses))]:
        places = slots[np.array(legs)]
        name = c.computation_names[c.owner[c.slot_dest[places[0, 0]]]]
        names = tuple(map(c.message_name, c.slot_message[places[:, 0]]))
        events = ((c.event(one), c.event(other)) for one, other in c.slot_delivery[places])
        witnesses.append(Cycle(name, names, tuple(events)))
    violations = count + len(cycles)
    return Verdict("total", violations == 0, judged, violations, tuple(witnesses))
