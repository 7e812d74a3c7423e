"""Happened-before as sets: every definition of the judge applied literally to all pairs.

No vectors, no channels, no frontiers: the causal past of an event is a Python set, and a question is a
comprehension over everything. Quadratic or worse, for traces of a few dozen events.
"""

from collections import defaultdict
from graphlib import TopologicalSorter
from itertools import combinations, pairwise

Name = tuple[str, int]  # (process, seq)


def by_computation(rows, **options):
    groups = defaultdict(list)
    for row in rows:
        groups[row["computation"]].append(row)
    return {name: Closure(group, **options) for name, group in groups.items()}


class Closure:
    """One computation, from its rows. graphlib.CycleError if happened-before has a cycle.

    Of a window, seqs may have gaps, and causes that are not in it are `outside`.
    """

    def __init__(self, rows, window=False):
        self.event = {(row["process"], row["seq"]): row for row in rows}
        handover = "deliver" if any(row["kind"] == "deliver" for row in rows) else "receive"
        self.send = {row["message"]: name for name, row in self.event.items() if row["kind"] == "send"}
        self.dests = {m: set(self.event[s]["to"]) for m, s in self.send.items()}
        self.deliveries = sorted(name for name, row in self.event.items() if row["kind"] == handover)
        self.first = {}  # (message, process) -> event
        for name in self.deliveries:
            self.first.setdefault((self.event[name]["message"], name[0]), name)
        self.edges = {(e, f) for e, f in pairwise(sorted(self.event)) if e[0] == f[0]}
        self.outside = []
        for name, row in self.event.items():
            for cause in row.get("causes") or ():
                edge = (cause["process"], cause["seq"]), name
                if window and edge[0] not in self.event:
                    self.outside.append(edge)
                else:
                    self.edges.add(edge)
        for (message, _), delivery in self.first.items():
            if message in self.send:
                self.edges.add((self.send[message], delivery))
        self._close()

    def _close(self):
        before = {name: set() for name in self.event}
        for e, f in self.edges:
            before[f].add(e)
        self.past = {}
        for name in TopologicalSorter(before).static_order():
            self.past[name] = set(before[name]).union(*(self.past[e] for e in before[name]))

    def happened_before(self, e, f):
        return e in self.past[f]

    def is_step(self, e, f):
        """An edge of happened-before as a witness may draw it: process order need not be consecutive."""
        return (e, f) in self.edges or (e[0] == f[0] and e[1] < f[1])

    def delivered_where_sent(self):
        return {(m, x): d for (m, x), d in self.first.items() if m in self.send and x in self.dests[m]}

    def overtakes(self, x, early, late, order):
        """Whether, at x, `early` was delivered before `late` although `late` was sent before it."""
        first = self.delivered_where_sent()
        return (
            (early, x) in first
            and (late, x) in first
            and first[early, x][1] < first[late, x][1]
            and self.happened_before(self.send[late], self.send[early])
            and (order == "causal" or self.send[late][0] == self.send[early][0])
        )

    def early_deliveries(self, order):
        first = self.delivered_where_sent()
        return {
            (m, x) for m, x in first if any(self.overtakes(x, m, late, order) for late, y in first if x == y)
        }

    def confirm(self, witness):
        """Fail unless everything an early-delivery witness says is so."""
        x, early, late = witness.process, witness.early, witness.overtaken
        assert self.overtakes(x, early, late, witness.order)
        assert witness.early_delivery[1:3] == self.first[early, x]
        assert witness.overtaken_delivery[1:3] == self.first[late, x]
        path = [(event.process, event.seq) for event in witness.path]
        assert (path[0], path[-1]) == (self.send[late], self.send[early])
        assert all(self.is_step(e, f) for e, f in pairwise(path))
        for event in witness.path:
            row = self.event[event.process, event.seq]
            assert (event.kind, event.message) == (row["kind"], row.get("message"))

    def disagreements(self):
        """(comparable, [(p, q, b)]): p delivered some common a before b, q delivered b before a."""
        first = self.delivered_where_sent()
        processes = sorted({x for _, x in first})
        comparable, found = False, set()
        for p, q in combinations(processes, 2):
            common = [m for m, x in first if x == p and (m, q) in first]
            comparable = comparable or len(common) > 1
            for a in common:
                for b in common:
                    if first[a, p] < first[b, p] and first[b, q] < first[a, q]:
                        found.add((p, q, b, a))
        return comparable, found

    def lost(self):
        return {(m, x) for m in self.send for x in self.dests[m] if (m, x) not in self.first}

    def fates(self):
        """Every delivery that is not the first of a message at one of its destinations, by what it is."""
        found = {"duplicated": set(), "misdelivered": set(), "never_sent": set()}
        for name in self.deliveries:
            message = self.event[name]["message"]
            if self.first[message, name[0]] != name:
                found["duplicated"].add(name)
            elif message not in self.send:
                found["never_sent"].add(name)
            elif name[0] not in self.dests[message]:
                found["misdelivered"].add(name)
        return found

    def necessary_after(self, events):
        """PC1/PC2 on a causally closed set of events."""
        sent = [m for m, s in self.send.items() if s in events]
        return {
            (m, x)
            for m in sent
            for x in self.dests[m]
            if self.first.get((m, x)) not in events
            and not any(x in self.dests[k] and self.happened_before(self.send[m], self.send[k]) for k in sent)
        }

    def necessary_in_log(self, e):
        return self.necessary_after(self.past[e] | {e})

    def necessary_on_edge(self, message, destination):
        before = self.necessary_after(self.past[self.send[message]])
        return {(m, x) for m, x in before if x == destination or x not in self.dests[message]}
