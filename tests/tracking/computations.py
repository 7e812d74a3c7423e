"""Random computations for trackers, and their happened-before as sets."""

import networkx as nx


class Computation:
    """Drives trackers and keeps what happened as a graph of all events; the oracle never sees a vector."""

    def __init__(self, trackers):
        self.trackers = trackers
        self.n = len(trackers)
        self.graph = nx.DiGraph()
        self._last = [None] * self.n
        self.stamps = {}  # (process, seq) -> Timestamp, null events included
        self.sent = []
        self._sends = []
        self.in_flight = []

    def _event(self, process, node):
        self.graph.add_node(node)
        if self._last[process] is not None:
            self.graph.add_edge(self._last[process], node)
        self._last[process] = node
        return node

    def _relevant(self, stamp):
        self.stamps[stamp.process, stamp.seq] = stamp
        self._event(stamp.process, (stamp.process, stamp.seq))

    def relevant(self, process):
        self._relevant(self.trackers[process].relevant())

    def send(self, process, to):
        piggyback = self.trackers[process].on_send(to)
        if piggyback.forced is not None:
            self._relevant(piggyback.forced)
        number = len(self.sent)
        self._event(process, ("send", number))
        self.sent.append(piggyback)
        self.in_flight.append((number, process, to, piggyback))
        return number

    def receive(self, number):
        at = next(place for place, packet in enumerate(self.in_flight) if packet[0] == number)
        _, sender, to, piggyback = self.in_flight.pop(at)
        self.trackers[to].on_receive(sender, piggyback)
        self.graph.add_edge(("send", number), self._event(to, ("receive", number)))

    def run(self, dice, steps, *, relevant=0.2, fifo=False):
        for _ in range(steps):
            chance, p = dice.random(), dice.randrange(self.n)
            if chance < relevant:
                self.relevant(p)
            elif chance < (1 + relevant) / 2 or not self.in_flight:
                self.send(p, dice.choice([q for q in range(self.n) if q != p]))
            else:
                number, sender, to, _ = dice.choice(self.in_flight)
                if fifo:
                    number = min(m for m, *channel, _ in self.in_flight if channel == [sender, to])
                self.receive(number)
        return self

    def relation(self):
        """Happened-before among the relevant events, as a graph of all ordered pairs."""
        closure = nx.transitive_closure_dag(self.graph)
        return closure.subgraph(self.stamps)

    def vectors(self):
        relation = self.relation()
        found = {}
        for event in self.stamps:
            counts = [0] * self.n
            for process, _ in (*relation.predecessors(event), event):
                counts[process] += 1
            found[event] = tuple(counts)
        return found

    def predecessors(self):
        reduction = nx.transitive_reduction(self.relation())
        return {event: frozenset(reduction.predecessors(event)) for event in self.stamps}
