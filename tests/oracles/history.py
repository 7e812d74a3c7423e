"""What each process knows, kept as plain sets of events: the definitions of
Kshemkalyani & Singhal (1998), read literally.

No control information, no clocks, no bit sets. Quadratic and obvious.
"""

from dataclasses import dataclass, field


@dataclass
class History:
    dests: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    before: dict[tuple[int, int], frozenset] = field(default_factory=dict)  # a send's strict causal past
    past: dict[int, set] = field(default_factory=dict)  # a process's latest event and everything before
    order: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # deliveries at a process

    def send(self, process, message, to):
        past = self.past.setdefault(process, set())
        self.dests[message] = frozenset(to)
        self.before[message] = frozenset(past)
        past.add(("send", message))

    def overtaken_by(self, process, message):
        """The messages this delivery would overtake (Definition 2)."""
        delivered = set(self.order.get(process, []))
        return {
            other
            for kind, other, *_ in self.before[message]
            if kind == "send" and process in self.dests[other] and other not in delivered
        }

    def deliver(self, process, message):
        past = self.past.setdefault(process, set())
        past |= self.before[message] | {("send", message), ("deliver", message, process)}
        self.order.setdefault(process, []).append(message)

    def log(self, process):
        """The units that PC1 and PC2 (§3.4) require of this process's log now."""
        past = self.past.get(process, set())
        sent = [event[1] for event in past if event[0] == "send"]
        return frozenset(
            (*m, x)
            for m in sent
            for x in self.dests[m]
            if ("deliver", m, x) not in past
            and not any(x in self.dests[later] and ("send", m) in self.before[later] for later in sent)
        )

    def edge(self, log_before, to, destination):
        """The units required on the edge to one destination of a multicast to the set `to`."""
        return frozenset(unit for unit in log_before if unit[2] == destination or unit[2] not in to)

    def chain_length(self, first, last):
        """Messages on the shortest causal chain from `first` to `last`; one if the same process sent both."""
        sender = last[0]
        if first[0] == sender:
            return 1
        arrived = [event[1] for event in self.before[last] if event[0] == "deliver" and event[2] == sender]
        via = [m for m in arrived if m == first or ("send", first) in self.before[m]]
        return 1 + min(1 if m == first else self.chain_length(first, m) for m in via)

    def undelivered(self):
        delivered = {(m, x) for x, order in self.order.items() for m in order}
        return {(m, x) for m, dests in self.dests.items() for x in dests} - delivered
