"""The questions of `happened.ask` answered literally, from the sets of tests/oracles/closure.py."""

from collections import defaultdict

from oracles.closure import by_computation

Name = tuple[str, str, int]  # (computation, process, seq)


class Brute:
    def __init__(self, rows):
        self.rows = {(row["computation"], row["process"], row["seq"]): row for row in rows}
        self.closures = by_computation(rows)

    def past(self, name):
        computation, *event = name
        return {(computation, *e) for e in self.closures[computation].past[tuple(event)]}

    def future(self, name):
        return {other for other in self.rows if name in self.past(other)}

    def relation(self, one, other):
        if one == other:
            return "same"
        if one in self.past(other):
            return "before"
        return "after" if other in self.past(one) else "concurrent"

    def edges_into(self, name):
        """The direct causes of an event."""
        computation, *event = name
        return {(computation, *e) for e, f in self.closures[computation].edges if f == tuple(event)}

    def immediate(self, name):
        """What happened before it with nothing between."""
        past = self.past(name)
        return {e for e in past if not any(e in self.past(other) for other in past)}

    def relevant(self, name):
        """Whether it is marked, unless all of its computation are."""
        all_marked = all(row["relevant"] for other, row in self.rows.items() if other[0] == name[0])
        return self.rows[name]["relevant"] and not all_marked

    def edge(self, cause, effect):
        """How a cause led to an effect, of which it is a direct one."""
        if cause[1] == effect[1]:
            return "process"
        closure = self.closures[cause[0]]
        sent = self.rows[effect].get("message")
        is_first = closure.first.get((sent, effect[1])) == effect[1:]
        return "message" if is_first and closure.send.get(sent) == cause[1:] else "cause"

    def request(self, name):
        """The attribute `trace`, or the computation where no event has one."""
        traced = {
            key[0] for key, row in self.rows.items() if (row.get("attributes") or {}).get("trace") is not None
        }
        if name[0] in traced:
            return (self.rows[name].get("attributes") or {}).get("trace")
        return name[0]

    def members(self):
        members = defaultdict(set)
        for name in self.rows:
            if (request := self.request(name)) is not None:
                members[request].add(name)
        return members

    def influenced(self, request, by_clock=False):
        """The requests with an event before one of these, and how many of their events are."""
        members = self.members()
        reached = set(members[request])
        while True:
            more = {u for name in reached for u in self._causes(name, by_clock)} - reached
            if not more:
                break
            reached |= more
        found = {other: len(events & reached) for other, events in members.items() if other != request}
        return {other: count for other, count in found.items() if count}

    def _causes(self, name, by_clock):
        yield from self.edges_into(name)
        time = self.rows[name].get("time")
        if by_clock and time is not None:
            for other, row in self.rows.items():
                if other[1] == name[1] and row.get("time") is not None and row["time"] < time:
                    yield other
